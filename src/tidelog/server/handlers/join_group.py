"""JoinGroup (API key 11): a member joins a classic group or a rebalance; answered when all members have joined."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import GroupAuthorizationFailed, GroupMaxSizeReached, KafkaError
from tidelog.groups.group import coordinator_error
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.dispatch import RequestContext

NULLABLE_PROTOCOL_FROM_VERSION = 7


def handle_join_group(
    request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
    member_id, no_protocol = request.member_id, None if context.version >= NULLABLE_PROTOCOL_FROM_VERSION else ""

    def rejected(error: KafkaError) -> JoinGroupResponse:
        is_out = isinstance(error, GroupMaxSizeReached)
        return JoinGroupResponse(error_code=coordinator_error(error).code, member_id="" if is_out else member_id)

    def worded(response: JoinGroupResponse) -> JoinGroupResponse:
        response.protocol_name = response.protocol_name or no_protocol
        return response

    if context.is_denied(Operation.READ, ResourceType.GROUP, request.group_id):
        return worded(rejected(GroupAuthorizationFailed()))
    reply = Deferred(rejected)
    context.services.groups.join(request, caller_of(context), reply)
    return reply.map(worded)

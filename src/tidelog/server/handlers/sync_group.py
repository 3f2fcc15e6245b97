"""SyncGroup (API key 14): distributes the assignments of a classic group, which its leader member sends."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import GroupAuthorizationFailed, KafkaError
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.dispatch import RequestContext


def handle_sync_group(
    request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Deferred[SyncGroupResponse]:
    if context.is_denied(Operation.READ, ResourceType.GROUP, request.group_id):
        return _rejected(GroupAuthorizationFailed())
    reply = Deferred(_rejected)
    context.services.groups.sync(request, caller_of(context), reply)
    return reply


def _rejected(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)

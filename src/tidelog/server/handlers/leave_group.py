"""LeaveGroup (API key 13): removes members from a group."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import GroupAuthorizationFailed, KafkaError
from tidelog.groups.group import coordinator_error
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.dispatch import RequestContext


def handle_leave_group(
    request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Deferred[LeaveGroupResponse]:
    if context.is_denied(Operation.READ, ResourceType.GROUP, request.group_id):
        return _rejected(GroupAuthorizationFailed())
    reply = Deferred(_rejected)
    context.services.groups.leave(request, caller_of(context), reply)
    return reply


def _rejected(error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=coordinator_error(error).code)

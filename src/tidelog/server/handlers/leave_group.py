"""LeaveGroup: members leave a group."""

from tidelog.errors import KafkaError
from tidelog.groups.group import coordinator_error
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.dispatch import Call


def handle_leave_group(request: LeaveGroupRequest, call: Call) -> Deferred[LeaveGroupResponse]:
    reply = Deferred(_refused)
    call.services.groups.leave(request, caller_of(call), reply)
    return reply


def _refused(error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=coordinator_error(error).code)

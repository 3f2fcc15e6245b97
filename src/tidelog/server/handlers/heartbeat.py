"""Heartbeat: a member of a classic group is alive, and hears whether it has to join again."""

from tidelog.errors import NO_ERROR, CoordinatorLoadInProgress, KafkaError
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.dispatch import Call


def handle_heartbeat(request: HeartbeatRequest, call: Call) -> Deferred[HeartbeatResponse]:
    reply = Deferred(_refused)
    call.services.groups.heartbeat(request, caller_of(call), reply)
    return reply


def _refused(error: KafkaError) -> HeartbeatResponse:
    """While the group is loaded nobody can be late, so all is well, as Kafka has it."""
    is_loading = isinstance(error, CoordinatorLoadInProgress)
    return HeartbeatResponse(error_code=NO_ERROR if is_loading else error.code)

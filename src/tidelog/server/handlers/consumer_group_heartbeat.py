"""ConsumerGroupHeartbeat: a member of a consumer group joins, is alive, or leaves, and hears what it has (KIP-848)."""

from tidelog.errors import KafkaError
from tidelog.groups.group import coordinator_error
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.dispatch import Call


def handle_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, call: Call
) -> Deferred[ConsumerGroupHeartbeatResponse]:
    reply = Deferred(_refused)
    call.services.groups.consumer_heartbeat(request, caller_of(call), reply)
    return reply


def _refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    told = coordinator_error(error)
    return ConsumerGroupHeartbeatResponse(error_code=told.code, error_message=told.message)

"""ConsumerGroupHeartbeat (API key 68): a member joins, stays in or leaves a consumer group, and gets its assignment.

KIP-848.
"""

from tidelog.errors import KafkaError
from tidelog.groups.group import coordinator_error
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.dispatch import RequestContext


def handle_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Deferred[ConsumerGroupHeartbeatResponse]:
    reply = Deferred(_rejected)
    context.services.groups.consumer_heartbeat(request, caller_of(context), reply)
    return reply


def _rejected(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    response = coordinator_error(error)
    return ConsumerGroupHeartbeatResponse(error_code=response.code, error_message=response.message)

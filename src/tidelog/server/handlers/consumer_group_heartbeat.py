"""ConsumerGroupHeartbeat (API key 68): a member joins, stays in or leaves a consumer group, and gets its assignment.

KIP-848.
"""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import GroupAuthorizationFailed, KafkaError, TopicAuthorizationFailed
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
) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
    if context.is_denied(Operation.READ, ResourceType.GROUP, request.group_id):
        return _rejected(GroupAuthorizationFailed())
    if context.denied(Operation.DESCRIBE, ResourceType.TOPIC, request.subscribed_topic_names or ()):
        return _rejected(TopicAuthorizationFailed())
    reply = Deferred(_rejected)
    context.services.groups.consumer_heartbeat(request, caller_of(context), reply)
    return reply


def _rejected(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    response = coordinator_error(error)
    return ConsumerGroupHeartbeatResponse(error_code=response.code, error_message=response.message)

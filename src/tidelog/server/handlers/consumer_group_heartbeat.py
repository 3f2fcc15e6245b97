"""ConsumerGroupHeartbeat (API key 68): a member joins, stays in or leaves a consumer group, and gets its assignment.

KIP-848.
"""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import GroupAuthorizationFailed, KafkaError, TopicAuthorizationFailed
from tidelog.groups.group import coordinator_error
from tidelog.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.coordinator_confirmation import HEARTBEAT_CONFIRMATION_MS, confirmed
from tidelog.server.dispatch import RequestContext


def handle_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
    if context.is_denied(Operation.READ, ResourceType.GROUP, request.group_id):
        return _rejected(GroupAuthorizationFailed())
    if context.denied(Operation.DESCRIBE, ResourceType.TOPIC, request.subscribed_topic_names or ()):
        return _rejected(TopicAuthorizationFailed())
    reply = Deferred(_rejected)
    groups = context.services.groups
    groups.consumer_heartbeat(request, caller_of(context), reply)
    coordinated_by = groups.partition_of(request.group_id)
    answer = confirmed(reply, coordinated_by, _rejected, context.services, HEARTBEAT_CONFIRMATION_MS)
    if context.services.authorizer is None:
        return answer
    return answer.map(lambda response: _without_denied_topics(response, context))


def _without_denied_topics(
    response: ConsumerGroupHeartbeatResponse, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """A regular expression matches all topics: the member must not learn of those that it may not describe."""
    if response.assignment is None:
        return response
    names = context.services.cluster.image.topic_names
    denied = context.denied(
        Operation.DESCRIBE,
        ResourceType.TOPIC,
        (names[each.topic_id] for each in response.assignment.topic_partitions if each.topic_id in names),
        is_logged=False,
    )
    if denied:
        permitted = [each for each in response.assignment.topic_partitions if names.get(each.topic_id) not in denied]
        response.assignment = Assignment(topic_partitions=permitted)
    return response


def _rejected(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    response = coordinator_error(error)
    return ConsumerGroupHeartbeatResponse(error_code=response.code, error_message=response.message)

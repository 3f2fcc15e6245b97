"""OffsetDelete (API key 47): deletes committed offsets of a group."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import GroupAuthorizationFailed, KafkaError, TopicAuthorizationFailed, UnknownTopicOrPartition
from tidelog.groups.group import coordinator_error
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.runtime.deferred import Deferred
from tidelog.server.dispatch import RequestContext
from tidelog.server.unknown_partitions import divide_topics, merged


def handle_offset_delete(
    request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Deferred[OffsetDeleteResponse]:
    if context.is_denied(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=GroupAuthorizationFailed.code)
    image = context.services.cluster.image
    denied = context.denied(Operation.READ, ResourceType.TOPIC, (topic.name for topic in request.topics))
    unauthorized = [_denied(topic) for topic in request.topics if topic.name in denied]
    permitted = [topic for topic in request.topics if topic.name not in denied]
    request.topics, rejected = divide_topics(permitted, image, OffsetDeleteRequestTopic, _unknown)
    rejected += unauthorized
    reply = Deferred(_failed)
    context.services.groups.delete_offsets(request, reply)
    return reply.map(lambda response: _completed(response, rejected))


def _completed(response: OffsetDeleteResponse, rejected: list[OffsetDeleteResponseTopic]) -> OffsetDeleteResponse:
    if not response.error_code:
        response.topics = merged(response.topics, rejected)
    return response


def _denied(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    return _answered(topic.name, [each.partition_index for each in topic.partitions], TopicAuthorizationFailed.code)


def _unknown(topic: str, indexes: list[int]) -> OffsetDeleteResponseTopic:
    return _answered(topic, indexes, UnknownTopicOrPartition.code)


def _answered(topic: str, indexes: list[int], code: int) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(topic, [OffsetDeleteResponsePartition(index, code) for index in indexes])


def _failed(error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=coordinator_error(error).code)

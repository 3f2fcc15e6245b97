"""OffsetDelete (API key 47): deletes committed offsets of a group."""

from tidelog.errors import KafkaError, UnknownTopicOrPartition
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


def handle_offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> Deferred[OffsetDeleteResponse]:
    image = context.services.cluster.image
    request.topics, rejected = divide_topics(request.topics, image, OffsetDeleteRequestTopic, _unknown)
    reply = Deferred(_failed)
    context.services.groups.delete_offsets(request, reply)
    return reply.map(lambda response: _completed(response, rejected))


def _completed(response: OffsetDeleteResponse, rejected: list[OffsetDeleteResponseTopic]) -> OffsetDeleteResponse:
    if not response.error_code:
        response.topics = merged(response.topics, rejected)
    return response


def _unknown(topic: str, indexes: list[int]) -> OffsetDeleteResponseTopic:
    code = UnknownTopicOrPartition.code
    return OffsetDeleteResponseTopic(topic, [OffsetDeleteResponsePartition(index, code) for index in indexes])


def _failed(error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=coordinator_error(error).code)

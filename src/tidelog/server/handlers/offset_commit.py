"""OffsetCommit (API key 8): commits offsets of a group."""

from collections.abc import Iterable

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.image import ClusterImage
from tidelog.errors import (
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.groups.group import coordinator_error
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.runtime.deferred import Deferred
from tidelog.server.client_identity import caller_of
from tidelog.server.dispatch import RequestContext
from tidelog.server.unknown_partitions import divide, merged

TOPIC_IDS_FROM_VERSION = 10


def handle_offset_commit(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Deferred[OffsetCommitResponse]:
    image, uses_ids = context.services.cluster.image, context.version >= TOPIC_IDS_FROM_VERSION
    for topic in request.topics:
        _complete(topic, image, uses_ids=uses_ids)
    if context.is_denied(Operation.READ, ResourceType.GROUP, request.group_id):
        return _failed(request, GroupAuthorizationFailed())
    denied = context.denied(Operation.READ, ResourceType.TOPIC, (topic.name for topic in request.topics if topic.name))
    known, rejected = [], []
    for topic in request.topics:
        if topic.name in denied:
            rejected.append(_answered(topic, _indexes(topic), TopicAuthorizationFailed))
            continue
        partitions, unknown = divide(topic, image)
        if partitions:
            topic.partitions = partitions
            known.append(topic)
        if unknown:
            is_id_unknown = uses_ids and not topic.name
            rejected.append(_answered(topic, unknown, UnknownTopicId if is_id_unknown else UnknownTopicOrPartition))
    if not known:
        return OffsetCommitResponse(topics=merged([], rejected))
    request.topics = known
    reply = Deferred(lambda error: _failed(request, coordinator_error(error)))
    context.services.groups.commit_offsets(request, caller_of(context), reply)
    if not rejected:
        return reply
    return reply.map(lambda response: OffsetCommitResponse(topics=merged(response.topics, rejected)))


def _complete(topic: OffsetCommitRequestTopic, image: ClusterImage, *, uses_ids: bool) -> None:
    """Fill in the topic name or id that the request does not carry."""
    if uses_ids:
        topic.name = image.topic_names.get(topic.topic_id, "")
    elif topic.name in image.topics:
        topic.topic_id = image.topics[topic.name].topic_id


def _failed(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    topics = [_answered(topic, _indexes(topic), type(error)) for topic in request.topics]
    return OffsetCommitResponse(topics=topics)


def _indexes(topic: OffsetCommitRequestTopic) -> Iterable[int]:
    return (partition.partition_index for partition in topic.partitions)


def _answered(
    topic: OffsetCommitRequestTopic, indexes: Iterable[int], error: type[KafkaError]
) -> OffsetCommitResponseTopic:
    partitions = [OffsetCommitResponsePartition(index, error.code) for index in indexes]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions)

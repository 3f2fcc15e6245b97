"""OffsetFetch (API key 9): returns committed offsets of groups."""

from collections.abc import Iterable

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.image import ClusterImage
from tidelog.errors import (
    NO_ERROR,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    KafkaError,
    NotCoordinator,
    TopicAuthorizationFailed,
    UnknownTopicId,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidelog.runtime.deferred import Deferred
from tidelog.server.coordinator_confirmation import confirmed
from tidelog.server.dispatch import RequestContext
from tidelog.server.sliced_requests import Promised, begin_each
from tidelog.types import NO_OFFSET

GROUPS_FROM_VERSION = 8
TOPIC_IDS_FROM_VERSION = 10
GROUP_ERROR_FROM_VERSION = 2
"""Older versions carry an error of the group in each partition."""


def handle_offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> Promised[OffsetFetchResponse]:
    image, uses_ids = context.services.cluster.image, context.version >= TOPIC_IDS_FROM_VERSION
    groups = _distinct(request.groups) if context.version >= GROUPS_FROM_VERSION else [_only_group(request)]
    unknown = [_extract_unknown(group, image) for group in groups] if uses_ids else []

    def finish(parts: list[OffsetFetchResponse]) -> OffsetFetchResponse:
        found = [group for part in parts for group in part.groups]
        if uses_ids:
            for group, topics in zip(found, unknown, strict=True):
                _add_topic_ids(group, topics, image)
        if context.version >= GROUPS_FROM_VERSION:
            return OffsetFetchResponse(groups=found)
        return _only_answer(request, found[0], context.version)

    def begin(group: OffsetFetchRequestGroup) -> Deferred[OffsetFetchResponse]:
        reply = Deferred(lambda error: _failed(group.group_id, error))
        if context.is_denied(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            reply.fail(GroupAuthorizationFailed())
            return reply
        denied = _extract_denied(group, context)
        context.services.groups.fetch_offsets(group, reply, require_stable=request.require_stable)
        answer = confirmed(
            reply,
            context.services.groups.partition_of(group.group_id),
            lambda error: _failed(group.group_id, error),
            context.services,
        )
        if context.services.authorizer is None:
            return answer
        return answer.map(lambda response: _without_denied_topics(response, denied, context))

    return begin_each(groups, begin, finish, context)


def _extract_denied(group: OffsetFetchRequestGroup, context: RequestContext) -> list[OffsetFetchResponseTopics]:
    """Remove topics that the client may not describe, and return their answers."""
    names = (topic.name for topic in group.topics or ())
    denied = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, names)
    if not denied or group.topics is None:
        return []
    rejected = [topic for topic in group.topics if topic.name in denied]
    group.topics = [topic for topic in group.topics if topic.name not in denied]
    code = TopicAuthorizationFailed.code
    return [
        OffsetFetchResponseTopics(
            name=topic.name, partitions=[_rejected(index, code) for index in topic.partition_indexes]
        )
        for topic in rejected
    ]


def _without_denied_topics(
    response: OffsetFetchResponse, rejected: list[OffsetFetchResponseTopics], context: RequestContext
) -> OffsetFetchResponse:
    """All offsets of a group, but those of topics that the client may not describe."""
    for group in response.groups:
        if group.error_code == NO_ERROR:
            names = (topic.name for topic in group.topics)
            denied = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, names, is_logged=False)
            group.topics = [topic for topic in group.topics if topic.name not in denied] + rejected
    return response


def _distinct(groups: Iterable[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """All offsets of a group are returned once: a request names a group thousands of times in a few kilobytes."""
    complete: set[str] = set()
    distinct = []
    for group in groups:
        if group.topics is None:
            if group.group_id in complete:
                continue
            complete.add(group.group_id)
        distinct.append(group)
    return distinct


def _failed(group_id: str, error: KafkaError) -> OffsetFetchResponse:
    # Consumers before 3.9 treat COORDINATOR_NOT_AVAILABLE as fatal here; NOT_COORDINATOR makes all of them retry.
    code = NotCoordinator.code if isinstance(error, CoordinatorNotAvailable) else error.code
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group_id, error_code=code)])


# ---- one group, before version 8


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics],
    )


def _only_answer(request: OffsetFetchRequest, group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    if group.error_code != NO_ERROR:
        return OffsetFetchResponse(
            error_code=group.error_code,
            topics=_all_failed(request, group.error_code) if version < GROUP_ERROR_FROM_VERSION else [],
        )
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                    each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics)


def _all_failed(request: OffsetFetchRequest, error_code: int) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error_code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]


# ---- topics by id, since version 10


def _extract_unknown(group: OffsetFetchRequestGroup, image: ClusterImage) -> list[OffsetFetchResponseTopics]:
    """Fill in topic names; remove unknown topics and return their answers."""
    if group.topics is None:
        return []
    unknown = []
    for topic in group.topics:
        topic.name = image.topic_names.get(topic.topic_id, "")
        if not topic.name:
            partitions = [_rejected(index, UnknownTopicId.code) for index in topic.partition_indexes]
            unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
    group.topics = [topic for topic in group.topics if topic.name]
    return unknown


def _rejected(index: int, error_code: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error_code
    )


def _add_topic_ids(
    group: OffsetFetchResponseGroup, unknown: list[OffsetFetchResponseTopics], image: ClusterImage
) -> None:
    """Fill in the ids of topics. Deleted topics have no id and are left out."""
    if group.error_code != NO_ERROR:
        return
    known = [topic for topic in group.topics if topic.name in image.topics]
    for topic in known:
        topic.topic_id = image.topics[topic.name].topic_id
    group.topics = known + unknown

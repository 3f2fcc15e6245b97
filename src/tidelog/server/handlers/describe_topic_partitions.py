"""DescribeTopicPartitions (API key 75): describes topics in pages, with eligible leader replicas (KIP-966)."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.image import ClusterImage, Topic
from tidelog.cluster.topic_names import check_topic_name, is_internal
from tidelog.errors import NO_ERROR, InvalidRequest, KafkaError, TopicAuthorizationFailed, UnknownTopicOrPartition
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import partition_fields

MAX_PARTITIONS_IN_A_PAGE = 2000


def handle_describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    image = context.services.cluster.image
    cursor = request.cursor
    names = sorted({topic.name for topic in request.topics} or image.topics)
    if cursor is None:
        return _permitted_page(request, names, 0, context)
    if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
        return _rejected(request)
    names = [name for name in names if name >= cursor.topic_name]
    # If the topic of the cursor was deleted meanwhile, the page begins with the next topic.
    is_cursor_there = bool(names) and names[0] == cursor.topic_name
    return _permitted_page(request, names, cursor.partition_index if is_cursor_there else 0, context)


def _permitted_page(
    request: DescribeTopicPartitionsRequest, names: list[str], first: int, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Topics that the client may not describe are left out, or named with the error if it has named them."""
    denied = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, names, is_logged=bool(request.topics))
    if denied and names[0] in denied:
        first = 0
    permitted = [name for name in names if name not in denied]
    response = _page(context.services.cluster.image, permitted, first, _page_size(request))
    for topic in response.topics:
        topic.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, topic.name or "")
    if request.topics:
        code = TopicAuthorizationFailed.code
        response.topics += [DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in sorted(denied)]
    return response


def _page_size(request: DescribeTopicPartitionsRequest) -> int:
    return max(min(request.response_partition_limit, MAX_PARTITIONS_IN_A_PAGE), 1)


def _page(image: ClusterImage, names: list[str], first: int, room: int) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        if room == 0 or len(response.topics) >= MAX_PARTITIONS_IN_A_PAGE:  # unknown topics count, too
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        end = min(first + room, len(topic.partitions))
        response.topics.append(_describe(topic, image, first, end))
        room -= max(end - first, 0)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        first = 0
    return response


def _describe(topic: Topic, image: ClusterImage, first: int, end: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=NO_ERROR,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                **partition_fields(partition, image),
                eligible_leader_replicas=partition.eligible_leader_replicas,
                last_known_elr=partition.last_known_eligible,
            )
            for partition in topic.partitions[first:end]
        ],
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = UnknownTopicOrPartition.code
    try:
        check_topic_name(name)
    except KafkaError as invalid:
        code = invalid.code  # keep the code, not the error: its traceback would form a reference cycle
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=is_internal(name),
    )


def _rejected(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    code = InvalidRequest.code
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name) for topic in request.topics]
    )

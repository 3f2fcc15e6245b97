"""DescribeTopicPartitions: topics and their partitions, in pages where one answer would be too long (KIP-966)."""

from tidelog.cluster.image import ClusterImage, Partition, Topic
from tidelog.cluster.topic_names import is_internal
from tidelog.errors import NO_ERROR, InvalidRequest, LeaderNotAvailable, UnknownTopicOrPartition
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tidelog.server.dispatch import Call
from tidelog.types import NO_BROKER

MAX_PARTITIONS_IN_A_PAGE = 2000


def handle_describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, call: Call
) -> DescribeTopicPartitionsResponse:
    image = call.services.cluster.image
    first_partition = 0
    names = sorted({topic.name for topic in request.topics} or image.topics)
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        first_partition = request.cursor.partition_index
        if first_partition < 0:
            return _all_failed(names, InvalidRequest.code)
        if names and names[0] != request.cursor.topic_name:
            first_partition = 0
    return _page(image, names, first_partition, _page_size(request))


def _page_size(request: DescribeTopicPartitionsRequest) -> int:
    asked = request.response_partition_limit
    return min(asked, MAX_PARTITIONS_IN_A_PAGE) if asked > 0 else MAX_PARTITIONS_IN_A_PAGE


def _page(image: ClusterImage, names: list[str], first: int, room: int) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_failed(name, UnknownTopicOrPartition.code))
            continue
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
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
        partitions=[_describe_partition(partition, image) for partition in topic.partitions[first:end]],
    )


def _describe_partition(partition: Partition, image: ClusterImage) -> DescribeTopicPartitionsResponsePartition:
    leader = partition.leader if partition.leader in image.brokers else NO_BROKER
    return DescribeTopicPartitionsResponsePartition(
        error_code=NO_ERROR if leader != NO_BROKER else LeaderNotAvailable.code,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.in_sync_replicas),
        eligible_leader_replicas=[],  # null, though allowed, makes the Java admin client fail
        last_known_elr=[],
        offline_replicas=[broker for broker in partition.replicas if broker not in image.brokers],
    )


def _all_failed(names: list[str], error_code: int) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[_failed(name, error_code) for name in names])


def _failed(name: str, error_code: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error_code, name=name, is_internal=is_internal(name))

"""OffsetForLeaderEpoch and ListOffsets requests of followers."""

from collections.abc import Iterable

from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.structs import Response
from tidelog.types import BrokerId, TopicPartition

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2


def epoch_ends_request(
    replica_id: BrokerId, asked: Iterable[tuple[TopicPartition, int, int]]
) -> OffsetForLeaderEpochRequest:
    """Each entry: partition, current leader epoch, and the epoch whose end offset is requested."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for (topic, partition), current_leader_epoch, epoch in asked:
        topics.setdefault(topic, OffsetForLeaderTopic(topic=topic, partitions=[])).partitions.append(
            OffsetForLeaderPartition(partition=partition, current_leader_epoch=current_leader_epoch, leader_epoch=epoch)
        )
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=list(topics.values()))


def offsets_request(
    replica_id: BrokerId, asked: Iterable[tuple[TopicPartition, int]], *, is_end: bool
) -> ListOffsetsRequest:
    """Start or end offsets of the leader's logs. A partition may occur only once in a request."""
    timestamp = LATEST_TIMESTAMP if is_end else EARLIEST_TIMESTAMP
    topics: dict[str, ListOffsetsTopic] = {}
    for (topic, partition), current_leader_epoch in asked:
        topics.setdefault(topic, ListOffsetsTopic(name=topic, partitions=[])).partitions.append(
            ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=current_leader_epoch, timestamp=timestamp
            )
        )
    return ListOffsetsRequest(replica_id=replica_id, topics=list(topics.values()))


def offsets_of(response: Response) -> dict[tuple[str, int], tuple[int, int]]:
    """Error code and offset of each partition."""
    assert isinstance(response, ListOffsetsResponse)
    return {
        (topic.name, data.partition_index): (data.error_code, data.offset)
        for topic in response.topics
        for data in topic.partitions
    }

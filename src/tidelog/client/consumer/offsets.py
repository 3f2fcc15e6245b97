"""Offset lookups: ListOffsets (begin, end, timestamp) and OffsetForLeaderEpoch."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from tidelog.client.network.connection import ClientConnection
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.leaders import Outcomes, ask_leaders
from tidelog.errors import NO_ERROR, error_of
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.types import TopicPartition

T = TypeVar("T")

END = -1
BEGINNING = -2
"""Instead of a timestamp."""
CONSUMER = -1
DEBUGGING_CONSUMER = -2
"""Replica ids of readers that are no brokers."""


class OffsetAt(NamedTuple):
    offset: int
    """-1: no record has this or a later timestamp."""
    timestamp_ms: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    leader_epoch: int
    """The largest epoch that is not above the requested one; -1 if there is none."""
    end_offset: int


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int = 0,
    replica_id: int = CONSUMER,
    timeout_s: float = 30.0,
) -> dict[TopicPartition, OffsetAt]:
    """The first offset at or after each timestamp, or the BEGINNING or END of its partition.

    The END is the high watermark for a consumer, and the end of the leader's log for a DEBUGGING_CONSUMER.
    """

    async def ask(connection: ClientConnection, epochs: Mapping[TopicPartition, int]) -> Outcomes[OffsetAt]:
        topics = [
            ListOffsetsTopic(name=topic, partitions=partitions)
            for topic, partitions in by_topic(epochs, lambda key: _timestamp(key, epochs[key], timestamps[key])).items()
        ]
        request = ListOffsetsRequest(
            replica_id=replica_id, isolation_level=isolation_level, topics=topics, timeout_ms=int(timeout_s * 1000)
        )
        response = await connection.ask(request, ListOffsetsResponse, timeout_s=cluster.request_timeout_s)
        return {
            TopicPartition(topic.name, found.partition_index): OffsetAt(
                found.offset, found.timestamp, found.leader_epoch
            )
            if found.error_code == NO_ERROR
            else error_of(found.error_code, f"{topic.name}-{found.partition_index}")
            for topic in response.topics
            for found in topic.partitions
        }

    return await ask_leaders(cluster, "looking up offsets", timestamps, ask, timeout_s)


async def ends_of_epochs(
    cluster: Cluster, leader_epochs: Mapping[TopicPartition, int], *, timeout_s: float = 30.0
) -> dict[TopicPartition, EpochEnd]:
    """End offset of each leader epoch in the log of the current leader (KIP-320)."""

    async def ask(connection: ClientConnection, epochs: Mapping[TopicPartition, int]) -> Outcomes[EpochEnd]:
        topics = [
            OffsetForLeaderTopic(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(epochs, lambda key: _epoch(key, epochs[key], leader_epochs[key])).items()
        ]
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=topics)
        response = await connection.ask(request, OffsetForLeaderEpochResponse, timeout_s=cluster.request_timeout_s)
        return {
            TopicPartition(topic.topic, found.partition): EpochEnd(found.leader_epoch, found.end_offset)
            if found.error_code == NO_ERROR
            else error_of(found.error_code, f"{topic.topic}-{found.partition}")
            for topic in response.topics
            for found in topic.partitions
        }

    return await ask_leaders(cluster, "validating positions", leader_epochs, ask, timeout_s)


def by_topic(keys: Iterable[TopicPartition], make: Callable[[TopicPartition], T]) -> dict[str, list[T]]:
    grouped: dict[str, list[T]] = {}
    for key in keys:
        grouped.setdefault(key.topic, []).append(make(key))
    return grouped


def _timestamp(key: TopicPartition, current_leader_epoch: int, timestamp: int) -> ListOffsetsPartition:
    return ListOffsetsPartition(
        partition_index=key.partition, current_leader_epoch=current_leader_epoch, timestamp=timestamp
    )


def _epoch(key: TopicPartition, current_leader_epoch: int, leader_epoch: int) -> OffsetForLeaderPartition:
    return OffsetForLeaderPartition(
        partition=key.partition, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
    )

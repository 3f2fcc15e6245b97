"""ListOffsets: the offset that belongs to a timestamp, or to one of the special places of a partition."""

import asyncio
from collections import Counter

from tidelog.errors import (
    NO_ERROR,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    UnsupportedVersion,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.replication.partition import Partition
from tidelog.server.dispatch import Call
from tidelog.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

SUPPORTED_FROM_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
NEVER = 2**15
OFFSET_NOT_AVAILABLE_FROM_VERSION = 5

CONSUMER = -1

DEBUGGING_CONSUMER = -2
"""Reads past the high watermark, and at followers too."""


async def handle_list_offsets(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    asked = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    topics = []
    for topic in request.topics:
        if not topic.partitions:
            continue
        answers = [
            _answer(request, call, topic.name, wanted, is_repeated=asked[topic.name, index] > 1)
            for index, wanted in {wanted.partition_index: wanted for wanted in topic.partitions}.items()
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=await asyncio.gather(*answers)))
    return ListOffsetsResponse(topics=topics)


async def _answer(
    request: ListOffsetsRequest, call: Call, topic: str, wanted: ListOffsetsPartition, *, is_repeated: bool
) -> ListOffsetsPartitionResponse:
    try:
        if is_repeated:
            raise InvalidRequest("a partition may be named once in a request")
        if wanted.timestamp < 0 and call.version < SUPPORTED_FROM_VERSION.get(wanted.timestamp, NEVER):
            raise UnsupportedVersion
        partition = call.services.replicas.get(topic, wanted.partition_index)
        if request.replica_id == CONSUMER:
            partition.require_leader_for_reading(wanted.current_leader_epoch)
        elif request.replica_id != DEBUGGING_CONSUMER:
            partition.require_leader(wanted.current_leader_epoch)
        timestamp, offset, epoch = await _look_up(partition, request, wanted.timestamp, call)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=NO_ERROR,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


async def _look_up(
    partition: Partition, request: ListOffsetsRequest, timestamp: int, call: Call
) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch of what was asked for; -1 for what there is not."""
    log = partition.log
    is_consumer = request.replica_id == CONSUMER
    end = partition.readable_end(request.isolation_level, is_follower=not is_consumer)
    if timestamp == LATEST:
        if is_consumer:
            _require_known_end(partition, call)
        return NO_TIMESTAMP, end, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return NO_TIMESTAMP, log.log_start_offset, log.leader_epochs.epoch_at(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH  # nothing is kept anywhere but here
    if timestamp == MAX_TIMESTAMP:
        found = await call.services.workers.run(log.find_max_timestamp)
    else:
        found = await call.services.workers.run(log.find_by_timestamp, timestamp)
    if found is not None and found.offset < end:
        return found
    if is_consumer:
        _require_known_end(partition, call)
    return NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH


def _require_known_end(partition: Partition, call: Call) -> None:
    """KIP-207: a new leader may not know yet what was committed; consumers must not see the end go backwards."""
    if partition.log.high_watermark < partition.require_leader_for_reading().epoch_start_offset:
        is_known = call.version >= OFFSET_NOT_AVAILABLE_FROM_VERSION
        raise OffsetNotAvailable if is_known else LeaderNotAvailable

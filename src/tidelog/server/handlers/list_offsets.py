"""ListOffsets (API key 2): finds the offset of a timestamp, or the earliest, latest and other special offsets."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import (
    NO_ERROR,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnsupportedVersion,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.replication.fetch_reads import ISOLATION_LEVELS, readable_end
from tidelog.replication.partition import Partition
from tidelog.server.dispatch import RequestContext
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

MANY_PARTITIONS = 200
"""Requests with more partitions are processed in slices."""

SEARCHES_AT_ONCE = 4
"""Concurrent log searches of one request."""

CONSUMER = -1

DEBUGGING_CONSUMER = -2
"""Kafka's debugging consumer: reads past the high watermark, also from followers."""

NOTHING = NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH


Found = tuple[int, int, int]
"""Timestamp, offset and leader epoch; -1 where there is none."""

Search = Callable[[], Coroutine[Any, Any, ListOffsetsPartitionResponse]]
Answer = ListOffsetsPartitionResponse | Search


def handle_list_offsets(
    request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """Answered at once if no log must be searched: some consumers request both ends after every poll."""
    counts = Counter(
        (topic.name, requested.partition_index) for topic in request.topics for requested in topic.partitions
    )
    if len(counts) > MANY_PARTITIONS:
        return _begin_all(request, context, counts)
    begun = [
        (
            name,
            [
                _begin(request, context, name, requested, is_repeated=counts[name, index] > 1)
                for index, requested in partitions
            ],
        )
        for name, partitions in _requested_partitions(request)
    ]
    if any(callable(response) for _, responses in begun for response in responses):
        return _search_all(begun)
    return _response(begun)


def _requested_partitions(request: ListOffsetsRequest) -> list[tuple[str, list[tuple[int, ListOffsetsPartition]]]]:
    """The partitions of each topic, without duplicates."""
    return [
        (topic.name, list({requested.partition_index: requested for requested in topic.partitions}.items()))
        for topic in request.topics
        if topic.partitions
    ]


async def _begin_all(
    request: ListOffsetsRequest, context: RequestContext, counts: Mapping[tuple[str, int], int]
) -> ListOffsetsResponse:
    begun: list[tuple[str, list[Answer]]] = []
    for name, partitions in _requested_partitions(request):

        def begin(indexed: tuple[int, ListOffsetsPartition], name: str = name) -> Answer:
            return _begin(request, context, name, indexed[1], is_repeated=counts[name, indexed[0]] > 1)

        begun.append((name, await context.services.turns.each(partitions, begin)))
    return await _search_all(begun)


async def _search_all(begun: Sequence[tuple[str, list[Answer]]]) -> ListOffsetsResponse:
    return _response([(name, await _finish_all(responses)) for name, responses in begun])


async def _finish_all(responses: Sequence[Answer]) -> list[ListOffsetsPartitionResponse]:
    """A few searches at a time, to leave workers for other requests."""
    found = [None if callable(response) else response for response in responses]
    searches = [(index, response) for index, response in enumerate(responses) if callable(response)]
    for first in range(0, len(searches), SEARCHES_AT_ONCE):
        some = searches[first : first + SEARCHES_AT_ONCE]
        for (index, _), response in zip(some, await asyncio.gather(*(search() for _, search in some)), strict=True):
            found[index] = response
    return [response for response in found if response is not None]


def _response(responses: Sequence[tuple[str, list[Any]]]) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=name, partitions=partitions) for name, partitions in responses]
    )


# ---- one partition


def _begin(
    request: ListOffsetsRequest,
    context: RequestContext,
    topic: str,
    requested: ListOffsetsPartition,
    *,
    is_repeated: bool,
) -> Answer:
    try:
        if request.isolation_level not in ISOLATION_LEVELS:
            raise UnknownServerError(f"isolation level {request.isolation_level} does not exist")
        if context.is_denied(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            raise TopicAuthorizationFailed
        if is_repeated:
            raise InvalidRequest("the partition is named more than once in the request")
        if requested.timestamp < 0 and context.version < SUPPORTED_FROM_VERSION.get(requested.timestamp, NEVER):
            raise UnsupportedVersion
        partition = context.services.partition(topic, requested.partition_index)
        if request.replica_id == CONSUMER:
            partition.require_leader_for_reading(requested.current_leader_epoch)
        elif request.replica_id != DEBUGGING_CONSUMER:
            partition.require_leader(requested.current_leader_epoch)
        if requested.timestamp >= 0 or requested.timestamp == MAX_TIMESTAMP:
            return partial(_search, partition, request, context, requested)
        return _answer(requested, _look_up(partition, request, context, requested.timestamp))
    except KafkaError as error:
        return _rejection(requested, error)


async def _search(
    partition: Partition, request: ListOffsetsRequest, context: RequestContext, requested: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    log = partition.log
    try:
        end = _readable_end(partition, request)
        if requested.timestamp == MAX_TIMESTAMP:
            found = await context.services.workers.run(log.find_max_timestamp)
        else:
            found = await context.services.workers.run(log.find_by_timestamp, requested.timestamp)
        if found is not None and found.offset < end:
            return _answer(requested, found)
        if request.replica_id == CONSUMER:
            _require_known_end(partition, context)
    except KafkaError as error:
        return _rejection(requested, error)
    return _answer(requested, NOTHING)


def _look_up(partition: Partition, request: ListOffsetsRequest, context: RequestContext, timestamp: int) -> Found:
    """The offset of a special timestamp."""
    log = partition.log
    if timestamp == LATEST:
        if request.replica_id == CONSUMER:
            _require_known_end(partition, context)
        return NO_TIMESTAMP, _readable_end(partition, request), partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return NO_TIMESTAMP, log.log_start_offset, log.leader_epochs.epoch_at(log.log_start_offset)
    return NOTHING  # no tiered storage


def _readable_end(partition: Partition, request: ListOffsetsRequest) -> int:
    return readable_end(partition.log, request.isolation_level, is_follower=request.replica_id != CONSUMER)


def _answer(requested: ListOffsetsPartition, found: Found) -> ListOffsetsPartitionResponse:
    timestamp, offset, epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=requested.partition_index,
        error_code=NO_ERROR,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _rejection(requested: ListOffsetsPartition, error: KafkaError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=requested.partition_index, error_code=error.code)


def _require_known_end(partition: Partition, context: RequestContext) -> None:
    """KIP-207: a new leader may not know the high watermark yet; consumers must not see the end go backwards."""
    if partition.log.high_watermark < partition.require_leader_for_reading().epoch_start_offset:
        is_known = context.version >= OFFSET_NOT_AVAILABLE_FROM_VERSION
        raise OffsetNotAvailable if is_known else LeaderNotAvailable

"""ListOffsets: the offset that belongs to a timestamp, or to one of the special places of a partition."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from tidelog.errors import (
    NO_ERROR,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    OffsetNotAvailable,
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

MANY_PARTITIONS = 200
"""More are looked up in slices."""

SEARCHES_AT_ONCE = 4
"""Of one request, in workers."""

CONSUMER = -1

DEBUGGING_CONSUMER = -2
"""Reads past the high watermark, and at followers too."""

NOTHING = NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH


Found = tuple[int, int, int]
"""Timestamp, offset and leader epoch of what was asked for; -1 for what there is not."""

Search = Callable[[], Coroutine[Any, Any, ListOffsetsPartitionResponse]]
Answer = ListOffsetsPartitionResponse | Search


def handle_list_offsets(
    request: ListOffsetsRequest, call: Call
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """At once where no log has to be searched: some consumers ask for both ends of a partition after every poll."""
    asked = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    if len(asked) > MANY_PARTITIONS:
        return _begin_all(request, call, asked)
    begun = [
        (name, [_begin(request, call, name, wanted, is_repeated=asked[name, index] > 1) for index, wanted in wants])
        for name, wants in _wanted(request)
    ]
    if any(callable(answer) for _, answers in begun for answer in answers):
        return _search_all(begun)
    return _response(begun)


def _wanted(request: ListOffsetsRequest) -> list[tuple[str, list[tuple[int, ListOffsetsPartition]]]]:
    """Each partition once."""
    return [
        (topic.name, list({wanted.partition_index: wanted for wanted in topic.partitions}.items()))
        for topic in request.topics
        if topic.partitions
    ]


async def _begin_all(
    request: ListOffsetsRequest, call: Call, asked: Mapping[tuple[str, int], int]
) -> ListOffsetsResponse:
    begun: list[tuple[str, list[Answer]]] = []
    for name, wants in _wanted(request):

        def begin(want: tuple[int, ListOffsetsPartition], name: str = name) -> Answer:
            return _begin(request, call, name, want[1], is_repeated=asked[name, want[0]] > 1)

        begun.append((name, await call.services.turns.each(wants, begin)))
    return await _search_all(begun)


async def _search_all(begun: Sequence[tuple[str, list[Answer]]]) -> ListOffsetsResponse:
    return _response([(name, await _finish_all(answers)) for name, answers in begun])


async def _finish_all(answers: Sequence[Answer]) -> list[ListOffsetsPartitionResponse]:
    """A few at a time: workers have other work, too."""
    found = [None if callable(answer) else answer for answer in answers]
    searches = [(index, answer) for index, answer in enumerate(answers) if callable(answer)]
    for first in range(0, len(searches), SEARCHES_AT_ONCE):
        some = searches[first : first + SEARCHES_AT_ONCE]
        for (index, _), answer in zip(some, await asyncio.gather(*(search() for _, search in some)), strict=True):
            found[index] = answer
    return [answer for answer in found if answer is not None]


def _response(answers: Sequence[tuple[str, list[Any]]]) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=name, partitions=partitions) for name, partitions in answers]
    )


# -- one partition


def _begin(
    request: ListOffsetsRequest, call: Call, topic: str, wanted: ListOffsetsPartition, *, is_repeated: bool
) -> Answer:
    try:
        if request.isolation_level not in ISOLATION_LEVELS:
            raise UnknownServerError(f"isolation level {request.isolation_level} does not exist")
        if is_repeated:
            raise InvalidRequest("a partition may be named once in a request")
        if wanted.timestamp < 0 and call.version < SUPPORTED_FROM_VERSION.get(wanted.timestamp, NEVER):
            raise UnsupportedVersion
        partition = call.services.partition(topic, wanted.partition_index)
        if request.replica_id == CONSUMER:
            partition.require_leader_for_reading(wanted.current_leader_epoch)
        elif request.replica_id != DEBUGGING_CONSUMER:
            partition.require_leader(wanted.current_leader_epoch)
        if wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP:
            return partial(_search, partition, request, call, wanted)
        return _answer(wanted, _look_up(partition, request, call, wanted.timestamp))
    except KafkaError as error:
        return _refusal(wanted, error)


async def _search(
    partition: Partition, request: ListOffsetsRequest, call: Call, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    log = partition.log
    try:
        end = _readable_end(partition, request)
        if wanted.timestamp == MAX_TIMESTAMP:
            found = await call.services.workers.run(log.find_max_timestamp)
        else:
            found = await call.services.workers.run(log.find_by_timestamp, wanted.timestamp)
        if found is not None and found.offset < end:
            return _answer(wanted, found)
        if request.replica_id == CONSUMER:
            _require_known_end(partition, call)
    except KafkaError as error:
        return _refusal(wanted, error)
    return _answer(wanted, NOTHING)


def _look_up(partition: Partition, request: ListOffsetsRequest, call: Call, timestamp: int) -> Found:
    """One of the special places."""
    log = partition.log
    if timestamp == LATEST:
        if request.replica_id == CONSUMER:
            _require_known_end(partition, call)
        return NO_TIMESTAMP, _readable_end(partition, request), partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return NO_TIMESTAMP, log.log_start_offset, log.leader_epochs.epoch_at(log.log_start_offset)
    return NOTHING  # nothing is kept anywhere but here


def _readable_end(partition: Partition, request: ListOffsetsRequest) -> int:
    return readable_end(partition.log, request.isolation_level, is_follower=request.replica_id != CONSUMER)


def _answer(wanted: ListOffsetsPartition, found: Found) -> ListOffsetsPartitionResponse:
    timestamp, offset, epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=NO_ERROR,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _refusal(wanted: ListOffsetsPartition, error: KafkaError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)


def _require_known_end(partition: Partition, call: Call) -> None:
    """KIP-207: a new leader may not know yet what was committed; consumers must not see the end go backwards."""
    if partition.log.high_watermark < partition.require_leader_for_reading().epoch_start_offset:
        is_known = call.version >= OFFSET_NOT_AVAILABLE_FROM_VERSION
        raise OffsetNotAvailable if is_known else LeaderNotAvailable

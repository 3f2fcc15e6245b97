"""Lookup of the file slice for a read, by tail, indexes and batch headers. Records are never decoded."""

from bisect import bisect_right
from operator import attrgetter
from typing import Final, NamedTuple

from tidelog.runtime.disk import FileSlice
from tidelog.storage.segment import Segment
from tidelog.storage.transaction_index import AbortedTransaction

BASE_OFFSET: Final = attrgetter("base_offset")


class Tail(NamedTuple):
    """Position and end offset of the last batches of the active segment.

    Reads at the log end and at the high watermark need no index or file.
    """

    segment: Segment
    start_offset: int
    """Start offset of the first of these batches, or the log end offset if there are none."""
    ends: list[int]
    positions: list[int]


class ReadRequest(NamedTuple):
    """Parameters of a read."""

    offset: int
    max_bytes: int
    end_offset: int
    at_least_one_batch: bool
    may_block: bool


def find_slice(segments: list[Segment], tail: Tail, log_end_offset: int, request: ReadRequest) -> FileSlice | None:
    """Bytes from the batch with `offset` up to `end_offset`, within one segment and `max_bytes`; None if empty."""
    offset, max_bytes, end_offset, _, may_block = request
    if offset >= tail.start_offset:
        segment = tail.segment
        start = tail.positions[bisect_right(tail.ends, offset)]
    else:
        found = _find(segments, offset, may_block)
        if found is None:
            return None
        segment, start = found
    if segment is not tail.segment:
        end = _end_in_inactive_segment(segments, segment, end_offset, may_block)
    elif end_offset >= log_end_offset:
        end = segment.size_bytes
    elif end_offset >= tail.start_offset:
        end = tail.positions[bisect_right(tail.ends, end_offset)]
    else:
        end = _position_of(segment, end_offset, may_block)
    length = end - start
    if length > max_bytes:
        length = _limit_length(segment, start, length, request)
    return FileSlice(segment.file, start, length) if length > 0 else None


def _find(segments: list[Segment], offset: int, may_block: bool) -> tuple[Segment, int] | None:
    number = max(bisect_right(segments, offset, key=BASE_OFFSET) - 1, 0)
    for segment in segments[number:]:
        position = segment.find_position(offset, may_block=may_block)
        if position is not None:
            return segment, position
    return None


def _end_in_inactive_segment(segments: list[Segment], segment: Segment, end_offset: int, may_block: bool) -> int:
    """Position where the read ends: that of `end_offset`, or the end of the segment if `end_offset` is beyond it."""
    following = bisect_right(segments, segment.base_offset, key=BASE_OFFSET)
    if following < len(segments) and end_offset >= segments[following].base_offset:
        return segment.size_bytes
    return _position_of(segment, end_offset, may_block)


def _position_of(segment: Segment, offset: int, may_block: bool) -> int:
    position = segment.find_position(offset, may_block=may_block)
    return segment.size_bytes if position is None else position


def _limit_length(segment: Segment, start: int, length: int, request: ReadRequest) -> int:
    """Length of the read within `max_bytes`: complete batches if the index has a boundary there."""
    max_bytes, may_block = request.max_bytes, request.may_block
    boundary = segment.last_batch_start_before(start + max_bytes, may_block=may_block)
    if boundary > start:
        return boundary - start
    first = next(segment.batch_places(start, may_block=may_block), None)
    if first is None or (first.size_bytes > max_bytes and not request.at_least_one_batch):
        return 0
    return min(max(first.size_bytes, max_bytes), length)


def find_end_of_slice(segments: list[Segment], found: FileSlice, request: ReadRequest) -> int:
    """Upper bound of the slice's end offset, from the index: not much larger than the real one."""
    stop = found.position + found.length
    first = max(bisect_right(segments, request.offset, key=BASE_OFFSET) - 1, 0)
    for number in range(first, len(segments)):
        segment = segments[number]
        if segment.is_in(found.file):
            is_cut = stop < segment.size_bytes
            beyond = segment.end_offset_before(stop, may_block=request.may_block) if is_cut else None
            if beyond is None and number + 1 < len(segments):
                beyond = segments[number + 1].base_offset
            return request.end_offset if beyond is None else min(beyond, request.end_offset)
    return request.end_offset


def find_aborted(segments: list[Segment], first_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions with records in [first_offset, end_offset)."""
    number = max(bisect_right(segments, first_offset, key=BASE_OFFSET) - 1, 0)
    found = []
    for segment in segments[number:]:
        for transaction in segment.transaction_index.entries(first_offset):
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return found
    return found

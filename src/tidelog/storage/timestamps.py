"""Timestamp search: records by timestamp, through the time indexes."""

from typing import NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.protocol.record_batch import LENGTH_OVERHEAD_BYTES, read_header
from tidelog.protocol.records import first_at
from tidelog.storage.segment import BatchPlace, Segment


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def find_by_timestamp(segments: list[Segment], timestamp: int, start_offset: int) -> TimestampAndOffset | None:
    """The first record at or after `start_offset` whose timestamp is `timestamp` or later."""
    for segment in segments:
        if segment.largest_timestamp() < timestamp:
            continue
        found = _find_in_segment(segment, timestamp, start_offset)
        if found is not None:
            return found
    return None


def _find_in_segment(segment: Segment, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
    # Batches before an index entry have no later timestamps than the entry, so they are skipped.
    entry = segment.time_index.find(timestamp - 1)
    offset = segment.base_offset + entry[1] if entry is not None else segment.base_offset
    for place in segment.batch_places(segment.start_of_search(max(offset, start_offset))):
        if place.last_offset < start_offset:
            continue
        header = segment.header_at(place.position)
        if header.max_timestamp >= timestamp:
            found = _first_record(segment, place, timestamp, start_offset)
            if found is not None:
                return found
    return None


def find_max_timestamp(segments: list[Segment]) -> TimestampAndOffset | None:
    """The first record that has the largest timestamp of the log."""
    latest: Segment | None = None
    for segment in segments:
        segment.load_max_timestamp()
        if segment.max_timestamp >= 0 and (latest is None or segment.max_timestamp > latest.max_timestamp):
            latest = segment
    if latest is None:
        return None
    place = latest.find_batch(latest.offset_of_max_timestamp)
    return None if place is None else _first_record(latest, place, latest.max_timestamp, latest.base_offset)


def _first_record(segment: Segment, place: BatchPlace, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
    batch = segment.file.read(place.position, place.size_bytes)
    header = read_header(batch)
    if len(batch) < header.length + LENGTH_OVERHEAD_BYTES:
        return None
    try:
        found = first_at(batch, timestamp, start_offset)
    except CorruptMessage:
        return None  # readers skip such a batch as well
    return None if found is None else TimestampAndOffset(*found, header.leader_epoch)

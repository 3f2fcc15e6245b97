"""Log retention: segments to delete by time, by size and below the log start offset."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.config.topic import TopicSettings
from tidelog.storage.segment import Segment


class RetainedLog(NamedTuple):
    """The part of a log that retention reads."""

    settings: TopicSettings
    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int


def load_timestamps(segments: list[Segment], settings: TopicSettings, now_ms: int) -> None:
    """Load, in a worker, the timestamps that `deletable_segments` needs on the event loop."""
    if settings.retention_ms < 0 or "delete" not in settings.cleanup_policy:
        return
    for segment in segments:
        if now_ms - segment.largest_timestamp() <= settings.retention_ms:
            return


def deletable_segments(log: RetainedLog, now_ms: int) -> list[Segment]:
    """Oldest segments to delete, in order. None of them ends after the high watermark (R4)."""
    is_deleting = "delete" in log.settings.cleanup_policy
    by_time = _count_by_time(log, now_ms) if is_deleting else 0
    by_size = _count_by_size(log) if is_deleting else 0
    return log.segments[: max(by_time, by_size, _count_by_log_start(log))]


def _deletable(log: RetainedLog) -> Iterator[tuple[Segment, int]]:
    """Committed segments, each with its end offset. An empty last segment is kept."""
    segments = log.segments
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        end_offset = log.log_end_offset if is_last else segments[number + 1].base_offset
        if end_offset > log.high_watermark or (is_last and segment.size_bytes == 0):
            return
        yield segment, end_offset


def _count_by_time(log: RetainedLog, now_ms: int) -> int:
    if log.settings.retention_ms < 0:
        return 0
    count = 0
    for segment, _ in _deletable(log):
        if now_ms - segment.largest_timestamp() <= log.settings.retention_ms:
            break
        count += 1
    return count


def _count_by_size(log: RetainedLog) -> int:
    limit = log.settings.retention_bytes
    if limit < 0:
        return 0
    excess, count = sum(segment.size_bytes for segment in log.segments) - limit, 0
    for segment, _ in _deletable(log):
        if excess - segment.size_bytes < 0:
            break
        excess -= segment.size_bytes
        count += 1
    return count


def _count_by_log_start(log: RetainedLog) -> int:
    """Segments below the log start offset, without the active one."""
    count = 0
    for segment, end_offset in _deletable(log):
        if end_offset > log.log_start_offset or segment is log.segments[-1]:
            break
        count += 1
    return count

"""Segment roll: limits of the active segment by size, age, index entries and offset range."""

from tidelog.config.topic import TopicSettings
from tidelog.runtime.randomness import Randomness
from tidelog.storage.indexes import OFFSET_ENTRY, TIME_ENTRY
from tidelog.storage.segment import MAX_RELATIVE_OFFSET, NEVER, Segment


def most_offset_entries(settings: TopicSettings) -> int:
    return settings.segment_index_bytes // OFFSET_ENTRY.size


def most_time_entries(settings: TopicSettings) -> int:
    """Reserves one entry for the seal of the segment."""
    return settings.segment_index_bytes // TIME_ENTRY.size - 1


def roll_check_bytes(settings: TopicSettings) -> int:
    """Segment size up to which neither the segment nor its indexes can be full."""
    fewest_entries = max(min(most_offset_entries(settings), most_time_entries(settings)), 0)
    return min(settings.segment_bytes, fewest_entries * settings.index_interval_bytes)


def is_full(
    segment: Segment, settings: TopicSettings, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
) -> bool:
    """Whether a batch of this size, last offset and timestamp needs a new segment."""
    if segment.size_bytes == 0:
        return last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
    return (
        segment.size_bytes + size_bytes > settings.segment_bytes
        or max_timestamp > segment.roll_after_timestamp
        or now_ms > segment.roll_after_clock_ms
        or last_offset > segment.last_possible_offset
        or segment.offset_index.count >= most_offset_entries(settings)
        or segment.time_index.count >= most_time_entries(settings)
    )


def set_roll_limits(segment: Segment, settings: TopicSettings, max_timestamp: int, randomness: Randomness) -> None:
    """The age of a segment starts at the timestamp of its first batch, or at its creation without one."""
    segment.load_max_timestamp()
    first_timestamp = segment.first_timestamp() if segment.size_bytes else max_timestamp
    most_ms = _longest_segment_ms(settings) - _jitter_ms(settings, randomness)
    if first_timestamp >= 0:
        segment.roll_after_timestamp = min(first_timestamp + most_ms, NEVER)
        segment.roll_after_clock_ms = NEVER
    else:
        segment.roll_after_timestamp = NEVER
        segment.roll_after_clock_ms = min(segment.created_ms + most_ms, NEVER)


def _longest_segment_ms(settings: TopicSettings) -> int:
    """Includes max.compaction.lag.ms, because only sealed segments are compacted."""
    if "compact" in settings.cleanup_policy:
        return min(settings.segment_ms, settings.max_compaction_lag_ms)
    return settings.segment_ms


def _jitter_ms(settings: TopicSettings, randomness: Randomness) -> int:
    limit = min(settings.segment_jitter_ms, settings.segment_ms)
    return randomness.below(limit) if limit > 0 else 0

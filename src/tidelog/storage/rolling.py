"""When a segment is full: by size, by age, by its indexes, by the distance of its offsets."""

from tidelog.config.topic import TopicSettings
from tidelog.runtime.randomness import Randomness
from tidelog.storage.indexes import OFFSET_ENTRY, TIME_ENTRY
from tidelog.storage.segment import MAX_RELATIVE_OFFSET, NEVER, Segment


def most_offset_entries(settings: TopicSettings) -> int:
    return settings.segment_index_bytes // OFFSET_ENTRY.size


def most_time_entries(settings: TopicSettings) -> int:
    """One place is kept for the entry that is added when the segment is sealed."""
    return settings.segment_index_bytes // TIME_ENTRY.size - 1


def roll_check_bytes(settings: TopicSettings) -> int:
    """A segment that would stay within so many bytes is not full by size, nor can its indexes be."""
    fewest_entries = max(min(most_offset_entries(settings), most_time_entries(settings)), 0)
    return min(settings.segment_bytes, fewest_entries * settings.index_interval_bytes)


def is_full(
    segment: Segment, settings: TopicSettings, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
) -> bool:
    """Whether a batch of this size, end and timestamp must go to a new segment."""
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
    """A segment's age counts from its first batch's timestamp, or from its making if that has none."""
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
    """Only sealed segments are compacted: max.compaction.lag.ms must not wait for a segment to fill up."""
    if "compact" in settings.cleanup_policy:
        return min(settings.segment_ms, settings.max_compaction_lag_ms)
    return settings.segment_ms


def _jitter_ms(settings: TopicSettings, randomness: Randomness) -> int:
    limit = min(settings.segment_jitter_ms, settings.segment_ms)
    return randomness.below(limit) if limit > 0 else 0

"""Micro-batch planning: end offsets of a batch, and its division into tasks. Pure functions."""

# Core: no clock, no I/O, no await.

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tidelog.spark.offset_json import Offsets
from tidelog.types import TopicPartition, Uuid


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one micro-batch; None: no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_s: float = 900.0
    """After this time a batch may have fewer than `min_offsets`."""
    max_bytes: int | None = None


class OffsetRange(NamedTuple):
    """Offset range that one task reads."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: Uuid | None = None
    """None if the broker has no topic ids."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Offsets, not records: compaction and transactions leave gaps."""
        return self.end - self.start


def end_offsets(
    start: Mapping[TopicPartition, int],
    available: Mapping[TopicPartition, int],
    limits: Limits,
    triggered_ago_s: float,
    record_bytes: Mapping[TopicPartition, float] | None = None,
) -> Offsets:
    """End of the next micro-batch in every partition of `start`; `start` itself if the batch should wait.

    `triggered_ago_s`: time since the last batch with records; infinite before the first. `record_bytes`: approximate
    size of records by partition, for `limits.max_bytes`.
    """
    sizes = {key: size for key, begin in start.items() if (size := available.get(key, begin) - begin) > 0}
    if _should_wait(sum(sizes.values()), limits, triggered_ago_s):
        return dict(start)
    shares = divide(sizes, _most_offsets(sizes, limits, record_bytes or {}))
    return {key: begin + shares.get(key, 0) for key, begin in start.items()}


def divide(sizes: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """One for each partition, so that none starves, and the rest in proportion to the backlog.

    The sum is the limit or the total, whichever is less; more only if the limit is below the number of partitions.
    """
    total, count = sum(sizes.values()), len(sizes)
    if limit is None or total <= max(limit, count):
        return dict(sizes)
    to_divide, rest = max(limit, count) - count, total - count
    shares = {key: 1 + to_divide * (size - 1) // rest for key, size in sizes.items()}
    left_over = to_divide + count - sum(shares.values())
    by_remainder = sorted(sizes, key=lambda key: (-(to_divide * (sizes[key] - 1) % rest), key))
    for key in by_remainder[:left_over]:
        shares[key] += 1
    return shares


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], topic_ids: Mapping[str, Uuid]
) -> list[OffsetRange]:
    """One range for every partition in both with offsets in between."""
    return [
        OffsetRange(*key, start[key], end[key], topic_ids.get(key.topic))
        for key in sorted(start.keys() & end.keys())
        if start[key] < end[key]
    ]


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records_per_partition: int | None = None
) -> list[OffsetRange]:
    """Pieces of the ranges: none above `max_records`, and at least `min_partitions` if there are enough offsets.

    The largest pieces are cut first; pieces of one range differ by at most one offset.
    """
    whole = sorted(found for found in ranges if found.size > 0)
    counts = [-(-found.size // max_records_per_partition) if max_records_per_partition else 1 for found in whole]
    _cut_further(whole, counts, (min_partitions or 0) - sum(counts))
    return [piece for found, count in zip(whole, counts, strict=True) for piece in _pieces(found, count)]


def _cut_further(whole: list[OffsetRange], counts: list[int], missing: int) -> None:
    by_piece_size = [
        (-found.size / count, index) for index, (found, count) in enumerate(zip(whole, counts, strict=True))
    ]
    heapq.heapify(by_piece_size)
    for _ in range(missing):
        if not by_piece_size or by_piece_size[0][0] >= -1:
            return
        index = by_piece_size[0][1]
        counts[index] += 1
        heapq.heapreplace(by_piece_size, (-whole[index].size / counts[index], index))


def _pieces(found: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [found.start + found.size * number // count for number in range(count + 1)]
    return [found._replace(start=start, end=end) for start, end in pairwise(bounds)]


def _should_wait(total: int, limits: Limits, triggered_ago_s: float) -> bool:
    too_few = limits.min_offsets is not None and total < limits.min_offsets
    return too_few and triggered_ago_s < limits.max_trigger_delay_s


def _most_offsets(
    sizes: Mapping[TopicPartition, int], limits: Limits, record_bytes: Mapping[TopicPartition, float]
) -> int | None:
    by_bytes = None
    if limits.max_bytes is not None:
        by_bytes = _offsets_in(limits.max_bytes, sizes, record_bytes)
    found = [limit for limit in (limits.max_offsets, by_bytes) if limit is not None]
    return min(found, default=None)


def _offsets_in(
    max_bytes: int, sizes: Mapping[TopicPartition, int], record_bytes: Mapping[TopicPartition, float]
) -> int | None:
    """Shares are in proportion to backlogs, and so is the mix of record sizes. None if no size is known."""
    known = {key: size for key, size in sizes.items() if record_bytes.get(key, 0) > 0}
    if not known:
        return None
    average_bytes = sum(size * record_bytes[key] for key, size in known.items()) / sum(known.values())
    return max(1, int(max_bytes / average_bytes))

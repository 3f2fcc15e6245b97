"""Progress of a move: bytes copied, rate and time left, from the sizes of the replicas."""

# Core: no clock, no I/O, no await.

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tidelog.terminal.plurals import plural
from tidelog.terminal.quantities import duration_text, size_text
from tidelog.types import BrokerId, TopicPartition, ids_text

RATE_WINDOW_S = 10.0
BAR_WIDTH = 20


class Copy(NamedTuple):
    """New replicas of one partition."""

    topic_partition: TopicPartition
    sources: tuple[BrokerId, ...]
    """The replicas before the move."""
    added: tuple[BrokerId, ...]
    removed: tuple[BrokerId, ...]
    size_bytes: int

    def is_made(self, replicas: Collection[BrokerId] | None) -> bool:
        """Whether these replicas are those after the move; None if the partition is gone."""
        return replicas is not None and set(self.added) <= set(replicas) and not set(self.removed) & set(replicas)


class CopyState(NamedTuple):
    copy: Copy
    copied_bytes: int
    is_done: bool

    @property
    def total_bytes(self) -> int:
        return self.copy.size_bytes * len(self.copy.added)


class Progress:
    def __init__(self, copies: Sequence[Copy]) -> None:
        self.states = [CopyState(each, 0, is_done=False) for each in copies]
        self._samples: deque[tuple[float, int]] = deque()

    def update(
        self,
        now_s: float,
        ongoing: Collection[TopicPartition],
        sizes: Mapping[tuple[TopicPartition, BrokerId], int],
    ) -> None:
        """A partition that is not being reassigned any more counts as done until `settle` looks at its replicas."""
        self.states = [_state(each.copy, ongoing, sizes) for each in self.states]
        self._samples.append((now_s, self.copied_bytes))
        while now_s - self._samples[0][0] > RATE_WINDOW_S and len(self._samples) > 2:
            self._samples.popleft()

    def settle(self, replicas: Mapping[TopicPartition, Collection[BrokerId]]) -> list[str]:
        """Compare with the replicas at the end. Returns what was not moved, because it was cancelled or deleted."""
        left = [each.copy for each in self.states if not each.copy.is_made(replicas.get(each.copy.topic_partition))]
        self.states = [CopyState(each.copy, 0, is_done=False) if each.copy in left else each for each in self.states]
        return [
            f"{each.topic_partition} ({'cancelled' if each.topic_partition in replicas else 'deleted'})"
            for each in left
        ]

    @property
    def is_done(self) -> bool:
        return all(each.is_done for each in self.states)

    @property
    def done(self) -> int:
        return sum(each.is_done for each in self.states)

    @property
    def total_bytes(self) -> int:
        return sum(each.total_bytes for each in self.states)

    @property
    def copied_bytes(self) -> int:
        return sum(each.copied_bytes for each in self.states)

    @property
    def bytes_per_s(self) -> float | None:
        """Over the last seconds; None before the second sample."""
        if len(self._samples) < 2 or self._samples[-1][0] <= self._samples[0][0]:
            return None
        (start_s, start_bytes), (end_s, end_bytes) = self._samples[0], self._samples[-1]
        return max(0.0, (end_bytes - start_bytes) / (end_s - start_s))

    @property
    def left_s(self) -> float | None:
        rate = self.bytes_per_s
        return (self.total_bytes - self.copied_bytes) / rate if rate else None

    @property
    def line(self) -> str:
        """`3 of 8 partitions done, 1.2 GB of 4.0 GB (30 %), 45.0 MB/s, 62 s left`."""
        total, copied = self.total_bytes, self.copied_bytes
        parts = [f"{self.done:,} of {plural(len(self.states), 'partition')} done"]
        if total:
            parts.append(f"{size_text(copied)} of {size_text(total)} ({100 * copied // total} %)")
        if self.bytes_per_s is not None and not self.is_done:
            parts.append(f"{size_text(self.bytes_per_s)}/s")
            parts.append("time left unknown" if self.left_s is None else f"{duration_text(self.left_s)} left")
        return ", ".join(parts)

    def lines(self) -> list[str]:
        """The line, and one with a bar for each partition under way."""
        moving = [each for each in self.states if not each.is_done]
        width = max((len(str(each.copy.topic_partition)) for each in moving), default=0)
        return [self.line, *(_bar_line(each, width) for each in moving)]

    def as_json(self) -> dict[str, object]:
        return {
            "partitions_total": len(self.states),
            "partitions_done": self.done,
            "bytes_total": self.total_bytes,
            "bytes_copied": self.copied_bytes,
            "bytes_per_second": self.bytes_per_s,
            "seconds_left": self.left_s,
            "partitions": [
                {
                    "topic": each.copy.topic_partition.topic,
                    "partition": each.copy.topic_partition.partition,
                    "adding": list(each.copy.added),
                    "removing": list(each.copy.removed),
                    "bytes_total": each.total_bytes,
                    "bytes_copied": each.copied_bytes,
                    "is_done": each.is_done,
                }
                for each in self.states
            ],
        }


def _state(
    copy: Copy, ongoing: Collection[TopicPartition], sizes: Mapping[tuple[TopicPartition, BrokerId], int]
) -> CopyState:
    if copy.topic_partition not in ongoing:
        return CopyState(copy, copy.size_bytes * len(copy.added), is_done=True)
    # The partition grows while it is copied.
    largest = max((sizes.get((copy.topic_partition, each), 0) for each in copy.sources), default=0)
    copy = copy._replace(size_bytes=max(copy.size_bytes, largest))
    copied = sum(min(sizes.get((copy.topic_partition, each), 0), copy.size_bytes) for each in copy.added)
    return CopyState(copy, copied, is_done=False)


def _bar_line(state: CopyState, width: int) -> str:
    part = state.copied_bytes / state.total_bytes if state.total_bytes else 0.0
    bar = "#" * round(part * BAR_WIDTH)
    target = f"to {ids_text(state.copy.added)}" if state.copy.added else f"leaves {ids_text(state.copy.removed)}"
    copied = f"{size_text(state.copied_bytes)} of {size_text(state.total_bytes)}"
    return f"  {state.copy.topic_partition!s:{width}}  [{bar:{BAR_WIDTH}}]  {target}, {copied}"

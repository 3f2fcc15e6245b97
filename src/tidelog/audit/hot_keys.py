"""Most frequent keys in bounded memory: mergeable Misra-Gries counters.

A count is too low by at most `error`; a key that occurs more often than `error` is among the counters.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CAPACITY = 1024


@dataclass
class KeyCounts:
    capacity: int = CAPACITY
    counts: dict[bytes, int] = field(default_factory=dict)
    error: int = 0
    record_count: int = 0
    null_count: int = 0
    payload_bytes: int = 0
    """Bytes of keys and values, before compression."""

    def add(self, found: Mapping[bytes, int]) -> None:
        """Add exact counts of keys."""
        counts = self.counts
        for key, count in found.items():
            counts[key] = counts.get(key, 0) + count
        self._shrink()

    def merge(self, other: "KeyCounts") -> None:
        self.error += other.error
        self.record_count += other.record_count
        self.null_count += other.null_count
        self.payload_bytes += other.payload_bytes
        self.add(other.counts)

    def top(self, number: int) -> list[tuple[bytes, int]]:
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:number]

    def _shrink(self) -> None:
        """Subtract the largest count that does not fit from every counter: that many different keys cancel out."""
        if len(self.counts) <= self.capacity:
            return
        cut = sorted(self.counts.values(), reverse=True)[self.capacity]
        self.counts = {key: count - cut for key, count in self.counts.items() if count > cut}
        self.error += cut


def merged(parts: Iterable[KeyCounts]) -> KeyCounts:
    whole = KeyCounts()
    for part in parts:
        whole.merge(part)
    return whole

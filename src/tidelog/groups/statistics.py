"""Group metrics: counters of events and numbers of groups by state."""

# Core: no clock, no I/O, no await.

from collections import Counter
from typing import NamedTuple


class GroupCounts:
    """Counters since the broker started, over all partitions that it coordinated."""

    __slots__ = ("commits", "completed_rebalances", "consumer_rebalances", "deletions", "expirations", "member_bytes")

    def __init__(self) -> None:
        self.commits = 0
        self.deletions = 0
        self.expirations = 0
        self.completed_rebalances = 0
        """Generations of classic groups whose assignment was committed."""
        self.consumer_rebalances = 0
        """Epochs of consumer groups."""
        self.member_bytes = 0
        """Bytes that the members of classic groups hold now."""


class GroupStatistics(NamedTuple):
    groups: Counter[tuple[str, str]]
    """Number of groups by kind and state name."""
    offsets: int

    def count(self, kind: str, *states: str) -> int:
        return sum(
            number for (of, state), number in self.groups.items() if of == kind and (not states or state in states)
        )

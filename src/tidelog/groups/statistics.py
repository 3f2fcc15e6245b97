"""What metrics tell of groups."""

# Core: no clock, no I/O, no await.

from collections import Counter
from typing import NamedTuple


class GroupCounts:
    """What has happened since the broker started, in all partitions that it has coordinated since."""

    __slots__ = ("commits", "completed_rebalances", "consumer_rebalances", "deletions", "expirations")

    def __init__(self) -> None:
        self.commits = 0
        self.deletions = 0
        self.expirations = 0
        self.completed_rebalances = 0
        """Generations of classic groups that got their assignments."""
        self.consumer_rebalances = 0
        """Epochs of consumer groups."""


class GroupStatistics(NamedTuple):
    groups: Counter[tuple[str, str]]
    """How many there are, by their kind and the name of their state."""
    offsets: int

    def count(self, kind: str, *states: str) -> int:
        return sum(
            number for (of, state), number in self.groups.items() if of == kind and (not states or state in states)
        )

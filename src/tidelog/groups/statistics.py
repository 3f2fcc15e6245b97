"""Group metrics: counters of events, memory of members, and numbers of groups by state."""

# Core: no clock, no I/O, no await.

from collections import Counter
from typing import NamedTuple

from tidelog.errors import CoordinatorNotAvailable

MAX_MEMBER_BYTES = 100 * 1024 * 1024
"""Bytes that the members of all groups of a broker may hold. Beyond it, members have to try again."""


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
        """Bytes that the members of all groups hold now."""

    def check_member_bytes(self, added_bytes: int) -> None:
        """Raises CoordinatorNotAvailable, upon which clients retry."""
        if added_bytes > 0 and self.member_bytes + added_bytes > MAX_MEMBER_BYTES:
            raise CoordinatorNotAvailable(f"the members of all groups hold {self.member_bytes} bytes")


class GroupStatistics(NamedTuple):
    groups: Counter[tuple[str, str]]
    """Number of groups by kind and state name."""
    offsets: int

    def count(self, kind: str, *states: str) -> int:
        return sum(
            number for (of, state), number in self.groups.items() if of == kind and (not states or state in states)
        )

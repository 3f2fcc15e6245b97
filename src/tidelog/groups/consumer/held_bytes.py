"""Memory that the members of consumer groups hold: subscriptions, assignments and what expressions match."""

# Core: no clock, no I/O, no await.

from tidelog.groups.consumer.members import Holdings, Member
from tidelog.groups.consumer.records import ResolvedRegex
from tidelog.groups.statistics import GroupCounts

MEMBER_BYTES = 1_000
"""Of a member with a short subscription, in all tables of its group."""
NAME_BYTES = 200
"""Of the name of a topic in a subscription, besides its characters."""
PARTITION_BYTES = 250
"""Of an assigned partition, in all tables of its group."""


class HeldBytes:
    """Those of one group, which are part of those of all groups of the broker."""

    def __init__(self, counts: GroupCounts | None = None) -> None:
        self._counts = counts or GroupCounts()
        self.total = 0

    def add(self, count: int) -> None:
        self.total += count
        self._counts.member_bytes += count

    def release(self) -> None:
        """The group is gone, or another broker coordinates it."""
        self._counts.member_bytes -= self.total
        self._counts = GroupCounts()


def bytes_of_member(member: Member) -> int:
    """Without the names of topics, which members with equal subscriptions share."""
    held_bytes = MEMBER_BYTES + len(member.subscribed_regex)
    held_bytes += len(member.member_id) + len(member.client_id) + len(member.client_host)
    held_bytes += len(member.instance_id or "") + len(member.rack_id or "")
    held_bytes += PARTITION_BYTES * (_partitions(member.assigned) + _partitions(member.revoking))
    if member.classic is not None:
        held_bytes += sum(len(name) + len(metadata) for name, metadata in member.classic.protocols)
    return held_bytes


def _partitions(holdings: Holdings) -> int:
    return sum(map(len, holdings.values()))


def bytes_of_names(names: frozenset[str]) -> int:
    return NAME_BYTES * len(names) + sum(map(len, names))


def bytes_of_regex(expression: str, resolved: ResolvedRegex) -> int:
    return len(expression) + bytes_of_names(resolved.topics)

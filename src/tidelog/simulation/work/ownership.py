"""Judges of consumer groups: who owns a partition when, how far the group has committed, and what was passed over."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidelog.types import TopicPartition

Partitions = frozenset[TopicPartition]
NOTHING: Partitions = frozenset()


@dataclass(slots=True)
class _Member:
    owned: Partitions = NOTHING
    heard_at: float = -math.inf
    """When the last heartbeat was sent that its coordinator accepted."""
    revoked_at: dict[TopicPartition, float] = field(default_factory=dict)
    """When the last accepted heartbeat was sent before the group asked for the partition."""


class Ownership:
    """A partition has one owner at a time.

    A coordinator gives a partition to somebody else when its owner has let go of it; without that only when the owner
    was silent for its session timeout, or has not let go of all that it was asked for within the rebalance timeout:
    then it is no member any more, and everything that it has is free. Both count from a moment at or after the sending
    of a heartbeat that was accepted: earlier nobody else may own it.
    """

    def __init__(self, *, session_timeout_s: float, rebalance_timeout_s: float) -> None:
        self._session_timeout_s = session_timeout_s
        self._rebalance_timeout_s = rebalance_timeout_s
        self._members: dict[str, _Member] = defaultdict(_Member)
        self.violations: list[str] = []

    def on_heartbeat(self, member_id: str, sent_at: float, wanted: Partitions) -> None:
        """It was accepted, and the answer leaves the member with these partitions."""
        member = self._members[member_id]
        for each in member.owned - wanted:
            member.revoked_at.setdefault(each, sent_at)
        for each in wanted:
            member.revoked_at.pop(each, None)
        member.heard_at = sent_at

    def on_rebalance(self, member_id: str) -> None:
        """The member learns that all is to be given up: since when, it does not know."""
        member = self._members[member_id]
        for each in member.owned:
            member.revoked_at.setdefault(each, member.heard_at)

    def on_owned(self, member_id: str, partitions: Partitions, now: float, *, stopped_at: float | None = None) -> None:
        """The member reads these from now on, and no others.

        `stopped_at`: its process was stopped then, and no heartbeat that it sent since was accepted. If that took
        longer than its session it acts on an old answer: it does not know that its coordinator gave them to somebody
        else. It learns it from its next heartbeat: nobody is accused.
        """
        mine = self._members[member_id]
        if stopped_at is not None and now >= min(mine.heard_at, stopped_at) + self._session_timeout_s:
            mine.owned = partitions
            return
        for other_id, other in self._members.items():
            if other_id == member_id:
                continue
            for each in sorted((partitions - mine.owned) & other.owned):
                until = self._member_until(other)
                if now < until:
                    self.violations.append(
                        f"two-owners {each} belongs to {member_id} since {now:.3f} s,"
                        f" and to {other_id} until {until:.3f} s at least"
                    )
        mine.owned = partitions
        mine.revoked_at = {each: at for each, at in mine.revoked_at.items() if each in partitions}

    def _member_until(self, member: _Member) -> float:
        asked_at = min(member.revoked_at.values(), default=math.inf)
        return min(member.heard_at + self._session_timeout_s, asked_at + self._rebalance_timeout_s)

    def on_gone(self, member_id: str) -> None:
        """It left, or its process is dead."""
        self._members.pop(member_id, None)


class Progress:
    """What members have processed, and what the group has committed: at least once, and never back."""

    def __init__(self) -> None:
        self._processed: dict[TopicPartition, set[int]] = defaultdict(set)
        self.committed: dict[TopicPartition, int] = {}
        self.violations: list[str] = []

    def on_processed(self, topic_partition: TopicPartition, offset: int) -> None:
        self._processed[topic_partition].add(offset)

    def on_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """As somebody asked for them, one answer after the other."""
        for key, known in self.committed.items():
            if offsets.get(key, -1) < known:
                self.violations.append(f"G2 {key} was committed up to {known}, and now to {offsets.get(key)}")
        self.committed |= offsets

    def skipped(self, acknowledged: Mapping[TopicPartition, Iterable[int]]) -> Iterator[str]:
        """Records below what is committed that no member was ever given."""
        for key, offsets in acknowledged.items():
            for offset in offsets:
                if 0 <= offset < self.committed.get(key, 0) and offset not in self._processed[key]:
                    yield f"group-skip {key}@{offset} is committed, and no member was given it"

"""Checkers of consumer groups: partition ownership over time, committed offsets, skipped records."""

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
    wanted: Partitions = NOTHING
    """The last assignment. The member may not have acted on it yet."""
    heard_at: float = -math.inf
    """Sending time of the last accepted heartbeat."""
    revoked_at: dict[TopicPartition, float] = field(default_factory=dict)
    """Sending time of the last accepted heartbeat before the partition had to be revoked."""
    released_at: dict[TopicPartition, float] = field(default_factory=dict)
    """When it stopped reading such a partition. The coordinator learns of it from a later heartbeat."""

    def forget_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        for each in list(partitions):
            self.revoked_at.pop(each, None)
            self.released_at.pop(each, None)


class Ownership:
    """A partition has one owner at a time.

    A coordinator assigns a partition to another member when its owner has revoked it. Otherwise it waits until the
    owner's session expires, or until the owner has not revoked everything within the rebalance timeout: then the owner
    is removed and all its partitions are free. Both timeouts start at or after the sending of an accepted heartbeat: no
    other member may own the partition earlier.
    """

    def __init__(self, *, session_timeout_s: float, rebalance_timeout_s: float) -> None:
        self._session_timeout_s = session_timeout_s
        self._rebalance_timeout_s = rebalance_timeout_s
        self._members: dict[str, _Member] = defaultdict(_Member)
        self.violations: list[str] = []

    def on_heartbeat(self, member_id: str, sent_at: float, wanted: Partitions) -> None:
        """An accepted heartbeat; `wanted`: partitions that the member keeps."""
        member = self._members[member_id]
        for each in (member.owned | member.wanted) - wanted:
            member.revoked_at.setdefault(each, sent_at)
        confirmed = [each for each, released_at in member.released_at.items() if released_at <= sent_at]
        member.forget_revocation([*wanted, *confirmed])
        member.wanted = wanted
        member.heard_at = sent_at

    def on_rebalance(self, member_id: str) -> None:
        """The member learns that it has to revoke all partitions, since an unknown time."""
        member = self._members[member_id]
        for each in member.owned:
            member.revoked_at.setdefault(each, member.heard_at)

    def on_owned(self, member_id: str, partitions: Partitions, now: float, *, stopped_at: float | None = None) -> None:
        """The member reads exactly these partitions from now on.

        `stopped_at`: time at which its process was stopped, if no later heartbeat was accepted. If that was longer than
        its session timeout, the member acts on an old response and does not know that its partitions were reassigned.
        It learns that from its next heartbeat: this is no violation.
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
        for each in mine.revoked_at.keys() - partitions:
            mine.released_at.setdefault(each, now)

    def _member_until(self, member: _Member) -> float:
        asked_at = min(member.revoked_at.values(), default=math.inf)
        return min(member.heard_at + self._session_timeout_s, asked_at + self._rebalance_timeout_s)

    def on_gone(self, member_id: str) -> None:
        """The member left, or its process is dead."""
        self._members.pop(member_id, None)


class Progress:
    """Processed records and committed offsets: at least once, and offsets never decrease."""

    def __init__(self) -> None:
        self._processed: dict[TopicPartition, set[int]] = defaultdict(set)
        self.committed: dict[TopicPartition, int] = {}
        self.violations: list[str] = []

    def on_processed(self, topic_partition: TopicPartition, offset: int) -> None:
        self._processed[topic_partition].add(offset)

    def on_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record the committed offsets of successive responses."""
        for key, previous in self.committed.items():
            if offsets.get(key, -1) < previous:
                self.violations.append(f"G2 {key} was committed up to {previous}, and now to {offsets.get(key)}")
        self.committed |= offsets

    def skipped(self, acknowledged: Mapping[TopicPartition, Iterable[int]]) -> Iterator[str]:
        """Records below the committed offset that no member processed."""
        for key, offsets in acknowledged.items():
            for offset in offsets:
                if 0 <= offset < self.committed.get(key, 0) and offset not in self._processed[key]:
                    yield f"group-skip {key}@{offset} is committed, and no member was given it"

"""Members of a classic group: static members, the leader, and the protocols that all members support."""

# Core: no clock, no I/O, no await.

from collections import Counter
from collections.abc import Iterator, Mapping, ValuesView
from typing import NamedTuple

from tidelog.groups.classic.member import NO_ASSIGNMENT, ClassicMember, topics_of
from tidelog.groups.statistics import GroupCounts
from tidelog.protocol.messages.join_group import JoinGroupRequest


class WrittenAssignments(NamedTuple):
    value: bytes
    """The record that has them."""
    by_member_id: Mapping[str, bytes]


class ClassicMembers(Mapping[str, ClassicMember]):
    """Members by id, in order of arrival: the first is the leader until it loses that role."""

    def __init__(self, counts: GroupCounts | None = None) -> None:
        """`counts` has the bytes of all groups of the broker."""
        self._counts = counts or GroupCounts()
        self.held_bytes = 0
        self.assigned_bytes = 0
        self._members: dict[str, ClassicMember] = {}
        self.leader_id: str | None = None
        self.static_ids: dict[str, str] = {}
        """Member ids by `group.instance.id`."""
        self.pending_ids: set[str] = set()
        """Member ids that were handed out and have not joined yet (KIP-394)."""
        self._protocol_counts: Counter[str] = Counter()
        """Number of members that support each protocol."""
        self.written: WrittenAssignments | None = None
        """Of the last record, until it is replayed: its thousands of members need not be decoded again."""

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._members[member_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def values(self) -> ValuesView[ClassicMember]:
        """As of `Mapping`, which would look each member up: groups may have thousands."""
        return self._members.values()

    # ---- changes

    def add(self, member: ClassicMember) -> None:
        self.pending_ids.discard(member.member_id)
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._count(member, 1)

    def remove(self, member: ClassicMember) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._members), None)
        self._count(member, -1)

    def update(self, member: ClassicMember, request: JoinGroupRequest) -> None:
        self._count(member, -1)
        member.update_from(request)
        self._count(member, 1)

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """Replace the id of a static member, which keeps its position."""
        self._members = {
            (new.member_id if member is old else member_id): (new if member is old else member)
            for member_id, member in self._members.items()
        }
        assert new.instance_id is not None
        self.static_ids[new.instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        self._count(old, -1)
        self._count(new, 1)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Assignments by member id. The others get none."""
        assigned_bytes = 0
        for member in self._members.values():
            member.assignment = assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
            assigned_bytes += len(assignment)
        self._counts.member_bytes += assigned_bytes - self.assigned_bytes
        self.assigned_bytes = assigned_bytes

    def elect_leader(self) -> bool:
        """Keep the leader if it has joined, else elect a member that has. False if no member has joined."""
        leader = self._members.get(self.leader_id or "")
        if leader is not None and leader.join_reply is not None:
            return True
        joined = next((member.member_id for member in self._members.values() if member.join_reply is not None), None)
        if joined is None:
            return False
        self.leader_id = joined
        return True

    # ---- queries

    def id_of_static(self, instance_id: str | None) -> str | None:
        """Current member id of a static member. The empty instance id is valid."""
        return None if instance_id is None else self.static_ids.get(instance_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Maximum of the members' rebalance timeouts."""
        return max((0, *(member.rebalance_timeout_ms for member in self._members.values())))

    def all_support_one_of(self, names: frozenset[str]) -> bool:
        """True if every member supports the same one of these protocols."""
        return any(self._protocol_counts[name] == len(self._members) for name in names)

    def select_protocol(self) -> str:
        """Of the protocols that all members support, the one preferred by most members."""
        candidates = frozenset(name for name, count in self._protocol_counts.items() if count == len(self._members))
        if len(candidates) == 1:
            return next(iter(candidates))
        votes = Counter(member.vote(candidates) for member in self._members.values())
        return votes.most_common(1)[0][0]

    def subscribed_topics(self, protocol_name: str | None) -> frozenset[str] | None:
        """None if the members' metadata is missing or cannot be parsed."""
        return topics_of(member.metadata(protocol_name) for member in self._members.values())

    def release(self) -> None:
        """The group is gone: its bytes no longer count on this broker."""
        self._counts.member_bytes -= self.held_bytes + self.assigned_bytes
        self._counts = GroupCounts()

    def _count(self, member: ClassicMember, step: int) -> None:
        held_bytes, assigned_bytes = member.held_bytes, len(member.assignment)
        self.held_bytes += step * held_bytes
        self.assigned_bytes += step * assigned_bytes
        self._counts.member_bytes += step * (held_bytes + assigned_bytes)
        for name in {name for name, _ in member.protocols}:
            self._protocol_counts[name] += step
            if not self._protocol_counts[name]:
                del self._protocol_counts[name]

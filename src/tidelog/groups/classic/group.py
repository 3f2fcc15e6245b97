"""A classic group: its members, who of them waits for what, and what every group can be asked.

Only what stands in the group's last record is durable: a generation with the assignments of its members. All else is
lost with the coordinator, as in Kafka; members notice and join again.
"""

import logging
from collections import Counter
from typing import NamedTuple, TypeAlias

from tidelog.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from tidelog.groups.classic.member import CONSUMER_PROTOCOL_TYPE, NO_ASSIGNMENT, ClassicMember, topics_of
from tidelog.groups.classic.records import NO_TIMESTAMP, group_key, restored_member
from tidelog.groups.classic.states import TRANSITIONS, GroupState
from tidelog.groups.group import Membership
from tidelog.protocol.internal.offset_records import GroupMetadataValue
from tidelog.protocol.messages.describe_groups import DescribedGroup
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.replicated.machine import Effects, Reply
from tidelog.state_machine import History

logger = logging.getLogger(__name__)

OWNER = "classic"
SESSION, JOIN, SYNC = "session", "join", "sync"

TimerKey: TypeAlias = tuple[str, ...]


def session_key(group_id: str, member_id: str) -> TimerKey:
    """A member, or one that was only given its id yet, may have gone silent."""
    return (OWNER, SESSION, group_id, member_id)


def join_key(group_id: str) -> TimerKey:
    """Members had their time to join."""
    return (OWNER, JOIN, group_id)


def sync_key(group_id: str) -> TimerKey:
    """Members of a new generation had their time to ask for their assignments."""
    return (OWNER, SYNC, group_id)


class InitialRebalance(NamedTuple):
    """The first members of an empty group have joined: others are given time to join the same generation."""

    delay_ms: int
    remaining_ms: int
    """How much longer that may take when this delay is over."""


class ClassicGroup:
    """Members are kept in the order in which they came: the first is leader unless it has to give that up."""

    kind = "classic"

    def __init__(self, group_id: str, now_ms: int | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.history = History()
        self.state_timestamp_ms = now_ms
        """Since when it is in this state. Unknown for groups that old brokers wrote."""
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by `group.instance.id`."""
        self.pending_members: set[str] = set()
        """Who was given a member id and has not joined with it yet (KIP-394)."""
        self.pending_syncs: set[str] = set()
        """Whose SyncGroup in this generation is still to come."""
        self.subscribed_topics: frozenset[str] | None = None
        """None if members do not tell, or in no way that we understand."""
        self.initial_rebalance: InitialRebalance | None = None
        self.has_new_member = False
        """Somebody has joined since the initial rebalance began or was last prolonged."""
        self._waiting_join_count = 0
        self._protocol_counts: Counter[str] = Counter()
        """How many members support each protocol."""

    @classmethod
    def restored(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        timestamp_ms = value.current_state_timestamp
        group = cls(group_id, None if timestamp_ms == NO_TIMESTAMP else timestamp_ms)
        group.generation = value.generation
        group.protocol_type = value.protocol_type
        group.protocol_name = value.protocol
        for stored in value.members:
            group.add(restored_member(stored, value.protocol))
        if group.members:
            group.state = GroupState.STABLE
        if value.leader in group.members:
            group.leader_id = value.leader
        group._learn_topics()
        return group

    def on_stored(self, value: GroupMetadataValue) -> None:
        """A record of this group was appended just now."""
        for stored in value.members:
            self.members[stored.member_id].assignment = stored.assignment
        if value.members and self.state is GroupState.COMPLETING_REBALANCE:
            self._enter(GroupState.STABLE, "assignment stored")

    # -- state

    def __str__(self) -> str:
        return f"{self.group_id} generation={self.generation}"

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def move(self, target: GroupState, now_ms: int, reason: str) -> None:
        self._enter(target, reason)
        self.state_timestamp_ms = now_ms

    def _enter(self, target: GroupState, reason: str) -> None:
        self.state = self.history.move(TRANSITIONS, self, self.state, target, reason)

    def begin_generation(self, now_ms: int) -> None:
        """Whoever is a member now is part of it."""
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self._learn_topics()
        target = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.move(target, now_ms, f"generation {self.generation}")

    def elect_leader(self) -> bool:
        """Somebody who has joined leads; False if nobody has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_reply is not None:
            return True
        joined = next((member.member_id for member in self.members.values() if member.join_reply is not None), None)
        if joined is None:
            return False
        logger.info("group has a new leader group=%s leader=%s instead_of=%s", self.group_id, joined, self.leader_id)
        self.leader_id = joined
        return True

    # -- members

    def add(self, member: ClassicMember) -> None:
        self.pending_members.discard(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._count_protocols(member, 1)

    def remove(self, member: ClassicMember, effects: Effects, error: KafkaError | None = None) -> None:
        """Whatever it waits for fails."""
        self.fail_join(member, error or UnknownMemberId(), effects)
        self.fail_sync(member, error or UnknownMemberId(), effects)
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_syncs.discard(member.member_id)
        self._count_protocols(member, -1)
        effects.cancel_timer(session_key(self.group_id, member.member_id))

    def update(self, member: ClassicMember, request: JoinGroupRequest) -> None:
        self._count_protocols(member, -1)
        member.takes_over(request)
        self._count_protocols(member, 1)

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """The same static member under a new id, in the same place."""
        self.members = {
            (new.member_id if member is old else member_id): (new if member is old else member)
            for member_id, member in self.members.items()
        }
        assert new.instance_id is not None
        self.static_members[new.instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        self.pending_syncs.discard(old.member_id)
        self._count_protocols(old, -1)
        self._count_protocols(new, 1)

    def id_of_static(self, instance_id: str | None) -> str | None:
        """Who is this static member now. An empty name is a name."""
        return None if instance_id is None else self.static_members.get(instance_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The most patient member counts."""
        return max((0, *(member.rebalance_timeout_ms for member in self.members.values())))

    @property
    def has_all_joined(self) -> bool:
        return self._waiting_join_count == len(self.members) and not self.pending_members

    @property
    def waiting_join_count(self) -> int:
        return self._waiting_join_count

    def keep_alive(self, member: ClassicMember, effects: Effects, timeout_ms: int | None = None) -> None:
        """The member was heard of: its session lasts that long from now on."""
        deadline_ms = effects.monotonic_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        member.deadline_ms = deadline_ms
        if member.timer_due_ms is None or deadline_ms < member.timer_due_ms:
            member.timer_due_ms = deadline_ms
            effects.set_timer(session_key(self.group_id, member.member_id), deadline_ms - effects.monotonic_ms)

    # -- who waits

    def await_join(self, member: ClassicMember, reply: Reply, effects: Effects) -> None:
        self.fail_join(member, RebalanceInProgress("the member has sent another JoinGroup"), effects)
        member.join_reply = reply
        self._waiting_join_count += 1

    def take_join_reply(self, member: ClassicMember) -> Reply | None:
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            self._waiting_join_count -= 1
        return reply

    def fail_join(self, member: ClassicMember, error: KafkaError, effects: Effects) -> None:
        reply = self.take_join_reply(member)
        if reply is not None:
            effects.fail(reply, error)

    def await_sync(self, member: ClassicMember, reply: Reply, effects: Effects) -> None:
        self.fail_sync(member, RebalanceInProgress("the member has sent another SyncGroup"), effects)
        member.sync_reply = reply

    def fail_sync(self, member: ClassicMember, error: KafkaError, effects: Effects) -> None:
        reply, member.sync_reply = member.sync_reply, None
        if reply is not None:
            effects.fail(reply, error)

    def fail_all_waiting(self, error: KafkaError, effects: Effects) -> None:
        for member in self.members.values():
            self.fail_join(member, error, effects)
            self.fail_sync(member, error, effects)

    def drop_assignments(self, error: KafkaError, effects: Effects) -> None:
        """This generation will have none: whoever waits for its assignment has to join again."""
        for member in self.members.values():
            member.assignment = NO_ASSIGNMENT
            if member.sync_reply is not None:
                self.fail_sync(member, error, effects)
                self.keep_alive(member, effects)

    # -- protocols

    def _count_protocols(self, member: ClassicMember, step: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._protocol_counts[name] += step
            if not self._protocol_counts[name]:
                del self._protocol_counts[name]

    def supports(self, protocol_type: str, names: frozenset[str]) -> bool:
        """Whether a member of this kind with these protocols fits in."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and any(
            self._protocol_counts[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Of the protocols that all support, the one most members like best."""
        candidates = frozenset(name for name, count in self._protocol_counts.items() if count == len(self.members))
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def _learn_topics(self) -> None:
        if not self.is_of_consumers:
            self.subscribed_topics = None
        else:
            self.subscribed_topics = topics_of(member.metadata(self.protocol_name) for member in self.members.values())

    # -- what every group can be asked

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        if instance_id is not None:
            known_id = self.static_members.get(instance_id)
            if known_id is None:
                raise UnknownMemberId(f"group {self.group_id} has no static member {instance_id}")
            if known_id != member_id:
                raise FencedInstanceId(f"{known_id} has taken {instance_id} over from {member_id}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.group_id} has no member {member_id}")
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.group_id} has generation {self.generation}, not {generation}")

    def check_offset_commit(self, member: Membership, *, is_transactional: bool, api_version: int) -> None:
        if self.state is GroupState.DEAD:
            raise CoordinatorNotAvailable
        generation = member.generation_or_epoch
        if generation < 0 and self.is_empty:
            return
        if generation >= 0 or member.member_id or member.instance_id is not None:
            self.check_member(member.member_id, member.instance_id)
            self.check_generation(generation)
        elif not is_transactional:
            raise UnknownMemberId(f"only members of group {self.group_id} may commit offsets now")
        if not is_transactional and self.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgress

    def check_offset_fetch(self, member: Membership) -> None:
        if self.state is GroupState.DEAD:
            raise GroupIdNotFound

    def check_deletion(self) -> None:
        if self.state is GroupState.DEAD:
            raise GroupIdNotFound
        if not self.is_empty:
            raise NonEmptyGroup

    def on_offset_commit(self, member: Membership, effects: Effects) -> None:
        known = self.members.get(member.member_id)
        if known is not None:
            self.keep_alive(known, effects)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.is_of_consumers if self.subscribed_topics is None else topic in self.subscribed_topics

    def offsets_unused_since_ms(self, committed_at_ms: int) -> int | None:
        if not self.protocol_type:
            return committed_at_ms
        if self.is_empty:
            return committed_at_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        is_known_what_is_used = self.subscribed_topics is not None and self.state is GroupState.STABLE
        return committed_at_ms if is_known_what_is_used else None

    def write_tombstones(self, effects: Effects) -> None:
        effects.write(group_key(self.group_id), None)

    def described(self) -> DescribedGroup:
        protocol_name = self.protocol_name if self.state is GroupState.STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            protocol_type=self.protocol_type,
            protocol_data=protocol_name or "",
            members=[member.described(protocol_name) for member in self.members.values()],
        )

"""Classic group: members, pending JoinGroup and SyncGroup requests, and the interface of every group.

Only the group's last record is durable: a generation with the assignments of its members. Everything else is lost with
the coordinator, as in Kafka; members notice and rejoin.
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
    """Timer of a member's session, or of a pending member that has only its id."""
    return (OWNER, SESSION, group_id, member_id)


def join_key(group_id: str) -> TimerKey:
    """Timer of the join phase."""
    return (OWNER, JOIN, group_id)


def sync_key(group_id: str) -> TimerKey:
    """Timer of the sync phase: members of a new generation must request their assignments."""
    return (OWNER, SYNC, group_id)


class InitialRebalance(NamedTuple):
    """Delay after the first member joins an empty group, so that others can join the same generation."""

    delay_ms: int
    remaining_ms: int
    """Time left for further delays after this one."""


class ClassicGroup:
    """Members are kept in order of arrival: the first is the leader until it loses that role."""

    kind = "classic"

    def __init__(self, group_id: str, now_ms: int | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.history = History()
        self.state_timestamp_ms = now_ms
        """Time of the last state change. Unknown for groups written by old brokers."""
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by `group.instance.id`."""
        self.pending_members: set[str] = set()
        """Member ids that were handed out and have not joined yet (KIP-394)."""
        self.pending_syncs: set[str] = set()
        """Members that have not sent SyncGroup in this generation."""
        self.subscribed_topics: frozenset[str] | None = None
        """None if the members' metadata is missing or cannot be parsed."""
        self.initial_rebalance: InitialRebalance | None = None
        self.has_new_member = False
        """A member has joined since the initial rebalance started or was last extended."""
        self._waiting_join_count = 0
        self._protocol_counts: Counter[str] = Counter()
        """Number of members that support each protocol."""

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
        group._compute_subscribed_topics()
        return group

    def on_stored(self, value: GroupMetadataValue) -> None:
        """A record of this group was just appended."""
        for stored in value.members:
            self.members[stored.member_id].assignment = stored.assignment
        if value.members and self.state is GroupState.COMPLETING_REBALANCE:
            self._enter(GroupState.STABLE, "assignment stored")

    # ---- state

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
        """Start a generation with all current members."""
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self._compute_subscribed_topics()
        target = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.move(target, now_ms, f"generation {self.generation}")

    def elect_leader(self) -> bool:
        """Keep the leader if it has joined, else elect a member that has. False if no member has joined."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_reply is not None:
            return True
        joined = next((member.member_id for member in self.members.values() if member.join_reply is not None), None)
        if joined is None:
            return False
        logger.info("elected group leader group=%s leader=%s leader_before=%s", self.group_id, joined, self.leader_id)
        self.leader_id = joined
        return True

    # ---- members

    def add(self, member: ClassicMember) -> None:
        self.pending_members.discard(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._count_protocols(member, 1)

    def remove(self, member: ClassicMember, effects: Effects, error: KafkaError | None = None) -> None:
        """Remove the member and fail its pending requests."""
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
        member.update_from(request)
        self._count_protocols(member, 1)

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """Replace the id of a static member, which keeps its position."""
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
        """Current member id of a static member. The empty instance id is valid."""
        return None if instance_id is None else self.static_members.get(instance_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Maximum of the members' rebalance timeouts."""
        return max((0, *(member.rebalance_timeout_ms for member in self.members.values())))

    @property
    def has_all_joined(self) -> bool:
        return self._waiting_join_count == len(self.members) and not self.pending_members

    @property
    def waiting_join_count(self) -> int:
        return self._waiting_join_count

    def keep_alive(self, member: ClassicMember, effects: Effects, timeout_ms: int | None = None) -> None:
        """Restart the session timeout after a request of the member."""
        deadline_ms = effects.monotonic_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        member.deadline_ms = deadline_ms
        if member.timer_due_ms is None or deadline_ms < member.timer_due_ms:
            member.timer_due_ms = deadline_ms
            effects.set_timer(session_key(self.group_id, member.member_id), deadline_ms - effects.monotonic_ms)

    # ---- pending requests

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
        """Fail pending SyncGroup requests: this generation gets no assignment, and members have to rejoin."""
        for member in self.members.values():
            member.assignment = NO_ASSIGNMENT
            if member.sync_reply is not None:
                self.fail_sync(member, error, effects)
                self.keep_alive(member, effects)

    # ---- protocols

    def _count_protocols(self, member: ClassicMember, step: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._protocol_counts[name] += step
            if not self._protocol_counts[name]:
                del self._protocol_counts[name]

    def supports(self, protocol_type: str, names: frozenset[str]) -> bool:
        """True if a member with this protocol type and one of these protocols can join."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and any(
            self._protocol_counts[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Of the protocols that all members support, the one preferred by most members."""
        candidates = frozenset(name for name, count in self._protocol_counts.items() if count == len(self.members))
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def _compute_subscribed_topics(self) -> None:
        if not self.is_of_consumers:
            self.subscribed_topics = None
        else:
            self.subscribed_topics = topics_of(member.metadata(self.protocol_name) for member in self.members.values())

    # ---- interface of every group

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        if instance_id is not None:
            existing_id = self.static_members.get(instance_id)
            if existing_id is None:
                raise UnknownMemberId(f"group {self.group_id} has no static member {instance_id}")
            if existing_id != member_id:
                raise FencedInstanceId(f"{existing_id} has taken {instance_id} over from {member_id}")
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
        existing = self.members.get(member.member_id)
        if existing is not None:
            self.keep_alive(existing, effects)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.is_of_consumers if self.subscribed_topics is None else topic in self.subscribed_topics

    def offsets_unused_since_ms(self, committed_at_ms: int) -> int | None:
        if not self.protocol_type:
            return committed_at_ms
        if self.is_empty:
            return committed_at_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        is_subscription_known = self.subscribed_topics is not None and self.state is GroupState.STABLE
        return committed_at_ms if is_subscription_known else None

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

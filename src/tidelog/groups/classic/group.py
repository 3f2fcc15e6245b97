"""Classic group: state, generation, and the `Group` interface.

Only the group's last record is durable: a generation with the assignments of its members. Everything else is lost with
the coordinator, as in Kafka; members notice and rejoin.
"""

import logging
from typing import NamedTuple

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
from tidelog.groups.classic.member import CONSUMER_PROTOCOL_TYPE, ClassicMember
from tidelog.groups.classic.members import ClassicMembers
from tidelog.groups.classic.pending_requests import PendingRequests
from tidelog.groups.classic.records import NO_TIMESTAMP, group_key, restored_member
from tidelog.groups.classic.states import TRANSITIONS, GroupState
from tidelog.groups.classic.timers import session_key
from tidelog.groups.group import Membership
from tidelog.groups.statistics import GroupCounts
from tidelog.protocol.internal.offset_records import GroupMetadataValue
from tidelog.protocol.internal.versioned import decode_versioned
from tidelog.protocol.messages.describe_groups import DescribedGroup
from tidelog.replicated.machine import Effects
from tidelog.state_machine import History

logger = logging.getLogger(__name__)


class InitialRebalance(NamedTuple):
    """Delay after the first member joins an empty group, so that others can join the same generation."""

    delay_ms: int
    remaining_ms: int
    """Time left for further delays after this one."""


class ClassicGroup:
    kind = "classic"

    def __init__(self, group_id: str, now_ms: int | None = None, counts: GroupCounts | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.history = History()
        self.state_timestamp_ms = now_ms
        """Time of the last state change. Unknown for groups written by old brokers."""
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.members = ClassicMembers(counts)
        self.requests = PendingRequests()
        self.pending_syncs: set[str] = set()
        """Members that have not sent SyncGroup in this generation."""
        self.subscribed_topics: frozenset[str] | None = None
        """None if the members' metadata is missing or cannot be parsed."""
        self.initial_rebalance: InitialRebalance | None = None
        self.has_new_member = False
        """A member has joined since the initial rebalance started or was last extended."""

    @classmethod
    def restored(cls, group_id: str, value: GroupMetadataValue, counts: GroupCounts | None = None) -> "ClassicGroup":
        timestamp_ms = value.current_state_timestamp
        group = cls(group_id, None if timestamp_ms == NO_TIMESTAMP else timestamp_ms, counts)
        group.generation = value.generation
        group.protocol_type = value.protocol_type
        group.protocol_name = value.protocol
        for stored in value.members:
            group.members.add(restored_member(stored, value.protocol))
        if group.members:
            group.state = GroupState.STABLE
        if value.leader in group.members:
            group.members.leader_id = value.leader
        group._compute_subscribed_topics()
        return group

    def on_stored(self, value: bytes) -> None:
        """Apply a record of this group that was just appended."""
        written, self.members.written = self.members.written, None
        if written is not None and written.value is value:
            assignments = written.by_member_id
            has_members = True
        else:
            members = decode_versioned(GroupMetadataValue, value).members
            assignments = {stored.member_id: stored.assignment for stored in members}
            has_members = bool(members)
        self.members.assign(assignments)
        if has_members and self.state is GroupState.COMPLETING_REBALANCE:
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
        self.protocol_name = self.members.select_protocol() if self.members else None
        self._compute_subscribed_topics()
        target = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.move(target, now_ms, f"generation {self.generation}")

    def elect_leader(self) -> bool:
        """Keep the leader if it has joined, else elect a member that has. False if no member has joined."""
        leader_before = self.members.leader_id
        if not self.members.elect_leader():
            return False
        leader = self.members.leader_id
        if leader != leader_before:
            logger.info(
                "elected group leader group=%s leader=%s leader_before=%s", self.group_id, leader, leader_before
            )
        return True

    @property
    def is_of_consumers(self) -> bool:
        """Whether the members are consumers and not, say, Connect workers (usesConsumerGroupProtocol)."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def _compute_subscribed_topics(self) -> None:
        self.subscribed_topics = self.members.subscribed_topics(self.protocol_name) if self.is_of_consumers else None

    # ---- members

    def supports(self, protocol_type: str, names: frozenset[str]) -> bool:
        """True if a member with this protocol type and one of these protocols can join."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and self.members.all_support_one_of(names)

    @property
    def has_all_joined(self) -> bool:
        return self.requests.join_count == len(self.members) and not self.members.pending_ids

    def remove(self, member: ClassicMember, effects: Effects) -> None:
        """Remove the member and fail its pending requests."""
        self.requests.fail((member,), UnknownMemberId(), effects)
        self.members.remove(member)
        self.pending_syncs.discard(member.member_id)
        effects.cancel_timer(session_key(self.group_id, member.member_id))

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """Replace a static member that rejoined with a new member id."""
        self.members.replace(old, new)
        self.pending_syncs.discard(old.member_id)

    def keep_alive(self, member: ClassicMember, effects: Effects, timeout_ms: int | None = None) -> None:
        """Restart the session timeout after a request of the member.

        The timer is never later than the session timeout, even if the deadline is: when a generation starts, the
        deadline of all members becomes that of their sessions, and none of them needs another timer.
        """
        session_ms = member.session_timeout_ms
        if timeout_ms is None:
            timeout_ms = session_ms
        member.deadline_ms = effects.monotonic_ms + timeout_ms
        delay_ms = min(timeout_ms, session_ms)
        if member.timer_due_ms is None or effects.monotonic_ms + delay_ms < member.timer_due_ms:
            member.timer_due_ms = effects.monotonic_ms + delay_ms
            effects.set_timer(session_key(self.group_id, member.member_id), delay_ms)

    def drop_assignments(self, error: KafkaError, effects: Effects) -> None:
        """Fail pending SyncGroup requests: this generation gets no assignment, and members have to rejoin."""
        self.members.written = None
        self.members.assign({})
        self.fail_syncs(error, effects)

    def fail_syncs(self, error: KafkaError, effects: Effects) -> None:
        for member in self.members.values():
            if member.sync_reply is not None:
                self.requests.fail_sync(member, error, effects)
                self.keep_alive(member, effects)

    def fail_pending_requests(self, error: KafkaError, effects: Effects) -> None:
        self.requests.fail(self.members.values(), error, effects)

    # ---- the Group interface

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        if instance_id is not None:
            existing_id = self.members.static_ids.get(instance_id)
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

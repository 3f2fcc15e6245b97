"""Classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, with the responses of Kafka 4.3."""

import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

from tidelog.errors import (
    NO_ERROR,
    InconsistentGroupProtocol,
    InvalidGroupId,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from tidelog.groups.classic import timers
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.classic.joining import Joining
from tidelog.groups.classic.leaving import Leaving
from tidelog.groups.classic.member import NO_ASSIGNMENT, ClassicMember
from tidelog.groups.classic.rebalancing import Rebalances, listed
from tidelog.groups.classic.records import write_group
from tidelog.groups.classic.states import GroupState
from tidelog.groups.group import Caller, Group, GroupSettings, coordinator_error
from tidelog.groups.statistics import GroupCounts
from tidelog.protocol.internal.offset_records import GroupMetadataKey, GroupMetadataValue
from tidelog.protocol.internal.versioned import decode_versioned
from tidelog.protocol.messages.describe_groups import DescribedGroup
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.protocol.messages.leave_group import LeaveGroupRequest
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.replicated.machine import Effects, Reply, StateRecord
from tidelog.runtime.randomness import Randomness

logger = logging.getLogger(__name__)

NAMES_PROTOCOL_FROM = 5
"""First version of SyncGroup that requires the protocol type and name."""
MAX_COMPRESSED_TO = 4
"""A generation may have so many times the bytes that a record of the topic may have: it is compressed."""


class ClassicProtocol:
    """Handles the classic groups in `groups`, which is shared with the consumer group protocol."""

    def __init__(
        self,
        groups: MutableMapping[str, Group],
        settings: Callable[[], GroupSettings],
        randomness: Randomness,
        counts: GroupCounts | None = None,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._is_loaded = False
        self.counts = counts or GroupCounts()
        self.rebalances = Rebalances(settings, self.counts)
        self._joining = Joining(groups, settings, randomness, self.rebalances, self.counts)
        self._leaving = Leaving(self.rebalances)

    def join(self, request: JoinGroupRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        self._joining.join(request, caller, reply, effects)

    # ---- SyncGroup

    def sync(self, request: SyncGroupRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        try:
            group, member = self._check_sync(request, caller)
        except KafkaError as error:
            effects.fail(reply, error)
            return
        self.rebalances.on_synced(group, member, effects)
        group.requests.await_sync(member, reply, effects)
        if group.state is GroupState.STABLE:
            effects.is_read_of_state = True
            group.keep_alive(member, effects)
            group.requests.answer_sync(member, _synced(group, member.assignment), effects)
            effects.after_commit.append(partial(_restart_session, group, member))
        elif member.member_id == group.members.leader_id:
            self._assign(group, request, effects)

    def _check_sync(self, request: SyncGroupRequest, caller: Caller) -> tuple[ClassicGroup, ClassicMember]:
        if caller.api_version >= NAMES_PROTOCOL_FROM and (not request.protocol_type or not request.protocol_name):
            raise InconsistentGroupProtocol("the type and the name of the protocol are missing")
        group = self._find(request.group_id)
        if group.is_empty:
            raise UnknownMemberId(f"group {request.group_id} has no members")
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol_name):
            raise InconsistentGroupProtocol(f"group {group} speaks {group.protocol_type} {group.protocol_name}")
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress
        return group, member

    def _assign(self, group: ClassicGroup, request: SyncGroupRequest, effects: Effects) -> None:
        """Write the leader's assignment, then answer pending SyncGroup requests. Other members ask later."""
        assignments = {entry.member_id: entry.assignment for entry in request.assignments}
        unassigned = [member_id for member_id in group.members if member_id not in assignments]
        if unassigned:
            logger.warning("group leader assigned nothing to members group=%s members=%s", group, listed(unassigned))
        try:
            self._check_assigned_bytes(group, assignments, effects)
        except KafkaError as error:
            self._drop_assignment(group, error, effects)
            return
        write_group(group, assignments, effects)
        waiting = [member for member in group.members.values() if member.sync_reply is not None]

        def revert(error: KafkaError, instead: Effects) -> None:
            instead.timers.extend(effects.timers)
            self._drop_assignment(group, error, instead)

        for member in waiting:
            response = _synced(group, assignments.get(member.member_id, NO_ASSIGNMENT))
            group.requests.answer_sync(member, response, effects)
            group.keep_alive(member, effects)
        effects.on_rejected = revert
        effects.after_commit.append(partial(self._on_assigned, group, waiting))

    def _on_assigned(self, group: ClassicGroup, given: Sequence[ClassicMember], effects: Effects) -> None:
        """Like Kafka, restart the sessions: members could send no heartbeat while they waited for the commit."""
        present = set(group.members.values())
        for member in given:
            if member in present:
                group.keep_alive(member, effects)
        self.rebalances.on_assigned(group)

    def _check_assigned_bytes(self, group: ClassicGroup, assignments: Mapping[str, bytes], effects: Effects) -> None:
        """What compresses well would be stored whatever its size, and is held in memory."""
        assigned_bytes = sum(len(assignments.get(member_id, NO_ASSIGNMENT)) for member_id in group.members)
        record_bytes = group.members.held_bytes + assigned_bytes
        if record_bytes > MAX_COMPRESSED_TO * effects.max_record_bytes:
            raise MessageTooLarge(f"a generation of {record_bytes} bytes")
        self.counts.check_member_bytes(assigned_bytes - group.members.assigned_bytes)

    def _drop_assignment(self, group: ClassicGroup, error: KafkaError, effects: Effects) -> None:
        logger.warning("failed to store assignment group=%s error=%s", group, error.message)
        group.drop_assignments(coordinator_error(error), effects)
        self.rebalances.maybe_prepare_rebalance(group, "the assignment could not be stored", effects)

    # ---- Heartbeat

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        try:
            group = self._find(request.group_id)
            member = group.check_member(request.member_id, request.group_instance_id)
            group.check_generation(request.generation_id)
        except KafkaError as error:
            effects.fail(reply, error)
            return
        group.keep_alive(member, effects)
        is_rebalancing = group.state is GroupState.PREPARING_REBALANCE
        effects.answer(reply, HeartbeatResponse(error_code=RebalanceInProgress.code if is_rebalancing else NO_ERROR))

    # ---- LeaveGroup

    def leave(self, request: LeaveGroupRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        if not request.group_id:
            effects.fail(reply, InvalidGroupId("a group needs a name"))
            return
        group = self._groups.get(request.group_id)
        self._leaving.leave(group if isinstance(group, ClassicGroup) else None, request, caller, reply, effects)

    # ---- timers

    def on_timer(self, key: Any, effects: Effects) -> None:
        _, purpose, group_id, *rest = key
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return
        if purpose == timers.SESSION:
            self._on_session_timer(group, rest[0], effects)
        elif purpose == timers.JOIN:
            self.rebalances.on_join_timer(group, effects)
        else:
            self.rebalances.on_sync_timer(group, effects)

    def _on_session_timer(self, group: ClassicGroup, member_id: str, effects: Effects) -> None:
        if member_id in group.members.pending_ids:
            group.members.pending_ids.discard(member_id)
            logger.info("pending member did not join in time group=%s member=%s", group, member_id)
            self.rebalances.on_pending_removed(group, effects)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        member.timer_due_ms = None
        if member.has_satisfied_heartbeat:  # the answer sets the timer again
            return
        remaining_ms = member.deadline_ms - effects.monotonic_ms
        if remaining_ms > 0:
            group.keep_alive(member, effects, remaining_ms)
            return
        logger.info("member session expired group=%s member=%s", group, member_id)
        group.remove(member, effects)
        self.rebalances.on_removed(group, f"session of {member_id} expired", effects)

    # ---- records

    def replay_group_metadata(self, record: StateRecord) -> None:
        """Raises MalformedMessage."""
        group_id = decode_versioned(GroupMetadataKey, record.key).group
        group = self._groups.get(group_id)
        if record.value is None:
            if isinstance(group, ClassicGroup):
                group.state = GroupState.DEAD
                group.members.release()
                del self._groups[group_id]
        elif self._is_loaded and isinstance(group, ClassicGroup):
            group.on_stored(record.value)
        else:
            value = decode_versioned(GroupMetadataValue, record.value)
            if isinstance(group, ClassicGroup):
                group.members.release()
            self._groups[group_id] = ClassicGroup.restored(group_id, value, self.counts)

    def on_loaded(self, effects: Effects) -> None:
        self._is_loaded = True
        group_count = member_count = 0
        limit = self._settings().group_max_size
        for group in self._classic_groups():
            group_count += 1
            member_count += len(group.members)
            for member in group.members.values():
                group.keep_alive(member, effects)
            if len(group.members) > limit:
                self.rebalances.prepare_rebalance(
                    group, f"{len(group.members)} members exceed group.max.size {limit}", effects
                )
        if group_count:
            logger.info("loaded classic groups groups=%d members=%d", group_count, member_count)

    def on_unloaded(self, effects: Effects) -> None:
        for group in self._classic_groups():
            group.fail_pending_requests(NotCoordinator(), effects)
            group.move(GroupState.DEAD, effects.now_ms, "its coordinator partition was unloaded")
            group.members.release()

    def describe(self, group: ClassicGroup) -> DescribedGroup:
        return group.described()

    def _classic_groups(self) -> Iterator[ClassicGroup]:
        return (group for group in list(self._groups.values()) if isinstance(group, ClassicGroup))

    def _find(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise InvalidGroupId("a group needs a name")
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise UnknownMemberId(f"there is no group {group_id}")
        return group


def _restart_session(group: ClassicGroup, member: ClassicMember, effects: Effects) -> None:
    if group.members.get(member.member_id) is member:
        group.keep_alive(member, effects)


def _differ(received: str | None, existing: str | None) -> bool:
    return received is not None and bool(existing) and received != existing


def _synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )

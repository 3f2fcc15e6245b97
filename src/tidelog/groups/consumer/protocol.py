"""Consumer group protocol (KIP-848): the broker assigns; heartbeat responses carry the assignments."""

import logging
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

from tidelog.cluster.image import ClusterImage
from tidelog.errors import KafkaError
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.classic.protocol import ClassicProtocol
from tidelog.groups.consumer import replaying, timers
from tidelog.groups.consumer.classic_members import ClassicMembers
from tidelog.groups.consumer.describing import described
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.consumer.heartbeats import Heartbeats
from tidelog.groups.consumer.members import MemberState
from tidelog.groups.consumer.memberships import Memberships
from tidelog.groups.group import Caller, Group, GroupSettings
from tidelog.groups.statistics import GroupCounts
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.protocol.messages.leave_group import LeaveGroupRequest
from tidelog.protocol.messages.sync_group import SyncGroupRequest
from tidelog.replicated.machine import Effects, Reply, StateRecord
from tidelog.runtime.randomness import Randomness

logger = logging.getLogger(__name__)

REASONS = {
    timers.SESSION: "session expired",
    timers.REBALANCE: "partitions not revoked in time",
    timers.JOIN: "did not rejoin in time",
    timers.SYNC: "no SyncGroup in time",
}


class ConsumerProtocol:
    """Handles the consumer groups in `groups`, which is shared with the classic protocol."""

    def __init__(
        self,
        groups: MutableMapping[str, Group],
        settings: Callable[[], GroupSettings],
        image: Callable[[], ClusterImage],
        randomness: Randomness,
        classic: ClassicProtocol,
        counts: GroupCounts,
    ) -> None:
        self._groups = groups
        self._counts = counts
        self._classic = classic
        self._memberships = Memberships(groups, settings, image, randomness, counts)
        self._heartbeats = Heartbeats(self._memberships)
        self._classic_members = ClassicMembers(self._memberships)

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        self._heartbeats.heartbeat(request, caller, reply, effects)

    def describe(self, group_ids: Sequence[str], reply: Reply, effects: Effects) -> None:
        effects.is_read_of_state = True
        assignors, image = self._memberships.assignors, self._memberships.image()
        groups = [described(group_id, self._groups.get(group_id), assignors, image) for group_id in group_ids]
        effects.answer(reply, ConsumerGroupDescribeResponse(groups=groups))

    # ---- classic members of consumer groups

    def classic_join(self, request: JoinGroupRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        group = self._group(request.group_id)
        if group.is_empty:
            self._join_as_classic_group(group, request, caller, reply, effects)
        else:
            self._classic_members.join(group, request, caller, reply, effects)

    def _join_as_classic_group(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, reply: Reply, effects: Effects
    ) -> None:
        """The first member determines the protocol of an empty group."""
        del self._groups[group.group_id]
        self._classic.join(request, caller, reply, effects)
        if group.group_id not in self._groups:
            self._groups[group.group_id] = group
            return
        tombstones = Effects(effects.now_ms)
        group.write_tombstones(tombstones)
        effects.records[:0] = tombstones.records
        forget_new_group = effects.on_rejected
        assert forget_new_group is not None

        def revert(error: KafkaError, instead: Effects) -> None:
            forget_new_group(error, instead)
            self._groups[group.group_id] = group

        effects.on_rejected = revert
        logger.info("downgraded empty consumer group to classic group group=%s", group.group_id)

    def classic_sync(self, request: SyncGroupRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        self._classic_members.sync(self._group(request.group_id), request, caller, reply, effects)

    def classic_heartbeat(self, request: HeartbeatRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        self._classic_members.heartbeat(self._group(request.group_id), request, caller, reply, effects)

    def classic_leave(self, request: LeaveGroupRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        self._classic_members.leave(self._group(request.group_id), request, caller, reply, effects)

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    # ---- timers

    def on_timer(self, key: Any, effects: Effects) -> None:
        _, purpose, group_id, *rest = key
        group = self._groups.get(group_id)
        if purpose == timers.DOWNGRADED:
            if isinstance(group, ClassicGroup):
                self._on_downgraded(group, effects)
            return
        (member_id,) = rest
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            self._memberships.timers.forget(group_id, member_id, effects)
            return
        if self._is_in_time(purpose, group, member_id, effects):
            return
        self._memberships.remove(group, [group.members[member_id]], REASONS[purpose], effects)

    def _on_downgraded(self, group: ClassicGroup, effects: Effects) -> None:
        for member in group.members.values():
            group.keep_alive(member, effects)
        self._classic.rebalances.maybe_prepare_rebalance(group, "it was a consumer group", effects)

    def _is_in_time(self, purpose: str, group: ConsumerGroup, member_id: str, effects: Effects) -> bool:
        if purpose == timers.SESSION:
            return not self._memberships.timers.on_session_timer(group.group_id, member_id, effects)
        if purpose == timers.REBALANCE:
            return group.members[member_id].state is not MemberState.UNREVOKED_PARTITIONS
        return False

    # ---- records

    def replay(self, key_version: int, record: StateRecord) -> None:
        replaying.replay(self._groups, key_version, record, self._counts)

    def on_loaded(self, effects: Effects) -> None:
        group_count = member_count = 0
        for group in self._consumer_groups():
            group_count += 1
            for member in group.members.values():
                member_count += 1
                self._memberships.keep_alive(group.group_id, member, effects)
                self._memberships.expect_revocation(group.group_id, member, effects)
        if group_count:
            logger.info("loaded consumer groups groups=%d members=%d", group_count, member_count)

    def on_unloaded(self, effects: Effects) -> None:
        """Consumer groups have no pending requests."""
        for group in self._consumer_groups():
            group.held_bytes.release()

    def _consumer_groups(self) -> Iterator[ConsumerGroup]:
        return (group for group in list(self._groups.values()) if isinstance(group, ConsumerGroup))

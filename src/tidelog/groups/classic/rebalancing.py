"""Rebalance of classic groups: members join, then request their assignments."""

import logging
from collections.abc import Callable, Iterable

from tidelog.errors import KafkaError, RebalanceInProgress
from tidelog.groups.classic.group import ClassicGroup, InitialRebalance
from tidelog.groups.classic.member import ClassicMember
from tidelog.groups.classic.records import write_group
from tidelog.groups.classic.states import TRANSITIONS, GroupState
from tidelog.groups.classic.timers import join_key, sync_key
from tidelog.groups.group import GroupSettings
from tidelog.groups.statistics import GroupCounts
from tidelog.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.replicated.machine import Effects, ReplyOutcome

logger = logging.getLogger(__name__)


NAMES_LOGGED = 20

MIN_REBALANCE_TIMEOUT_MS = 1_000
"""Minimum time to wait for absent static members, however short their rebalance timeout."""
UNSTORED_RETRY_MS = 5_000
"""Until an empty generation is written again that could not be stored, for lack of in-sync replicas, say."""


class Rebalances:
    def __init__(self, settings: Callable[[], GroupSettings], counts: GroupCounts) -> None:
        self._settings = settings
        self._counts = counts

    def maybe_prepare_rebalance(self, group: ClassicGroup, reason: str, effects: Effects) -> None:
        """Start a rebalance, or complete the current one if all members have joined."""
        if GroupState.PREPARING_REBALANCE in TRANSITIONS[group.state]:
            self.prepare_rebalance(group, reason, effects)
        else:
            self.complete_if_all_joined(group, effects)

    def prepare_rebalance(self, group: ClassicGroup, reason: str, effects: Effects) -> None:
        logger.info(
            "preparing rebalance group=%s state=%s members=%d reason=%s",
            group,
            group.state_name,
            len(group.members),
            reason,
        )
        if group.state is GroupState.COMPLETING_REBALANCE:
            group.drop_assignments(RebalanceInProgress(), effects)
        else:  # of an assignment that is not committed yet
            group.fail_syncs(RebalanceInProgress(), effects)
        self._stop_expecting_syncs(group, effects)
        if group.is_empty:
            self._prepare_initial_rebalance(group, reason, effects)
            return
        group.move(GroupState.PREPARING_REBALANCE, effects.now_ms, reason)
        if group.has_all_joined:
            self.complete_join(group, effects)
        else:
            effects.set_timer(join_key(group.group_id), group.members.rebalance_timeout_ms)

    def _prepare_initial_rebalance(self, group: ClassicGroup, reason: str, effects: Effects) -> None:
        delay_ms = self._settings().group_initial_rebalance_delay_ms
        group.initial_rebalance = InitialRebalance(delay_ms, max(group.members.rebalance_timeout_ms - delay_ms, 0))
        group.has_new_member = False
        group.move(GroupState.PREPARING_REBALANCE, effects.now_ms, reason)
        if delay_ms == 0:
            self.complete_join(group, effects)
        else:
            effects.set_timer(join_key(group.group_id), delay_ms)

    def on_join_timer(self, group: ClassicGroup, effects: Effects) -> None:
        if group.is_empty:
            self._write_empty_generation(group, effects)
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        initial = group.initial_rebalance
        if initial is None or not group.has_new_member or initial.remaining_ms == 0:
            self.complete_join(group, effects)
            return
        delay_ms = min(self._settings().group_initial_rebalance_delay_ms, initial.remaining_ms)
        group.initial_rebalance = InitialRebalance(delay_ms, max(initial.remaining_ms - initial.delay_ms, 0))
        group.has_new_member = False
        effects.set_timer(join_key(group.group_id), delay_ms)

    def complete_if_all_joined(self, group: ClassicGroup, effects: Effects) -> None:
        can_complete_early = group.state is GroupState.PREPARING_REBALANCE and group.initial_rebalance is None
        if can_complete_early and group.has_all_joined:
            self.complete_join(group, effects)

    def complete_join(self, group: ClassicGroup, effects: Effects) -> None:
        """Start the next generation without members that did not join. Static members stay until session timeout."""
        effects.cancel_timer(join_key(group.group_id))
        absent = [member for member in group.members.values() if member.join_reply is None and not member.is_static]
        for member in absent:
            group.remove(member, effects)
        if absent:
            logger.info("members did not join in time group=%s members=%s", group, names_of(absent))
        if group.members and not group.elect_leader():
            logger.warning("no member joined, waiting for static members group=%s", group)
            effects.set_timer(
                join_key(group.group_id), max(group.members.rebalance_timeout_ms, MIN_REBALANCE_TIMEOUT_MS)
            )
            return
        group.initial_rebalance = None
        group.begin_generation(effects.now_ms)
        if group.is_empty:
            logger.info("group is empty group=%s", group)
            self._write_empty_generation(group, effects)
        else:
            self._answer_joins(group, effects)

    def _write_empty_generation(self, group: ClassicGroup, effects: Effects) -> None:
        """Until it is stored, for nobody else would try again: a new coordinator would load members that have left."""
        write_group(group, {}, effects)

        def retry(error: KafkaError, instead: Effects) -> None:
            instead.timers.extend(effects.timers)
            instead.responses.extend(ReplyOutcome(each.reply, error) for each in effects.responses)
            instead.set_timer(join_key(group.group_id), UNSTORED_RETRY_MS)

        effects.on_rejected = retry

    def _answer_joins(self, group: ClassicGroup, effects: Effects) -> None:
        logger.info(
            "started generation group=%s members=%d leader=%s protocol=%s",
            group,
            len(group.members),
            group.members.leader_id,
            group.protocol_name,
        )
        for member in group.members.values():
            reply = group.requests.take_join_reply(member)
            if reply is not None:
                effects.answer(reply, joined(group, member))
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            group.keep_alive(member, effects)
        effects.set_timer(sync_key(group.group_id), group.members.rebalance_timeout_ms)

    # ---- sync phase

    def on_synced(self, group: ClassicGroup, member: ClassicMember, effects: Effects) -> None:
        """The member has sent SyncGroup."""
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            effects.cancel_timer(sync_key(group.group_id))

    def on_assigned(self, group: ClassicGroup) -> None:
        """The assignment of a generation is committed."""
        self._counts.completed_rebalances += 1
        logger.info("group is stable group=%s members=%d", group, len(group.members))

    def on_sync_timer(self, group: ClassicGroup, effects: Effects) -> None:
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_syncs:
            return
        silent = [group.members[member_id] for member_id in group.pending_syncs]
        for member in silent:
            group.remove(member, effects)
        self.prepare_rebalance(group, f"no SyncGroup in time from {names_of(silent)}", effects)

    def _stop_expecting_syncs(self, group: ClassicGroup, effects: Effects) -> None:
        group.pending_syncs.clear()
        effects.cancel_timer(sync_key(group.group_id))

    def on_removed(self, group: ClassicGroup, reason: str, effects: Effects) -> None:
        """A member was removed; the others may have waited only for it."""
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            self.prepare_rebalance(group, reason, effects)
        else:
            self.on_pending_removed(group, effects)

    def on_pending_removed(self, group: ClassicGroup, effects: Effects) -> None:
        """A pending member was removed; the others may have waited only for it."""
        if group.state is GroupState.PREPARING_REBALANCE and group.has_all_joined:
            self.complete_join(group, effects)


def joined(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
    """JoinGroup response of a member. The leader's has all members, so that it can assign partitions."""
    is_leader = member.member_id == group.members.leader_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.members.leader_id or "",
        member_id=member.member_id,
        members=members_for_leader(group) if is_leader else [],
    )


def members_for_leader(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    ]


def names_of(members: list[ClassicMember]) -> str:
    return listed(member.member_id for member in members)


def listed(names: Iterable[str]) -> str:
    """For log lines: the first of them, and how many there are besides."""
    ordered = sorted(names)
    more = f" and {len(ordered) - NAMES_LOGGED} more" if len(ordered) > NAMES_LOGGED else ""
    return ",".join(ordered[:NAMES_LOGGED]) + more

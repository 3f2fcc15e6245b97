"""Membership in consumer groups: join, reconcile and leave, for members of both protocols."""

import logging
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial

from tidelog.cluster.image import ClusterImage
from tidelog.config.group import ConsumerGroupSettings
from tidelog.config.resolution import group_settings
from tidelog.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.consumer import conversion, records
from tidelog.groups.consumer.assignors import ASSIGNORS
from tidelog.groups.consumer.drafts import Draft
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.consumer.members import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Assignment, Member, MemberState
from tidelog.groups.consumer.reconciliation import reconcile
from tidelog.groups.consumer.timers import Timers
from tidelog.groups.group import Group, GroupSettings
from tidelog.groups.statistics import GroupCounts
from tidelog.protocol.structs import Response
from tidelog.replicated.machine import Effects, Reply
from tidelog.runtime.randomness import Randomness
from tidelog.types import uuid_text

logger = logging.getLogger(__name__)

LEAVES = "it leaves"
"""Reason of a member that leaves by itself; logged for debugging only."""


class Memberships:
    def __init__(
        self,
        groups: MutableMapping[str, Group],
        settings: Callable[[], GroupSettings],
        image: Callable[[], ClusterImage],
        randomness: Randomness,
        counts: GroupCounts,
    ) -> None:
        self.groups = groups
        self._counts = counts
        self.settings = settings
        self._settings_of_defaults = settings()
        self._defaults = group_settings(self._settings_of_defaults, {})
        """Settings of groups that have none of their own, and the broker settings that they were made of."""
        self.image = image
        self.timers = Timers()
        self._randomness = randomness

    @property
    def assignors(self) -> Sequence[str]:
        return [name for name in self.settings().group_consumer_assignors if name in ASSIGNORS] or list(ASSIGNORS)

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        settings = self.settings()
        stored = self.image().group_configs.get(group_id)
        if stored:
            return group_settings(settings, stored)
        if settings is not self._settings_of_defaults:  # every heartbeat asks
            self._settings_of_defaults, self._defaults = settings, group_settings(settings, {})
        return self._defaults

    def draft(self, group: ConsumerGroup, effects: Effects) -> Draft:
        return Draft(group, self.image(), effects, self._counts)

    def new_member_id(self) -> str:
        """Random id like Kafka's: it never starts with a dash, which command lines take for an option."""
        while (text := uuid_text(self._randomness.bytes(16))).startswith("-"):
            pass
        return text

    # ---- join

    def check_size(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self.settings().group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise GroupMaxSizeReached(f"The consumer group has reached its maximum capacity of {limit} members.")

    def check_bytes(self, group: ConsumerGroup, member: Member) -> None:
        """Raises CoordinatorNotAvailable. Assignments and regular expressions count once they are stored."""
        self._counts.check_member_bytes(group.bytes_added_by(member))

    def joining(
        self, group: ConsumerGroup, draft: Draft, member_id: str, instance_id: str | None, *, is_classic: bool
    ) -> Member:
        """The current member, or a new one. A static member takes over the assignment of its previous incarnation."""
        existing = None if instance_id is None else group.static_member(instance_id)
        if existing is None or (existing.member_id == member_id and existing.epoch != STATIC_LEAVE_EPOCH):
            # Like Kafka, refuse a static member that restarts before its session has expired.
            if member_id in group.members:
                return group.members[member_id]
            logger.debug("member joined group group=%s member=%s instance=%s", group.group_id, member_id, instance_id)
            return Member(member_id=member_id)
        if not is_classic and not existing.is_classic and existing.epoch != STATIC_LEAVE_EPOCH:
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {instance_id} cannot join the group because "
                f"the instance id is owned by {existing.member_id} member."
            )
        logger.info(
            "static member rejoined group=%s member=%s instance=%s member_before=%s",
            group.group_id,
            member_id,
            instance_id,
            existing.member_id,
        )
        member = existing._replace(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        draft.replace_member(existing, member)
        return member

    def find(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
        if instance_id is None:
            return group.member(member_id)
        member = group.static_member(instance_id)
        if member is None:
            raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise FencedInstanceId(
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
            )
        return member

    # ---- reconcile

    def advance(
        self, group: ConsumerGroup, draft: Draft, member: Member, owned: Assignment | None, effects: Effects
    ) -> Member:
        """Reconcile the member, whose values are in the draft. Returns the member after this step."""
        draft.refresh()
        target_epoch = draft.assign(self.assignors)
        advanced = reconcile(member, target_epoch, draft.target(member.member_id), owned, group.owner_of)
        if advanced is not member:
            records.write_current_assignment(effects, group.group_id, advanced)
            self.expect_revocation(group.group_id, advanced, effects)
        return advanced

    def expect_revocation(self, group_id: str, member: Member, effects: Effects) -> None:
        if member.is_classic:
            return
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.timers.expect_revocation(group_id, member.member_id, member.rebalance_timeout_ms, effects)
        else:
            self.timers.on_revoked(group_id, member.member_id, effects)

    def keep_alive(self, group_id: str, member: Member, effects: Effects) -> None:
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self.settings_of(group_id).consumer_session_timeout_ms
        self.timers.keep_alive(group_id, member.member_id, timeout_ms, effects)

    def answer_when_committed(
        self, group_id: str, member_id: str, reply: Reply, response: Response, effects: Effects
    ) -> None:
        """Give the member an assignment. Its session begins again then: it cannot have sent a heartbeat meanwhile.

        Its session may also expire before the commit: then others get what the response assigns to it.
        """
        assigned = _Assigned(self, group_id, member_id, reply)
        effects.answer(assigned, response)
        effects.after_commit.append(assigned.restart_session)

    def adopt_classic_members(self, classic: ClassicGroup, group: ConsumerGroup, effects: Effects) -> None:
        """Continue with the members of a classic group. Their pending requests fail, so that they rejoin."""
        classic.fail_pending_requests(RebalanceInProgress(), effects)
        for member in group.members.values():
            self.keep_alive(group.group_id, member, effects)

    # ---- leave

    def remove(self, group: ConsumerGroup, gone: Sequence[Member], reason: str, effects: Effects) -> None:
        for member in gone:
            level = logging.DEBUG if reason == LEAVES else logging.INFO
            logger.log(
                level, "member left group group=%s member=%s reason=%s", group.group_id, member.member_id, reason
            )
            self.timers.forget(group.group_id, member.member_id, effects)
        effects.on_rejected = partial(self._keep, group, effects)
        remaining = _remaining_classic(group, gone)
        if conversion.may_downgrade(remaining, self.settings(), group.group_id):
            targets = [(member, group.targets.get(member.member_id, {})) for member in remaining]
            conversion.downgrade(group, targets, self.image(), effects)
            for member in remaining:
                self.timers.forget(group.group_id, member.member_id, effects)
            return
        draft = self.draft(group, effects)
        draft.remove_members(gone)
        draft.refresh(needs_new_epoch=True)

    def _keep(self, group: ConsumerGroup, rejected: Effects, error: KafkaError, instead: Effects) -> None:
        """The removal was not written: restart the timers, so that silent members are detected again."""
        for response in rejected.responses:
            instead.fail(response.reply, error)
        for member in group.members.values():
            self.keep_alive(group.group_id, member, instead)
            self.expect_revocation(group.group_id, member, instead)


class _Assigned:
    """Stands for the reply of a member that gets an assignment, until this is committed."""

    __slots__ = ("_group_id", "_member_id", "_memberships", "_reply")

    def __init__(self, memberships: Memberships, group_id: str, member_id: str, reply: Reply) -> None:
        self._memberships = memberships
        self._group_id = group_id
        self._member_id = member_id
        self._reply = reply

    def complete(self, outcome: Response | KafkaError) -> None:
        group = self._memberships.groups.get(self._group_id)
        is_member = isinstance(group, ConsumerGroup | ClassicGroup) and self._member_id in group.members
        if isinstance(outcome, KafkaError) or is_member:
            self._reply.complete(outcome)
        else:
            self._reply.fail(UnknownMemberId(f"group {self._group_id} has no member {self._member_id}"))

    def restart_session(self, later: Effects) -> None:
        group = self._memberships.groups.get(self._group_id)
        if isinstance(group, ConsumerGroup) and self._member_id in group.members:
            self._memberships.keep_alive(self._group_id, group.members[self._member_id], later)


def _remaining_classic(group: ConsumerGroup, gone: Sequence[Member]) -> list[Member]:
    """The other members if all use the classic protocol, else none: only then the group may be downgraded."""
    gone_ids = {member.member_id for member in gone}
    gone_classic_count = sum(member.is_classic for member in gone)
    if group.classic_member_count - gone_classic_count != len(group.members) - len(gone_ids):
        return []
    return [member for member_id, member in group.members.items() if member_id not in gone_ids]

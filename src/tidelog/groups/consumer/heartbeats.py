"""ConsumerGroupHeartbeat: a member joins, is alive, says what it has given up, or leaves."""

import logging
from dataclasses import replace

from tidelog.errors import GroupIdNotFound, KafkaError
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.consumer import conversion, records
from tidelog.groups.consumer.drafts import Draft
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.consumer.members import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Assignment, Member
from tidelog.groups.consumer.memberships import Memberships
from tidelog.groups.consumer.requests import (
    NOT_GIVEN,
    check_epoch,
    check_heartbeat,
    is_full,
    is_leaving,
    owned_partitions,
)
from tidelog.groups.group import Caller
from tidelog.protocol.messages import consumer_group_heartbeat as messages
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.replicated.machine import Effects, Reply

logger = logging.getLogger(__name__)


class Heartbeats:
    def __init__(self, memberships: Memberships) -> None:
        self._memberships = memberships

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        try:
            check_heartbeat(request, caller.api_version, self._memberships.assignors)
            response = self._leave(request, effects) if is_leaving(request) else self._go_on(request, caller, effects)
        except KafkaError as error:
            # What was written down before the refusal must not happen.
            effects.records.clear()
            effects.answers.clear()
            effects.timers.clear()
            effects.fail(reply, error)
        else:
            # An assignment or an epoch that the member does not know yet may not be committed yet, though it was
            # decided by an earlier request: told too early, it could be undone by the next coordinator.
            effects.is_read_of_state = _tells_state(request, response)
            effects.answer(reply, response)

    # -- going on

    def _go_on(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, effects: Effects
    ) -> ConsumerGroupHeartbeatResponse:
        memberships = self._memberships
        earlier = memberships.groups.get(request.group_id)
        group = self._group_of(request, effects)
        memberships.check_size(group, request.member_id)
        owned = owned_partitions(request)
        draft = memberships.draft(group, effects)
        known = self._known_member(group, draft, request, owned)
        member = _as_it_says(known, group, request, caller)
        draft.put_member(member, known)
        advanced = memberships.advance(group, draft, member, owned, effects)
        memberships.keep_alive(group.group_id, advanced, effects)
        if isinstance(earlier, ClassicGroup):
            memberships.take_over(earlier, group, effects)
        return self._response(request, known, advanced)

    def _group_of(self, request: ConsumerGroupHeartbeatRequest, effects: Effects) -> ConsumerGroup:
        """Only who joins may make a group, or turn a classic one into a consumer group."""
        group = self._memberships.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch != JOIN_EPOCH:
            if group is None:
                raise GroupIdNotFound(f"Consumer group {request.group_id} not found.")
            raise GroupIdNotFound(f"Group {request.group_id} is not a consumer group.")
        if isinstance(group, ClassicGroup):
            return self._upgraded(group, effects)
        return ConsumerGroup(request.group_id)

    def _upgraded(self, classic: ClassicGroup, effects: Effects) -> ConsumerGroup:
        try:
            return conversion.upgrade(classic, self._memberships.settings(), self._memberships.image(), effects)
        except GroupIdNotFound as refusal:
            logger.info("classic group stays classic group=%s reason=%s", classic.group_id, refusal)
            raise

    def _known_member(
        self, group: ConsumerGroup, draft: Draft, request: ConsumerGroupHeartbeatRequest, owned: Assignment | None
    ) -> Member:
        if request.member_epoch == JOIN_EPOCH:
            member_id = request.member_id or self._memberships.new_member_id()
            return self._memberships.joining(group, draft, member_id, request.instance_id, is_classic=False)
        member = self._memberships.find(group, request.member_id, request.instance_id)
        check_epoch(member, request.member_epoch, owned)
        return member

    def _response(
        self, request: ConsumerGroupHeartbeatRequest, known: Member, member: Member
    ) -> ConsumerGroupHeartbeatResponse:
        has_changed = is_full(request) or known.assigned != member.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._memberships.settings_of(request.group_id).consumer_heartbeat_interval_ms,
            assignment=_told_assignment(member) if has_changed else None,
        )

    # -- leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest, effects: Effects) -> ConsumerGroupHeartbeatResponse:
        group = self._memberships.groups.get(request.group_id)
        if group is None:
            raise GroupIdNotFound(f"Consumer group {request.group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"Group {request.group_id} is not a consumer group.")
        member = self._memberships.find(group, request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            # It keeps what it has until its session ends; what it was to give up, it has.
            away = replace(member, epoch=STATIC_LEAVE_EPOCH, revoking={})
            records.write_current_assignment(effects, group.group_id, away)
            self._memberships.timers.on_revoked(group.group_id, member.member_id, effects)
        else:
            self._memberships.remove(group, [member], "it leaves", effects)
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def _as_it_says(known: Member, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    """What a heartbeat leaves out is as it was."""
    if _says_nothing_new(known, request, caller):
        return known
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        known,
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscribed_topics=known.subscribed_topics if names is None else group.shared_names(frozenset(names)),
        subscribed_regex=known.subscribed_regex if regex is None else regex,
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms == NOT_GIVEN else timeout_ms,
        server_assignor=known.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _says_nothing_new(known: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> bool:
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == NOT_GIVEN
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id in (None, known.instance_id)
        and (caller.client_id, caller.client_host) == (known.client_id, known.client_host)
        and known.classic is None
    )


def _tells_state(request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse) -> bool:
    return response.assignment is not None or response.member_epoch != request.member_epoch


def _told_assignment(member: Member) -> messages.Assignment:
    return messages.Assignment(
        topic_partitions=[
            messages.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
        ]
    )

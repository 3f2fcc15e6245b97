"""ConsumerGroupHeartbeat: a member joins, stays alive, reports owned partitions, or leaves."""

import logging

from tidelog.errors import GroupIdNotFound, KafkaError
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.consumer import conversion, records
from tidelog.groups.consumer.drafts import Draft
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.consumer.members import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Assignment, Member, MemberState
from tidelog.groups.consumer.memberships import LEAVES, Memberships
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
        group = self._memberships.groups.get(request.group_id)
        member = group.members.get(request.member_id) if isinstance(group, ConsumerGroup) else None
        if isinstance(group, ConsumerGroup) and member is not None and self._is_idle(group, member, request, caller):
            self._memberships.keep_alive(group.group_id, member, effects)
            effects.answer(reply, self._response(request, member, member))
        else:
            self._handle(request, caller, reply, effects)

    def _is_idle(
        self, group: ConsumerGroup, member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> bool:
        """Whether nothing has changed for the member or the coordinator, as in nearly all heartbeats."""
        return (
            JOIN_EPOCH < request.member_epoch == member.epoch == group.epoch == group.assignment_epoch
            and member.state is MemberState.STABLE
            and request.topic_partitions is None
            and request.instance_id is None
            and _is_unchanged(member, request, caller)
            and group.checked_topics is self._memberships.image().topics
        )

    def _handle(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        try:
            check_heartbeat(request, caller.api_version, self._memberships.assignors)
            response = (
                self._leave(request, effects) if is_leaving(request) else self._join_or_update(request, caller, effects)
            )
        except KafkaError as error:
            # Discard the effects of the refused request.
            effects.records.clear()
            effects.responses.clear()
            effects.timers.clear()
            effects.fail(reply, error)
        else:
            # An assignment or epoch that is new to the member may come from an earlier request and not be committed
            # yet. If the response did not wait for it, the next coordinator could undo it.
            effects.is_read_of_state = _reveals_state(request, response)
            if is_leaving(request) or not (effects.records or effects.is_read_of_state):
                effects.answer(reply, response)
            else:
                member_id = response.member_id or ""
                self._memberships.answer_when_committed(request.group_id, member_id, reply, response, effects)

    # ---- join and update

    def _join_or_update(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, effects: Effects
    ) -> ConsumerGroupHeartbeatResponse:
        memberships = self._memberships
        earlier = memberships.groups.get(request.group_id)
        group = self._group_of(request, effects)
        memberships.check_size(group, request.member_id)
        owned = owned_partitions(request)
        draft = memberships.draft(group, effects)
        existing = self._find_or_join(group, draft, request, owned)
        member = _updated_member(existing, group, request, caller)
        memberships.check_bytes(group, member)
        draft.put_member(member, existing)
        advanced = memberships.advance(group, draft, member, owned, effects)
        memberships.keep_alive(group.group_id, advanced, effects)
        if is_full(request):
            # The member may have lost the response that asked for its partitions. It has the whole time from now on.
            memberships.expect_revocation(group.group_id, advanced, effects)
        if isinstance(earlier, ClassicGroup):
            memberships.adopt_classic_members(earlier, group, effects)
        return self._response(request, existing, advanced)

    def _group_of(self, request: ConsumerGroupHeartbeatRequest, effects: Effects) -> ConsumerGroup:
        """Only a joining member may create a group or upgrade a classic one."""
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
        except GroupIdNotFound as rejection:
            logger.info("refused upgrade of classic group group=%s reason=%s", classic.group_id, rejection)
            raise

    def _find_or_join(
        self, group: ConsumerGroup, draft: Draft, request: ConsumerGroupHeartbeatRequest, owned: Assignment | None
    ) -> Member:
        if request.member_epoch == JOIN_EPOCH:
            member_id = request.member_id or self._memberships.new_member_id()
            return self._memberships.joining(group, draft, member_id, request.instance_id, is_classic=False)
        member = self._memberships.find(group, request.member_id, request.instance_id)
        check_epoch(member, request.member_epoch, owned)
        return member

    def _response(
        self, request: ConsumerGroupHeartbeatRequest, existing: Member, member: Member
    ) -> ConsumerGroupHeartbeatResponse:
        has_changed = is_full(request) or existing.assigned != member.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._memberships.settings_of(request.group_id).consumer_heartbeat_interval_ms,
            assignment=_response_assignment(member) if has_changed else None,
        )

    # ---- leave

    def _leave(self, request: ConsumerGroupHeartbeatRequest, effects: Effects) -> ConsumerGroupHeartbeatResponse:
        group = self._memberships.groups.get(request.group_id)
        if group is None:
            raise GroupIdNotFound(f"Consumer group {request.group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"Group {request.group_id} is not a consumer group.")
        member = self._memberships.find(group, request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            # It keeps its partitions until its session expires; those pending revocation are revoked.
            away = member._replace(epoch=STATIC_LEAVE_EPOCH, revoking={})
            records.write_current_assignment(effects, group.group_id, away)
            self._memberships.timers.on_revoked(group.group_id, member.member_id, effects)
        else:
            self._memberships.remove(group, [member], LEAVES, effects)
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def _updated_member(
    existing: Member, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> Member:
    """The member with the values of the heartbeat. Missing values are unchanged."""
    if _is_unchanged(existing, request, caller):
        return existing
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return existing._replace(
        instance_id=existing.instance_id if request.instance_id is None else request.instance_id,
        rack_id=existing.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscribed_topics=existing.subscribed_topics if names is None else group.shared_names(frozenset(names)),
        subscribed_regex=existing.subscribed_regex if regex is None else regex,
        rebalance_timeout_ms=existing.rebalance_timeout_ms if timeout_ms == NOT_GIVEN else timeout_ms,
        server_assignor=existing.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _is_unchanged(existing: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> bool:
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == NOT_GIVEN
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id in (None, existing.instance_id)
        and (caller.client_id, caller.client_host) == (existing.client_id, existing.client_host)
        and existing.classic is None
    )


def _reveals_state(request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse) -> bool:
    return response.assignment is not None or response.member_epoch != request.member_epoch


def _response_assignment(member: Member) -> messages.Assignment:
    return messages.Assignment(
        topic_partitions=[
            messages.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
        ]
    )

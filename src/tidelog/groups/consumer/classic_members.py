"""Classic protocol members of a consumer group: JoinGroup and SyncGroup instead of ConsumerGroupHeartbeat.

A classic member's generation is its member epoch. The Heartbeat response announces a rebalance. JoinGroup reports the
partitions that the member revoked and advances it; SyncGroup returns its assignment. A classic member never leads: the
broker assigns.
"""

from tidelog.errors import (
    NO_ERROR,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from tidelog.groups.consumer import conversion, embedded
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.consumer.members import Assignment, ClassicMember, Member, MemberState, partitions_of
from tidelog.groups.consumer.memberships import Memberships
from tidelog.groups.group import NO_MEMBER, Caller
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.replicated.machine import Effects, Reply

PROTOCOL_TYPE = "consumer"
NO_REBALANCE_TIMEOUT_BEFORE = 1
LEAVES_MANY_FROM = 3
MEMBER_ID_REQUIRED_FROM = 4
"""Versions of JoinGroup and LeaveGroup that introduced these behaviours."""


class ClassicMembers:
    def __init__(self, memberships: Memberships) -> None:
        self._memberships = memberships

    # ---- JoinGroup

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, reply: Reply, effects: Effects
    ) -> None:
        try:
            response = self._join(group, request, caller, effects)
        except KafkaError as error:
            effects.records.clear()
            effects.timers.clear()
            effects.fail(reply, error)
        else:
            effects.answer(reply, response)

    def _join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, effects: Effects
    ) -> JoinGroupResponse:
        self._check_join(group, request)
        memberships = self._memberships
        member_id = request.member_id or memberships.new_member_id()
        instance_id = request.group_instance_id
        if request.member_id == NO_MEMBER and instance_id is None and caller.api_version >= MEMBER_ID_REQUIRED_FROM:
            return JoinGroupResponse(member_id=member_id, error_code=MemberIdRequired.code)
        subscription = _subscription_of(request)
        replaced = None if instance_id is None else group.static_member(instance_id)
        draft = memberships.draft(group, effects)
        if instance_id is None or request.member_id == NO_MEMBER:
            existing = memberships.joining(group, draft, member_id, instance_id, is_classic=True)
        else:
            existing = memberships.find(group, member_id, instance_id)
        member = _updated_member(existing, group, request, subscription, caller)
        memberships.check_bytes(group, member)
        draft.put_member(member, existing)
        owned = embedded.by_topic_id(subscription.owned_partitions, memberships.image())
        advanced = memberships.advance(group, draft, member, owned, effects)
        self._downgrade_or_keep_alive(group, replaced, advanced, draft.target(advanced.member_id), effects)
        return JoinGroupResponse(
            member_id=advanced.member_id,
            generation_id=advanced.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
        )

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest) -> None:
        settings = self._memberships.settings()
        least_ms, most_ms = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not least_ms <= request.session_timeout_ms <= most_ms:
            raise InvalidSessionTimeout(f"{request.session_timeout_ms} ms is not between {least_ms} and {most_ms} ms")
        if settings.group_consumer_migration_policy.lower() == conversion.DISABLED:
            raise InconsistentGroupProtocol(
                f"Cannot join the consumer group {group.group_id} with the classic protocol because "
                "the group migration is disabled."
            )
        self._memberships.check_size(group, request.member_id)
        names = frozenset(protocol.name for protocol in request.protocols)
        if not group.supports_classic(request.protocol_type, names):
            raise InconsistentGroupProtocol(f"Member {request.member_id}'s protocols are not supported.")

    def _downgrade_or_keep_alive(
        self, group: ConsumerGroup, replaced: Member | None, member: Member, target: Assignment, effects: Effects
    ) -> None:
        """Downgrade the group to a classic one if this static member replaced the last member of the new protocol."""
        memberships = self._memberships
        if replaced is not None and not replaced.is_classic:
            leaving = (replaced.member_id, member.member_id)
            others = [existing for member_id, existing in group.members.items() if member_id not in leaving]
            if conversion.may_downgrade([*others, member], memberships.settings(), group.group_id):
                targets = [(existing, group.targets.get(existing.member_id, {})) for existing in others]
                effects.records.clear()
                effects.timers.clear()
                conversion.downgrade(group, [*targets, (member, target)], memberships.image(), effects)
                return
        memberships.keep_alive(group.group_id, member, effects)
        memberships.timers.on_joined(group.group_id, member.member_id, member.rebalance_timeout_ms, effects)

    # ---- SyncGroup

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, caller: Caller, reply: Reply, effects: Effects
    ) -> None:
        try:
            member = self._classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
            _check_protocol(member, request)
            self._check_rebalance(group, member, effects)
        except KafkaError as error:
            effects.fail(reply, error)
            return
        assert member.classic is not None
        self._memberships.timers.on_synced(group.group_id, member.member_id, effects)
        self._memberships.keep_alive(group.group_id, member, effects)
        assignment = embedded.encoded_assignment(
            partitions_of(member.assigned), member.classic.protocols[0][1], self._memberships.image()
        )
        effects.is_read_of_state = True
        response = SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        )
        self._memberships.answer_when_committed(group.group_id, member.member_id, reply, response, effects)

    def _check_rebalance(self, group: ConsumerGroup, member: Member, effects: Effects) -> None:
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member, effects)
            raise RebalanceInProgress(
                f"A new rebalance is triggered in group {group.group_id} and "
                f"member {member.member_id} should rejoin to catch up."
            )

    # ---- Heartbeat

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, caller: Caller, reply: Reply, effects: Effects
    ) -> None:
        try:
            member = self._classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
        except KafkaError as error:
            effects.fail(reply, error)
            return
        self._memberships.keep_alive(group.group_id, member, effects)
        code = NO_ERROR
        if self._should_join(group, member):
            self._expect_join(group, member, effects)
            code = RebalanceInProgress.code
        effects.answer(reply, HeartbeatResponse(error_code=code))

    def _should_join(self, group: ConsumerGroup, member: Member) -> bool:
        """True if the member must rejoin: to reach the group epoch, to revoke partitions, or to get free ones."""
        if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member)

    def _expect_join(self, group: ConsumerGroup, member: Member, effects: Effects) -> None:
        timers = self._memberships.timers
        timers.expect_join(group.group_id, member.member_id, member.rebalance_timeout_ms, effects)

    # ---- LeaveGroup

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, caller: Caller, reply: Reply, effects: Effects
    ) -> None:
        leaves_many = caller.api_version >= LEAVES_MANY_FROM
        identities = request.members if leaves_many else [MemberIdentity(member_id=request.member_id)]
        gone: dict[str, Member] = {}
        responses = [self._leave(group, identity, gone) for identity in identities]
        if gone:
            self._memberships.remove(group, list(gone.values()), "it leaves", effects)
        if leaves_many:
            effects.answer(reply, LeaveGroupResponse(members=responses))
        else:
            effects.answer(reply, LeaveGroupResponse(error_code=responses[0].error_code))

    def _leave(self, group: ConsumerGroup, identity: MemberIdentity, gone: dict[str, Member]) -> MemberResponse:
        """An administrator may name a static member by its instance id alone."""
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == NO_MEMBER and instance_id is not None:
            member_id = group.static_members.get(instance_id, NO_MEMBER)
        code = NO_ERROR
        try:
            member = self._classic_member(group, member_id, instance_id)
            gone[member.member_id] = member
        except KafkaError as error:
            code = error.code
        return MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)

    def _classic_member(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
        member = self._memberships.find(group, member_id, instance_id)
        if not member.is_classic:
            raise UnknownMemberId(f"Member {member.member_id} does not use the classic protocol.")
        return member


def _subscription_of(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return embedded.subscription_of(request.protocols[0].metadata)
    except MalformedMessage as error:
        raise InconsistentGroupProtocol(f"the subscription cannot be read: {error}") from error


def _updated_member(
    existing: Member,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    caller: Caller,
) -> Member:
    timeout_ms = request.rebalance_timeout_ms
    if caller.api_version < NO_REBALANCE_TIMEOUT_BEFORE:
        timeout_ms = request.session_timeout_ms
    protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
    return existing._replace(
        instance_id=existing.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=existing.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscribed_topics=group.shared_names(frozenset(subscription.topics)),
        subscribed_regex="",
        rebalance_timeout_ms=timeout_ms,
        classic=ClassicMember(request.session_timeout_ms, protocols),
    )


def _check_generation(member: Member, received: int) -> None:
    if received != member.epoch:
        raise IllegalGeneration(
            f"The request generation id {received} is not equal to the member epoch {member.epoch} "
            f"of member {member.member_id}."
        )


def _check_protocol(member: Member, request: SyncGroupRequest) -> None:
    assert member.classic is not None
    chosen = member.classic.protocols[0][0]
    if request.protocol_type not in (None, PROTOCOL_TYPE):
        raise InconsistentGroupProtocol(
            f"The protocol type {request.protocol_type} from member {member.member_id} request is not equal to "
            f"the group protocol type {PROTOCOL_TYPE}."
        )
    if request.protocol_name not in (None, chosen):
        raise InconsistentGroupProtocol(
            f"The protocol name {request.protocol_name} from member {member.member_id} request is not equal to "
            f"the protocol name {chosen} returned in the join response."
        )


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    target = group.targets.get(member.member_id, {})
    return any(
        group.owner_of(topic_id, partition) not in (None, member.member_id)
        for topic_id, partitions in target.items()
        for partition in partitions
    )

"""JoinGroup of classic groups: admission of members, and whether a rebalance is needed."""

import logging
from collections.abc import Callable, MutableMapping

from tidelog.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    UnknownMemberId,
)
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.classic.member import ClassicMember, bytes_of, protocols_of
from tidelog.groups.classic.rebalancing import Rebalances, joined
from tidelog.groups.classic.records import write_group, write_new_group
from tidelog.groups.classic.states import GroupState
from tidelog.groups.classic.timers import session_key
from tidelog.groups.group import NO_MEMBER, Caller, Group, GroupSettings, coordinator_error
from tidelog.groups.statistics import GroupCounts
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.replicated.machine import Effects, Reply
from tidelog.runtime.randomness import Randomness

logger = logging.getLogger(__name__)

NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000
"""Session timeout of a new member while it waits for JoinGroup: it cannot send heartbeats yet."""
MAX_REASON_LENGTH = 255
"""Java clients send no longer reason."""
MAX_PREFIX_LENGTH = 1_000
"""Maximum length of a member id's prefix: the whole id must fit into a protocol string."""
NO_REBALANCE_TIMEOUT_BEFORE = 1
MEMBER_ID_REQUIRED_FROM = 4
SKIPS_ASSIGNMENT_FROM = 9
"""Versions of JoinGroup that introduced these behaviours."""


class Joining:
    def __init__(
        self,
        groups: MutableMapping[str, Group],
        settings: Callable[[], GroupSettings],
        randomness: Randomness,
        rebalances: Rebalances,
        counts: GroupCounts,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._randomness = randomness
        self._rebalances = rebalances
        self._counts = counts

    def join(self, request: JoinGroupRequest, caller: Caller, reply: Reply, effects: Effects) -> None:
        try:
            self._check(request)
            if caller.api_version < NO_REBALANCE_TIMEOUT_BEFORE:
                request.rebalance_timeout_ms = request.session_timeout_ms
            group = self._group_of(request, effects.now_ms)
            self._check_size(group, request, effects)
            self._check_bytes(group, request, caller, effects)
            self._check_protocols(group, request)
            if request.group_id not in self._groups:
                self._create(group, reply, effects)
            if request.member_id == NO_MEMBER:
                self._join_without_id(group, request, caller, reply, effects)
            elif request.member_id in group.members.pending_ids and request.group_instance_id is None:
                self._add(group, request.member_id, request, caller, reply, effects)
            else:
                self._join_again(group, request, reply, effects)
        except KafkaError as error:
            effects.fail(reply, error)

    def _check(self, request: JoinGroupRequest) -> None:
        if not request.group_id:
            raise InvalidGroupId("a group needs a name")
        settings = self._settings()
        least_ms, most_ms = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not least_ms <= request.session_timeout_ms <= most_ms:
            raise InvalidSessionTimeout(f"{request.session_timeout_ms} ms is not between {least_ms} and {most_ms} ms")

    def _group_of(self, request: JoinGroupRequest, now_ms: int) -> ClassicGroup:
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id != NO_MEMBER:
                raise UnknownMemberId(f"there is no group {request.group_id}")
            return ClassicGroup(request.group_id, now_ms, self._counts)
        if not isinstance(group, ClassicGroup):
            raise InconsistentGroupProtocol(f"group {request.group_id} is not a classic one")
        return group

    def _check_size(self, group: ClassicGroup, request: JoinGroupRequest, effects: Effects) -> None:
        """If the limit was lowered below the group's size, the members that join last are removed."""
        limit = self._settings().group_max_size
        member = group.members.get(request.member_id)
        if group.is_empty or group.members.id_of_static(request.group_instance_id) is not None:
            return
        if group.state is GroupState.PREPARING_REBALANCE:
            is_in = (member is not None and member.join_reply is not None) or group.requests.join_count < limit
        else:
            is_in = member is not None or len(group.members) < limit
        if is_in:
            return
        group.members.pending_ids.discard(request.member_id)
        if member is not None:
            group.remove(member, effects)
            self._rebalances.complete_if_all_joined(group, effects)
        raise GroupMaxSizeReached(f"group {group.group_id} has {limit} members")

    def _check_bytes(self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller, effects: Effects) -> None:
        """A group whose record would be too large could never be stored: its rebalances would fail for good."""
        members = group.members
        static_id = members.id_of_static(request.group_instance_id)
        existing = members.get(request.member_id if static_id is None else static_id)
        names = (request.member_id, request.group_instance_id, caller.client_id, caller.client_host)
        added_bytes = bytes_of(names, protocols_of(request)) - (0 if existing is None else existing.held_bytes)
        if added_bytes <= 0:
            return
        limit_bytes = effects.max_record_bytes
        if members.held_bytes + added_bytes > limit_bytes:
            raise GroupMaxSizeReached(f"the members of group {group.group_id} exceed a record of {limit_bytes} bytes")
        self._counts.check_member_bytes(added_bytes)

    def _check_protocols(self, group: ClassicGroup, request: JoinGroupRequest) -> None:
        names = frozenset(protocol.name for protocol in request.protocols)
        if not group.supports(request.protocol_type, names):
            raise InconsistentGroupProtocol(
                f"group {group.group_id} of type {group.protocol_type!r} has no protocol in common with "
                f"{sorted(names)} of type {request.protocol_type!r}"
            )

    def _create(self, group: ClassicGroup, reply: Reply, effects: Effects) -> None:
        """Write the group's record first, so that the group survives its coordinator."""
        self._groups[group.group_id] = group
        write_new_group(group, effects)

        def forget(error: KafkaError, instead: Effects) -> None:
            group.move(GroupState.DEAD, instead.now_ms, "its first record was not stored")
            group.members.release()
            self._groups.pop(group.group_id, None)
            instead.fail(reply, coordinator_error(error))

        effects.on_rejected = forget

    # ---- new members

    def _join_without_id(
        self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller, reply: Reply, effects: Effects
    ) -> None:
        member_id = self._new_member_id(request.group_instance_id or caller.client_id)
        existing_id = group.members.id_of_static(request.group_instance_id)
        if existing_id is not None:
            self._replace_static(group, group.members[existing_id], member_id, request, caller, reply, effects)
        elif request.group_instance_id is None and caller.api_version >= MEMBER_ID_REQUIRED_FROM:
            self._check_pending(group, member_id, effects)
            group.members.pending_ids.add(member_id)
            effects.set_timer(session_key(group.group_id, member_id), request.session_timeout_ms)
            effects.answer(reply, _member_id_required(member_id))
        else:
            self._add(group, member_id, request, caller, reply, effects)

    def _check_pending(self, group: ClassicGroup, member_id: str, effects: Effects) -> None:
        """No more ids are handed out than a group of that many members could store."""
        if len(group.members.pending_ids) * bytes_of((member_id,), ()) > effects.max_record_bytes:
            raise GroupMaxSizeReached(f"{len(group.members.pending_ids)} members of {group.group_id} have yet to join")

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix[:MAX_PREFIX_LENGTH]}-{_random_uuid(self._randomness)}"

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        reply: Reply,
        effects: Effects,
    ) -> None:
        member = _member_of(member_id, request, caller)
        member.is_new = True
        group.has_new_member = True
        if not group.members:
            group.protocol_type = request.protocol_type
        group.members.add(member)
        group.requests.await_join(member, reply, effects)
        group.keep_alive(member, effects, NEW_MEMBER_TIMEOUT_MS)
        self._rebalances.maybe_prepare_rebalance(group, _with_client_reason(f"{member_id} joins", request), effects)

    # ---- existing members

    def _join_again(self, group: ClassicGroup, request: JoinGroupRequest, reply: Reply, effects: Effects) -> None:
        member = group.check_member(request.member_id, request.group_instance_id)
        is_unchanged = member.protocols == protocols_of(request)
        is_stable_leader = group.state is GroupState.STABLE and group.members.leader_id == member.member_id
        if group.state is GroupState.PREPARING_REBALANCE or not is_unchanged or is_stable_leader:
            # A leader that rejoins a stable group wants a new assignment, for reasons that its metadata does not show.
            group.members.update(member, request)
            group.requests.await_join(member, reply, effects)
            self._rebalances.maybe_prepare_rebalance(
                group, _with_client_reason(f"{member.member_id} rejoined", request), effects
            )
        else:
            effects.is_read_of_state = True
            group.keep_alive(member, effects)
            effects.answer(reply, joined(group, member))

    # ---- static members that rejoin (KIP-345)

    def _replace_static(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        member_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        reply: Reply,
        effects: Effects,
    ) -> None:
        logger.info(
            "static member rejoined group=%s instance=%s member=%s member_before=%s",
            group,
            old.instance_id,
            member_id,
            old.member_id,
        )
        leader_before = group.members.leader_id
        fenced = FencedInstanceId(f"{member_id} has taken {old.instance_id} over from {old.member_id}")
        group.requests.fail_join(old, fenced, effects)
        group.requests.fail_sync(old, fenced, effects)
        effects.cancel_timer(session_key(group.group_id, old.member_id))
        new = _member_of(member_id, request, caller)
        new.assignment = old.assignment
        group.replace(old, new)
        group.keep_alive(new, effects)
        if group.state is GroupState.STABLE and group.members.select_protocol() == group.protocol_name:
            self._store_replacement(group, old, new, reply, effects)
            effects.answer(reply, _replaced_member_response(group, new, leader_before, caller))
            return
        group.requests.await_join(new, reply, effects)
        self._rebalances.maybe_prepare_rebalance(
            group, _with_client_reason(f"static member {old.instance_id} rejoined", request), effects
        )

    def _store_replacement(
        self, group: ClassicGroup, old: ClassicMember, new: ClassicMember, reply: Reply, effects: Effects
    ) -> None:
        """Write the generation with the new member id, without a rebalance."""
        write_group(group, {member.member_id: member.assignment for member in group.members.values()}, effects)
        others = [response for response in effects.responses if response.reply is not reply]

        def revert(error: KafkaError, instead: Effects) -> None:
            logger.warning(
                "failed to store static member group=%s member=%s error=%s", group, new.member_id, error.message
            )
            group.members.written = None
            group.replace(new, old)
            old.timer_due_ms = None
            group.keep_alive(old, instead)
            instead.responses.extend(others)
            instead.fail(reply, coordinator_error(error))

        effects.on_rejected = revert


def _member_of(member_id: str, request: JoinGroupRequest, caller: Caller) -> ClassicMember:
    return ClassicMember(
        member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols_of(request),
    )


def _random_uuid(randomness: Randomness) -> str:
    """UUID of version 4 as text. The module `uuid` is not used: its import inspects the machine, which takes time."""
    value = bytearray(randomness.bytes(16))
    value[6] = value[6] & 0x0F | 0x40
    value[8] = value[8] & 0x3F | 0x80
    digits = value.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _member_id_required(member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=MemberIdRequired.code, member_id=member_id)


def _replaced_member_response(
    group: ClassicGroup, member: ClassicMember, leader_before: str | None, caller: Caller
) -> JoinGroupResponse:
    """A leader that rejoins must not assign again. Without `skip_assignment`, the response names the former leader."""
    response = joined(group, member)
    if caller.api_version >= SKIPS_ASSIGNMENT_FROM:
        response.skip_assignment = group.members.leader_id == member.member_id
    else:
        response.leader, response.members = leader_before or "", []
    return response


def _with_client_reason(reason: str, request: JoinGroupRequest) -> str:
    return f"{reason} ({request.reason[:MAX_REASON_LENGTH]})" if request.reason else reason

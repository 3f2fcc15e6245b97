"""LeaveGroup of classic groups: members leave, or an administrator removes static members."""

import logging

from tidelog.errors import NO_ERROR, KafkaError, UnknownMemberId
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.classic.rebalancing import Rebalances
from tidelog.groups.classic.states import GroupState
from tidelog.groups.classic.timers import session_key
from tidelog.groups.group import NO_MEMBER, Caller
from tidelog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.replicated.machine import Effects, Reply

logger = logging.getLogger(__name__)

NAMES_MANY_FROM = 3
"""First version of LeaveGroup with a list of members."""


class Leaving:
    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances

    def leave(
        self, group: ClassicGroup | None, request: LeaveGroupRequest, caller: Caller, reply: Reply, effects: Effects
    ) -> None:
        names_many = caller.api_version >= NAMES_MANY_FROM
        leaving = request.members if names_many else [MemberIdentity(member_id=request.member_id)]
        count_before = 0 if group is None else len(group.members)
        responses = [_left(identity, group, effects) for identity in leaving]
        if group is not None:
            self._rebalance_after_leave(group, len(group.members) < count_before, effects)
        if names_many:
            effects.answer(reply, LeaveGroupResponse(members=responses))
        else:
            effects.answer(reply, LeaveGroupResponse(error_code=responses[0].error_code))

    def _rebalance_after_leave(self, group: ClassicGroup, is_smaller: bool, effects: Effects) -> None:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            if is_smaller:
                self._rebalances.prepare_rebalance(group, "members have left", effects)
        else:
            self._rebalances.complete_if_all_joined(group, effects)


def _left(identity: MemberIdentity, group: ClassicGroup | None, effects: Effects) -> MemberResponse:
    try:
        if group is None:
            raise UnknownMemberId
        _remove(group, identity, effects)
        code = NO_ERROR
    except KafkaError as error:
        code = error.code
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)


def _remove(group: ClassicGroup, identity: MemberIdentity, effects: Effects) -> None:
    member_id = identity.member_id
    if member_id in group.members.pending_ids:
        group.members.pending_ids.discard(member_id)
        effects.cancel_timer(session_key(group.group_id, member_id))
        return
    if member_id == NO_MEMBER:
        member_id = group.members.id_of_static(identity.group_instance_id) or NO_MEMBER
    member = group.check_member(member_id, identity.group_instance_id)
    logger.info("member left group group=%s member=%s reason=%s", group, member_id, identity.reason)
    group.remove(member, effects)

"""Static members of classic groups (KIP-345)."""

import pytest

from tests.groups.classic_groups import DELAY_MS, REBALANCE_MS, SESSION_MS, Coordinator, leaving
from tidelog.errors import (
    NO_ERROR,
    CoordinatorNotAvailable,
    FencedInstanceId,
    UnknownMemberId,
)
from tidelog.groups.classic.states import GroupState
from tidelog.groups.group import Membership


def test_static_member_joins_at_once_and_is_named_after_its_instance() -> None:
    coordinator = Coordinator()
    joined = coordinator.join(instance="a")
    coordinator.shard.advance(DELAY_MS)
    assert joined.joined.member_id.startswith("a-")
    assert joined.joined.members[0].group_instance_id == "a"


def test_static_member_that_is_back_keeps_its_assignment_without_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.static("a", "b")
    back = coordinator.join(instance="b").joined
    assert (back.generation_id, back.leader, back.members, back.skip_assignment) == (1, leader, [], False)
    assert back.member_id != follower
    assert coordinator.sync(back.member_id, 1, instance="b").synced.assignment == follower.encode()
    assert coordinator.group.state is GroupState.STABLE
    assert coordinator.heartbeat(leader, 1, instance="a") == NO_ERROR
    assert list(coordinator.reloaded().group.members) == [leader, back.member_id]


def test_static_leader_that_is_back_must_not_assign_again() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.static("a", "b")
    back = coordinator.join(instance="a").joined
    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert [member.member_id for member in back.members] == [back.member_id, follower]
    older = coordinator.join(instance="a", version=8).joined
    assert (older.leader, older.skip_assignment, older.members) == (back.member_id, False, [])
    assert older.member_id not in (back.member_id, leader)


def test_former_life_of_a_static_member_is_fenced() -> None:
    coordinator = Coordinator()
    (old,) = coordinator.static("a")
    new = coordinator.join(instance="a").member_id
    assert coordinator.heartbeat(old, 1, instance="a") == FencedInstanceId.code
    assert coordinator.heartbeat(old, 1) == UnknownMemberId.code
    assert coordinator.sync(old, 1, instance="a").error == FencedInstanceId.code
    assert coordinator.join(old, instance="a").error == FencedInstanceId.code
    with pytest.raises(FencedInstanceId):
        coordinator.group.check_offset_commit(Membership(old, 1, "a"), is_transactional=False, api_version=9)
    coordinator.group.check_offset_commit(Membership(new, 1, "a"), is_transactional=False, api_version=9)


def test_former_life_that_still_waits_is_fenced() -> None:
    coordinator = Coordinator()
    waiting = coordinator.join(instance="a")
    back = coordinator.join(instance="a")
    assert waiting.error == FencedInstanceId.code
    coordinator.shard.advance(DELAY_MS * 2)
    assert back.joined.generation_id == 1
    assert len(back.joined.members) == 1


def test_static_member_that_is_back_before_the_assignment_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    first, second = coordinator.join(instance="a"), coordinator.join(instance="b")
    coordinator.shard.advance(DELAY_MS * 2)
    waiting = coordinator.sync(second.member_id, 1, instance="b")
    back = coordinator.join(instance="b")
    assert waiting.error == FencedInstanceId.code
    again = coordinator.join(first.member_id, instance="a")
    assert back.joined.generation_id == again.joined.generation_id == 2


def test_static_member_that_changes_the_protocol_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    both = (("range", b"r"), ("sticky", b"s"))
    coordinator.static("a", protocols=both)
    back = coordinator.join(instance="a", protocols=both[::-1]).joined
    assert (back.generation_id, back.protocol_name) == (2, "sticky")


def test_static_member_keeps_its_place_through_a_rebalance_and_loses_it_with_its_session() -> None:
    coordinator = Coordinator()
    leader, absent = coordinator.static("a", "b", session_ms=300_000)
    joined = coordinator.join(leader, instance="a")
    coordinator.shard.advance(REBALANCE_MS)
    assert [member.member_id for member in joined.joined.members] == [leader, absent]


def test_static_members_that_are_all_away_are_waited_for() -> None:
    coordinator = Coordinator()
    first, second = coordinator.static("a", "b", session_ms=90_000, rebalance_ms=10_000)
    coordinator.leave(leaving(first))
    coordinator.shard.advance(30_000)
    assert coordinator.group.state is GroupState.PREPARING_REBALANCE
    back = coordinator.join(instance="b")
    assert back.joined.generation_id == 2
    assert back.joined.leader != second


def test_static_member_that_cannot_be_written_down_is_not_replaced() -> None:
    coordinator = Coordinator()
    (old,) = coordinator.static("a")
    coordinator.shard.rejection = CoordinatorNotAvailable()
    assert coordinator.join(instance="a").error == CoordinatorNotAvailable.code
    assert coordinator.heartbeat(old, 1, instance="a") == NO_ERROR
    assert coordinator.group.members.leader_id == old
    coordinator.shard.advance(SESSION_MS)
    assert coordinator.group.state is GroupState.EMPTY


def test_static_member_of_a_full_group_can_come_back() -> None:
    coordinator = Coordinator(group_max_size=1)
    coordinator.static("a")
    assert coordinator.join(instance="a").joined.generation_id == 1


def test_who_has_no_instance_is_not_taken_for_the_one_without_a_name() -> None:
    coordinator = Coordinator()
    (static,) = coordinator.static("")
    assert coordinator.join(version=3).is_given is False
    assert coordinator.leave(leaving("")).left.members[0].error_code == UnknownMemberId.code
    assert coordinator.group.members.static_ids == {"": static}
    assert static in coordinator.group.members


def test_static_members_with_short_timeouts_do_not_keep_the_coordinator_busy(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = Coordinator()
    coordinator.static("a", "b")
    static, other = (coordinator.join(instance=name, rebalance_ms=0, session_ms=60_000).member_id for name in "ab")
    coordinator.leave(leaving(other, "b"))
    coordinator.shard.advance(30_000)
    assert list(coordinator.group.members) == [static]
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) < 40

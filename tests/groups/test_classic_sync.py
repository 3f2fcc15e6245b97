"""Members of classic groups get their assignments, stay alive, and go."""

import pytest

from tests.groups.classic_groups import REBALANCE_MS, SESSION_MS, Coordinator
from tidelog.errors import (
    NO_ERROR,
    CoordinatorNotAvailable,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from tidelog.groups.classic.states import GroupState
from tidelog.groups.group import Membership
from tidelog.protocol.messages.leave_group import MemberIdentity


def test_follower_waits_for_the_leader_and_both_get_what_it_assigned() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    waiting = coordinator.sync(follower, 1)
    assert not waiting.is_given
    own = coordinator.sync(leader, 1, {leader: b"one", follower: b"two"})
    assert (own.synced.assignment, waiting.synced.assignment) == (b"one", b"two")
    assert (own.synced.protocol_type, own.synced.protocol_name) == ("consumer", "range")
    assert coordinator.group.state is GroupState.STABLE


def test_follower_that_asks_late_or_again_gets_its_assignment() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    coordinator.sync(leader, 1, {leader: b"one", follower: b"two"})
    assert coordinator.sync(follower, 1).synced.assignment == b"two"
    assert coordinator.sync(follower, 1).synced.assignment == b"two"
    assert coordinator.sync(leader, 1).synced.assignment == b"one"


def test_member_that_the_leader_forgot_gets_an_empty_assignment() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    coordinator.sync(leader, 1, {leader: b"one", "somebody else": b"x"})
    assert coordinator.sync(follower, 1).synced.assignment == b""


def test_old_followers_need_not_name_the_protocol() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    answered = coordinator.sync(member, 1, protocol_type=None, protocol_name=None, version=4)
    assert answered.synced.assignment == member.encode()


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name"),
    [("connect", "range"), ("consumer", "sticky"), (None, "range"), ("consumer", None)],
)
def test_sync_with_another_protocol_is_refused(protocol_type: str | None, protocol_name: str | None) -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    answered = coordinator.sync(member, 1, protocol_type=protocol_type, protocol_name=protocol_name)
    assert answered.error == InconsistentGroupProtocol.code


def test_requests_of_strangers_and_of_other_generations_are_refused() -> None:
    coordinator = Coordinator()
    assert coordinator.sync("nobody", 1).error == UnknownMemberId.code
    assert coordinator.heartbeat("nobody", 1) == UnknownMemberId.code
    (member,) = coordinator.stable(1)
    assert coordinator.sync("nobody", 1).error == UnknownMemberId.code
    assert coordinator.heartbeat("nobody", 1) == UnknownMemberId.code
    for generation in (0, 2, -1):
        assert coordinator.sync(member, generation).error == IllegalGeneration.code
        assert coordinator.heartbeat(member, generation) == IllegalGeneration.code
    assert coordinator.heartbeat(member, 1) == NO_ERROR
    assert coordinator.heartbeat(member, 1, instance="who") == UnknownMemberId.code


def test_sync_during_a_rebalance_is_sent_back_to_join() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.join(leader)
    assert coordinator.sync(follower, 1).error == RebalanceInProgress.code


@pytest.mark.parametrize(
    ("rejection", "response"),
    [
        (CoordinatorNotAvailable(), CoordinatorNotAvailable),
        (NotCoordinator(), NotCoordinator),
        (MessageTooLarge(), UnknownServerError),
    ],
)
def test_assignment_that_cannot_be_written_is_given_to_nobody(
    rejection: KafkaError, response: type[KafkaError]
) -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    waiting = coordinator.sync(follower, 1)
    coordinator.shard.rejection = rejection
    own = coordinator.sync(leader, 1, {leader: b"one", follower: b"two"})
    assert own.error == waiting.error == response.code
    assert coordinator.group.state is GroupState.PREPARING_REBALANCE

    coordinator.shard.rejection = None
    joins = [coordinator.join(leader), coordinator.join(follower)]
    assert [joined.joined.generation_id for joined in joins] == [2, 2]


def test_members_that_do_not_ask_for_their_assignment_in_time_are_out() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    coordinator.sync(leader, 1, {leader: b"one", follower: b"two"})
    for _ in range(REBALANCE_MS // 5_000):
        assert coordinator.heartbeat(follower, 1) == coordinator.heartbeat(leader, 1) == NO_ERROR
        coordinator.shard.advance(5_000)
    assert coordinator.heartbeat(follower, 1) == UnknownMemberId.code
    assert coordinator.heartbeat(leader, 1) == RebalanceInProgress.code
    assert coordinator.join(leader).joined.generation_id == 2


def test_follower_waits_for_a_leader_that_never_syncs_no_longer_than_the_rebalance_timeout() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    waiting = coordinator.sync(follower, 1)
    for _ in range(REBALANCE_MS // 5_000):
        coordinator.heartbeat(leader, 1)
        coordinator.shard.advance(5_000)
    assert waiting.error == RebalanceInProgress.code
    joined = coordinator.join(follower).joined
    assert (joined.generation_id, joined.leader) == (2, follower)


# -- sessions


def test_silent_member_is_lost_after_its_session_timeout() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.shard.advance(SESSION_MS - 1)
    assert coordinator.heartbeat(leader, 1) == NO_ERROR
    coordinator.shard.advance(1)
    assert coordinator.heartbeat(leader, 1) == RebalanceInProgress.code
    assert coordinator.heartbeat(follower, 1) == UnknownMemberId.code
    assert coordinator.join(leader).joined.generation_id == 2


def test_any_request_of_a_member_is_a_sign_of_life() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    commit = Membership(leader, 1)
    for _ in range(5):
        coordinator.shard.advance(SESSION_MS - 1)
        coordinator.join(follower)
        coordinator.shard.perform(lambda machine, effects: machine.group().on_offset_commit(commit, effects))
    coordinator.shard.advance(SESSION_MS - 1)
    assert coordinator.sync(leader, 1).synced.assignment
    assert coordinator.group.state is GroupState.STABLE


def test_member_that_waits_for_others_is_alive() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    joined = coordinator.join(leader)
    for _ in range(5):
        coordinator.shard.advance(SESSION_MS - 1)
        assert coordinator.heartbeat(follower, 1) == RebalanceInProgress.code
    coordinator.join(follower)
    assert joined.joined.generation_id == 2
    coordinator.shard.advance(SESSION_MS)
    assert coordinator.shard.machine.group().state is GroupState.EMPTY


def test_member_that_waits_for_its_assignment_is_alive_and_has_to_be_heard_of_afterwards() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    waiting = coordinator.sync(follower, 1)
    for _ in range(4):
        coordinator.shard.advance(SESSION_MS - 1)
        coordinator.heartbeat(leader, 1)
    coordinator.sync(leader, 1, {leader: b"1", follower: b"2"})
    assert waiting.synced.assignment == b"2"
    coordinator.shard.advance(SESSION_MS)
    assert coordinator.group.state is GroupState.EMPTY


def test_shorter_session_counts_from_the_rebalance_on() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1, session_ms=300_000)
    coordinator.join(member, session_ms=6_000)
    coordinator.assign(member)
    coordinator.shard.advance(6_000)
    assert coordinator.group.state is GroupState.EMPTY


def test_heartbeats_do_not_touch_timers() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    for _ in range(3):
        coordinator.shard.advance(3_000)
        before = dict(coordinator.shard.timers)
        assert coordinator.heartbeat(member, 1) == NO_ERROR
        assert coordinator.shard.timers == before


# ---- assignments that are not committed yet


def test_assignment_is_given_when_it_is_committed() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    coordinator.shard.is_behind = True
    waiting = [coordinator.sync(leader, 1, {leader: b"one", follower: b"two"}), coordinator.sync(follower, 1)]
    assert not any(each.is_given for each in waiting)
    coordinator.shard.commit()
    assert [each.synced.assignment for each in waiting] == [b"one", b"two"]


def test_assignment_that_a_rebalance_overtakes_is_not_given() -> None:
    """Otherwise a member would read partitions that have another owner (seed 31134)."""
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    coordinator.shard.is_behind = True
    waiting = [coordinator.sync(leader, 1, {leader: b"one", follower: b"two"}), coordinator.sync(follower, 1)]
    newcomer = coordinator.join("")
    coordinator.join(newcomer.member_id)
    assert [each.error for each in waiting] == [RebalanceInProgress.code] * 2
    coordinator.shard.commit()
    assert [each.error for each in waiting] == [RebalanceInProgress.code] * 2


def test_member_that_waits_for_the_commit_is_alive_and_has_to_be_heard_of_afterwards() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    coordinator.shard.is_behind = True
    own = coordinator.sync(leader, 1, {leader: b"one", follower: b"two"})
    waiting = coordinator.sync(follower, 1)
    coordinator.shard.advance(3 * SESSION_MS)
    assert coordinator.group.state is GroupState.STABLE
    coordinator.shard.commit()
    assert (own.synced.assignment, waiting.synced.assignment) == (b"one", b"two")
    coordinator.shard.advance(2 * SESSION_MS)
    assert coordinator.group.is_empty


def test_session_begins_again_with_an_assignment_that_was_committed_late() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    coordinator.shard.is_behind = True
    coordinator.sync(leader, 1, {leader: b"one", follower: b"two"})
    waiting = coordinator.sync(follower, 1)
    coordinator.shard.advance(SESSION_MS - 1)
    coordinator.shard.commit()
    assert waiting.synced.assignment == b"two"
    coordinator.shard.advance(SESSION_MS - 1)
    assert set(coordinator.group.members) == {leader, follower}
    coordinator.shard.advance(1)
    assert coordinator.group.is_empty


def test_member_that_asks_again_before_the_commit_gets_one_assignment() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    coordinator.shard.is_behind = True
    first = coordinator.sync(leader, 1, {leader: b"one", follower: b"two"})
    second = coordinator.sync(leader, 1)
    coordinator.shard.commit()
    assert first.error == RebalanceInProgress.code
    assert second.synced.assignment == b"one"


def test_assignment_is_not_given_to_a_member_that_has_left() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    coordinator.shard.is_behind = True
    own = coordinator.sync(leader, 1, {leader: b"one", follower: b"two"})
    coordinator.leave(MemberIdentity(member_id=leader))
    coordinator.shard.commit()
    assert own.error == UnknownMemberId.code

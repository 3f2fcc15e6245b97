"""Members leave classic groups, and coordinators leave members."""

from tests.groups.classic_groups import DELAY_MS, SESSION_MS, Answered, Coordinator, leaving
from tidelog.errors import (
    NO_ERROR,
    CoordinatorNotAvailable,
    FencedInstanceId,
    IllegalGeneration,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from tidelog.groups.classic.rebalancing import UNSTORED_RETRY_MS
from tidelog.groups.classic.states import GroupState


def test_group_that_everybody_has_left_is_empty_and_written_so() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable(2)
    assert coordinator.leave(leaving(first)).left.members[0].error_code == NO_ERROR
    assert coordinator.heartbeat(second, 1) == RebalanceInProgress.code
    coordinator.leave(leaving(second))
    assert coordinator.group.state is GroupState.EMPTY
    value = coordinator.written()[-1]
    assert value is not None
    assert (value.generation, value.protocol_type, value.protocol, value.leader) == (2, "consumer", None, None)
    assert value.members == []
    assert coordinator.shard.timers == {}


def test_each_member_of_a_batch_has_its_own_error() -> None:
    coordinator = Coordinator()
    (static,) = coordinator.static("a")
    pending = coordinator.join().member_id
    answered = coordinator.leave(
        leaving("nobody"), leaving("", "b"), leaving(""), leaving("older", "a"), leaving(pending), leaving("", "a")
    )
    assert [(member.member_id, member.group_instance_id, member.error_code) for member in answered.left.members] == [
        ("nobody", None, UnknownMemberId.code),
        ("", "b", UnknownMemberId.code),
        ("", None, UnknownMemberId.code),
        ("older", "a", FencedInstanceId.code),
        (pending, None, NO_ERROR),
        ("", "a", NO_ERROR),
    ]
    assert static not in coordinator.group.members
    assert coordinator.group.state is GroupState.EMPTY


def test_old_clients_leave_one_at_a_time() -> None:
    coordinator = Coordinator()
    assert coordinator.leave(member_id="nobody", version=2).error == UnknownMemberId.code
    (member,) = coordinator.stable(1)
    assert coordinator.leave(member_id="nobody", version=2).error == UnknownMemberId.code
    assert coordinator.leave(member_id=member, version=0).error == NO_ERROR
    assert coordinator.group.state is GroupState.EMPTY


def test_members_of_a_group_that_is_not_there_are_unknown() -> None:
    (response,) = Coordinator().leave(leaving("m", "i")).left.members
    assert (response.member_id, response.group_instance_id, response.error_code) == ("m", "i", UnknownMemberId.code)


def test_a_member_that_leaves_while_waiting_is_answered() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    waiting = coordinator.sync(follower, 1)
    coordinator.leave(leaving(follower))
    assert waiting.error == UnknownMemberId.code
    joined = coordinator.join(leader)
    assert joined.joined.generation_id == 2
    third, parked = coordinator.enter()
    coordinator.leave(leaving(third))
    assert parked.error == UnknownMemberId.code


def test_rebalance_goes_on_when_the_one_it_waits_for_leaves() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    joined = coordinator.join(leader)
    coordinator.leave(leaving(follower))
    assert joined.joined.generation_id == 2


def test_leaving_that_cannot_be_written_fails_but_the_member_is_gone() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    coordinator.shard.rejection = CoordinatorNotAvailable()
    assert coordinator.leave(leaving(member)).error == CoordinatorNotAvailable.code
    assert coordinator.group.state is GroupState.EMPTY
    coordinator.shard.rejection = None
    _, joined = coordinator.enter()
    coordinator.shard.advance(DELAY_MS)
    assert joined.joined.generation_id == 3


def test_an_empty_generation_that_cannot_be_written_is_written_later() -> None:
    """Seed 150230: a new coordinator loaded members that had left."""
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    coordinator.shard.rejection = CoordinatorNotAvailable()
    coordinator.leave(leaving(member))
    coordinator.shard.advance(UNSTORED_RETRY_MS)
    coordinator.shard.rejection = None
    assert coordinator.reloaded().group.generation == 1
    coordinator.shard.advance(UNSTORED_RETRY_MS)
    other = coordinator.reloaded()
    assert (other.group.state, other.group.generation) == (GroupState.EMPTY, 2)
    count = len(coordinator.written())
    coordinator.shard.advance(10 * UNSTORED_RETRY_MS)
    assert len(coordinator.written()) == count


# -- a new coordinator


def test_new_coordinator_knows_the_generation_and_watches_its_members() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable(2)
    other = coordinator.reloaded()
    assert other.group.state_name == "Stable"
    assert other.heartbeat(first, 1) == other.heartbeat(second, 1) == NO_ERROR
    assert other.sync(second, 1).synced.assignment == second.encode()
    other.shard.advance(SESSION_MS)
    assert other.group.state is GroupState.EMPTY


def test_new_coordinator_notices_members_that_it_never_heard() -> None:
    coordinator = Coordinator()
    coordinator.stable(2)
    other = coordinator.reloaded()
    other.shard.advance(SESSION_MS - 1)
    assert len(other.group.members) == 2
    other.shard.advance(1)
    assert other.group.state is GroupState.EMPTY


def test_generation_that_had_no_assignment_yet_is_forgotten() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable(2)
    coordinator.join(first)
    coordinator.join(second)
    assert coordinator.group.generation == 2
    other = coordinator.reloaded()
    assert (other.group.generation, other.group.state) == (1, GroupState.STABLE)
    assert other.heartbeat(first, 2) == IllegalGeneration.code


def test_a_member_that_waits_for_an_assignment_hears_that_the_coordinator_has_moved() -> None:
    coordinator = Coordinator()
    _, follower = coordinator.two_that_have_joined()
    waiting: Answered = coordinator.sync(follower, 1)
    coordinator.shard.perform(lambda machine, effects: machine.on_unloaded(effects))
    assert waiting.error == NotCoordinator.code


def test_group_that_was_deleted_is_gone() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    coordinator.leave(leaving(member))
    coordinator.shard.perform(lambda machine, effects: machine.group().write_tombstones(effects))
    assert coordinator.shard.machine.groups == {}
    assert coordinator.reloaded().shard.machine.groups == {}
    assert coordinator.heartbeat(member, 1) == UnknownMemberId.code

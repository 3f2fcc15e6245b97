"""Members join classic groups."""

import uuid

import pytest

from tests.groups.classic_groups import DELAY_MS, GROUP, REBALANCE_MS, SESSION_MS, Coordinator
from tidelog.errors import (
    NO_ERROR,
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from tidelog.groups.classic.states import GroupState

TWO_PROTOCOLS = (("sticky", b"s"), ("range", b"r"))


def test_first_member_is_given_an_id_joins_with_it_and_leads() -> None:
    coordinator = Coordinator()

    first = coordinator.join(client_id="app")
    assert first.error == MemberIdRequired.code
    assert first.member_id.startswith("app-")
    assert uuid.UUID(first.member_id.removeprefix("app-")).version == 4
    joined = coordinator.join(first.member_id)
    assert not joined.is_given
    coordinator.shard.advance(DELAY_MS)

    response = joined.joined
    assert (response.generation_id, response.leader, response.member_id) == (1, first.member_id, first.member_id)
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert [(member.member_id, member.metadata) for member in response.members] == [(first.member_id, b"wants t")]
    assert not response.skip_assignment
    assert coordinator.group.state is GroupState.COMPLETING_REBALANCE


def test_old_clients_join_without_being_given_an_id_first() -> None:
    coordinator = Coordinator()
    joined = coordinator.join(version=3)
    coordinator.shard.advance(DELAY_MS)
    assert joined.joined.leader == joined.joined.member_id != ""


def test_oldest_clients_have_their_session_timeout_as_rebalance_timeout() -> None:
    coordinator = Coordinator()
    coordinator.join(version=0, session_ms=SESSION_MS, rebalance_ms=-1)
    (member,) = coordinator.group.members.values()
    assert member.rebalance_timeout_ms == SESSION_MS


def test_without_initial_delay_the_first_member_is_answered_at_once() -> None:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=0)
    _, joined = coordinator.enter()
    assert joined.joined.generation_id == 1


def test_initial_delay_is_prolonged_while_members_join_but_not_beyond_the_rebalance_timeout() -> None:
    coordinator = Coordinator()
    _, first = coordinator.enter(rebalance_ms=10_000)
    joins = [first]
    for _ in range(9):
        coordinator.shard.advance(1_000)
        assert not first.is_given
        joins.append(coordinator.enter(rebalance_ms=10_000)[1])
    coordinator.shard.advance(1_000)
    assert {joined.joined.generation_id for joined in joins} == {1}
    assert len(first.joined.members) == 10


def test_initial_delay_ends_when_nobody_new_joins() -> None:
    coordinator = Coordinator()
    _, first = coordinator.enter()
    coordinator.shard.advance(DELAY_MS - 1)
    _, second = coordinator.enter()
    coordinator.shard.advance(DELAY_MS)
    assert not first.is_given
    coordinator.shard.advance(1)
    assert first.joined.generation_id == second.joined.generation_id == 1
    assert second.joined.members == []


@pytest.mark.parametrize("options", [{"protocol_type": ""}, {"protocols": ()}])
def test_refused_member_does_not_create_a_group(options: dict[str, object]) -> None:
    coordinator = Coordinator()
    assert coordinator.join(**options).error == InconsistentGroupProtocol.code  # type: ignore[arg-type]
    assert coordinator.shard.machine.groups == {}
    assert coordinator.shard.log == []


def test_group_without_name_is_refused() -> None:
    coordinator = Coordinator()
    assert coordinator.join(group_id="").error == InvalidGroupId.code
    assert coordinator.sync("m", 1, group_id="").error == InvalidGroupId.code
    assert coordinator.heartbeat("m", 1, group_id="") == InvalidGroupId.code
    assert coordinator.leave(group_id="").error == InvalidGroupId.code
    assert coordinator.shard.machine.groups == {}


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, -1])
def test_session_timeout_outside_the_bounds_is_refused(session_ms: int) -> None:
    coordinator = Coordinator()
    assert coordinator.join(session_ms=session_ms).error == InvalidSessionTimeout.code
    assert coordinator.shard.machine.groups == {}


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_session_timeout_at_the_bounds_is_taken(session_ms: int) -> None:
    assert Coordinator().join(session_ms=session_ms).error == MemberIdRequired.code


def test_member_id_that_was_never_given_is_unknown() -> None:
    coordinator = Coordinator()
    assert coordinator.join("made-up").error == UnknownMemberId.code
    assert coordinator.shard.machine.groups == {}
    coordinator.stable(1)
    assert coordinator.join("made-up").error == UnknownMemberId.code


def test_member_of_another_kind_or_protocol_is_refused() -> None:
    coordinator = Coordinator()
    coordinator.stable(1)
    assert coordinator.join(protocol_type="connect").error == InconsistentGroupProtocol.code
    assert coordinator.join(protocols=(("sticky", b""),)).error == InconsistentGroupProtocol.code
    assert coordinator.group.state is GroupState.STABLE


def test_protocol_that_all_support_and_most_like_best_is_chosen() -> None:
    coordinator = Coordinator()
    joins = [
        coordinator.enter(protocols=protocols)[1]
        for protocols in (TWO_PROTOCOLS, TWO_PROTOCOLS, TWO_PROTOCOLS[::-1], (*TWO_PROTOCOLS[::-1], ("own", b"")))
    ]
    joins.append(coordinator.enter(protocols=TWO_PROTOCOLS)[1])
    coordinator.shard.advance(DELAY_MS * 2)
    assert {joined.joined.protocol_name for joined in joins} == {"sticky"}
    assert joins[0].joined.members[0].metadata == b"s"


def test_group_has_no_more_members_than_it_may() -> None:
    coordinator = Coordinator(group_max_size=2)
    coordinator.stable(2)
    assert coordinator.join().error == GroupMaxSizeReached.code
    assert coordinator.join(version=3).error == GroupMaxSizeReached.code
    assert len(coordinator.group.members) == 2


def test_last_to_join_is_refused_when_more_were_given_ids_than_fit() -> None:
    coordinator = Coordinator(group_max_size=2)
    ids = [coordinator.join().member_id for _ in range(3)]
    joins = [coordinator.join(member_id) for member_id in ids]
    assert joins[2].error == GroupMaxSizeReached.code
    coordinator.shard.advance(DELAY_MS * 2)
    assert [joined.joined.generation_id for joined in joins[:2]] == [1, 1]


def test_group_that_is_too_large_when_loaded_loses_the_last_to_join() -> None:
    coordinator = Coordinator()
    members = coordinator.stable(3)
    smaller = Coordinator(group_max_size=2)
    smaller.shard.log.extend(coordinator.shard.log)
    smaller = smaller.reloaded()
    assert smaller.group.state is GroupState.PREPARING_REBALANCE
    joins = [smaller.join(member_id) for member_id in members]
    assert joins[2].error == GroupMaxSizeReached.code
    assert [joined.joined.generation_id for joined in joins[:2]] == [2, 2]


def test_member_that_never_joins_with_its_id_is_forgotten() -> None:
    coordinator = Coordinator()
    first = coordinator.stable(1)[0]
    pending = coordinator.join().member_id
    joined = coordinator.join(first)
    assert not joined.is_given, "the one that was given an id is waited for"
    coordinator.shard.advance(SESSION_MS)
    assert joined.joined.generation_id == 2
    assert coordinator.join(pending).error == UnknownMemberId.code


def test_new_member_makes_the_others_join_again() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable(2)
    third, joined = coordinator.enter()
    assert not joined.is_given
    assert coordinator.heartbeat(first, 1) == RebalanceInProgress.code
    again = [coordinator.join(first), coordinator.join(second)]
    assert {each.joined.generation_id for each in (joined, *again)} == {2}
    assert again[0].joined.leader == first
    assert [member.member_id for member in again[0].joined.members] == [first, second, third]


def test_members_that_do_not_join_again_in_time_are_out() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable(2)
    third, joined = coordinator.enter()
    again = coordinator.join(second)
    for _ in range(REBALANCE_MS // 5_000):
        assert coordinator.heartbeat(first, 1) == RebalanceInProgress.code
        assert not joined.is_given
        coordinator.shard.advance(5_000)
    assert joined.joined.generation_id == again.joined.generation_id == 2
    assert joined.joined.leader == second
    assert [member.member_id for member in again.joined.members] == [second, third]
    assert coordinator.heartbeat(first, 1) == UnknownMemberId.code


def test_leader_that_joins_again_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    joined = coordinator.join(leader)
    assert coordinator.heartbeat(follower, 1) == RebalanceInProgress.code
    coordinator.join(follower)
    assert joined.joined.generation_id == 2


def test_follower_that_joins_again_unchanged_gets_the_generation() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    response = coordinator.join(follower).joined
    assert (response.generation_id, response.leader, response.members) == (1, leader, [])
    assert coordinator.group.state is GroupState.STABLE


def test_follower_with_other_metadata_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    joined = coordinator.join(follower, protocols=(("range", b"wants u"),))
    assert not joined.is_given
    again = coordinator.join(leader)
    assert [member.metadata for member in again.joined.members] == [b"wants t", b"wants u"]


def test_answer_that_was_lost_is_given_again_before_the_assignment() -> None:
    coordinator = Coordinator()
    leader, first = coordinator.enter()
    coordinator.shard.advance(DELAY_MS)
    assert coordinator.join(leader).joined == first.joined
    assert coordinator.group.state is GroupState.COMPLETING_REBALANCE


def test_other_metadata_before_the_assignment_starts_again() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.enter()
    follower, _ = coordinator.enter()
    coordinator.shard.advance(DELAY_MS * 2)
    waiting = coordinator.sync(follower, 1)
    joined = coordinator.join(leader, protocols=(("range", b"wants u"),))
    assert waiting.error == RebalanceInProgress.code
    coordinator.join(follower)
    assert joined.joined.generation_id == 2


def test_request_that_is_sent_twice_is_answered_twice() -> None:
    coordinator = Coordinator()
    member_id, first = coordinator.enter()
    second = coordinator.join(member_id)
    assert first.error == RebalanceInProgress.code
    coordinator.shard.advance(DELAY_MS)
    assert second.joined.generation_id == 1


def test_new_group_is_written_down_before_anybody_is_in_it() -> None:
    coordinator = Coordinator()
    coordinator.join()
    (value,) = coordinator.written()
    assert value is not None
    assert (value.generation, value.protocol_type, value.protocol, value.leader) == (0, "", None, None)
    assert value.current_state_timestamp == coordinator.shard.now_ms
    assert coordinator.reloaded().group.state is GroupState.EMPTY


@pytest.mark.parametrize("delay_ms", [0, DELAY_MS])
def test_group_that_cannot_be_written_down_is_not_there(delay_ms: int) -> None:
    coordinator = Coordinator(group_initial_rebalance_delay_ms=delay_ms)
    coordinator.shard.rejection = CoordinatorNotAvailable()
    assert coordinator.join(version=3).error == CoordinatorNotAvailable.code
    assert coordinator.shard.machine.groups == {}
    assert coordinator.shard.timers == {}
    coordinator.shard.rejection = None
    assert coordinator.join().error == MemberIdRequired.code


def test_a_member_that_waits_hears_that_the_coordinator_has_moved() -> None:
    coordinator = Coordinator()
    _, joined = coordinator.enter()
    coordinator.shard.perform(lambda machine, effects: machine.on_unloaded(effects))
    assert joined.error == NotCoordinator.code
    assert coordinator.group.state is GroupState.DEAD


def test_first_join_of_a_member_does_not_wait_for_ever() -> None:
    coordinator = Coordinator()
    first = coordinator.stable(1, rebalance_ms=3_600_000)[0]
    second, joined = coordinator.enter()
    for _ in range(60):
        coordinator.shard.advance(5_000)
        coordinator.heartbeat(first, 1)
    assert joined.error == UnknownMemberId.code
    assert second not in coordinator.group.members


def test_groups_do_not_share_anything() -> None:
    coordinator = Coordinator()
    coordinator.stable(1)
    assert coordinator.join(group_id="others", protocol_type="connect").error == MemberIdRequired.code
    assert set(coordinator.shard.machine.groups) == {GROUP, "others"}
    assert coordinator.group.state is GroupState.STABLE


def test_member_that_joins_an_empty_group_again_brings_its_own_protocol() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    assert coordinator.leave(member_id=member, version=1).error == NO_ERROR
    _, joined = coordinator.enter(protocol_type="connect", protocols=(("compatible", b"c"),))
    coordinator.shard.advance(DELAY_MS)
    response = joined.joined
    assert (response.generation_id, response.protocol_type, response.protocol_name) == (3, "connect", "compatible")


def test_an_id_fits_into_a_text_however_long_the_name_of_the_client() -> None:
    coordinator = Coordinator()
    joined = coordinator.join(instance="x" * 32_767)
    coordinator.shard.advance(DELAY_MS * 2)
    assert len(joined.joined.member_id) < 2_000

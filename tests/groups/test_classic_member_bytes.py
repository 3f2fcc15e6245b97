"""Limits on the bytes of classic members: what their group could store, and a bound over all groups."""

import pytest

from tests.groups.classic_groups import DELAY_MS, SESSION_MS, Coordinator, leaving
from tests.groups.shard_of_groups import Clients, a_shard
from tidelog.errors import CoordinatorNotAvailable, GroupMaxSizeReached, MemberIdRequired, UnknownServerError
from tidelog.groups import statistics
from tidelog.groups.classic.rebalancing import listed
from tidelog.groups.classic.states import GroupState
from tidelog.replicated.machine import DEFAULT_MAX_RECORD_BYTES, Effects, SetTimer

HALF = b"m" * (DEFAULT_MAX_RECORD_BYTES // 2)


def held(coordinator: Coordinator) -> int:
    return coordinator.shard.machine.classic.counts.member_bytes


def test_a_group_that_no_record_could_hold_takes_no_more_members() -> None:
    coordinator = Coordinator()
    coordinator.join(protocols=(("range", HALF),), version=3)
    assert coordinator.join(protocols=(("range", HALF),), version=3).error == GroupMaxSizeReached.code
    assert not coordinator.join(version=3).is_given
    assert len(coordinator.group.members) == 2


def test_one_member_that_no_record_could_hold_makes_no_group() -> None:
    coordinator = Coordinator()
    assert coordinator.join(protocols=(("range", HALF * 3),)).error == GroupMaxSizeReached.code
    assert coordinator.shard.machine.groups == {}
    assert coordinator.shard.log == []


def test_a_member_that_brings_more_each_time_is_refused_at_the_bound() -> None:
    coordinator = Coordinator()
    (member_id,) = coordinator.stable(1)
    assert coordinator.join(member_id, protocols=(("range", HALF * 3),)).error == GroupMaxSizeReached.code
    assert coordinator.join(member_id, protocols=(("range", HALF),)).joined.member_id == member_id


def test_metadata_of_protocols_that_are_not_chosen_counts_too() -> None:
    coordinator = Coordinator()
    protocols = (("range", b""), *((f"other-{number}", HALF) for number in range(8)))
    assert coordinator.join(protocols=protocols, version=3).error == GroupMaxSizeReached.code
    assert not coordinator.join(protocols=protocols[:7], version=3).is_given


def test_ids_that_nobody_joins_with_are_bounded() -> None:
    coordinator = Coordinator()
    answers = [coordinator.join(client_id="c" * 1000).error for _ in range(2000)]
    assert answers.count(MemberIdRequired.code) < 1000
    assert answers[-1] == GroupMaxSizeReached.code
    coordinator.shard.advance(SESSION_MS)
    assert coordinator.join(client_id="c" * 1000).error == MemberIdRequired.code


def test_members_of_all_groups_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_MEMBER_BYTES", 4 * len(HALF))
    coordinator = Coordinator()
    joins = [coordinator.join(group_id=f"g{number}", protocols=(("range", HALF),), version=3) for number in range(4)]
    assert [each.is_given for each in joins] == [False, False, False, True]
    assert joins[-1].error == CoordinatorNotAvailable.code  # which clients retry
    coordinator.shard.advance(DELAY_MS + 2 * SESSION_MS + 60_000)
    assert held(coordinator) == 0
    assert not coordinator.join(group_id="g3", protocols=(("range", HALF),), version=3).is_given


def test_bytes_are_counted_until_members_are_gone() -> None:
    coordinator = Coordinator()
    coordinator.static("one", "two")
    before = held(coordinator)
    coordinator.join(instance="one")  # another id for the same member
    members = coordinator.group.members
    assert before == held(coordinator) == members.held_bytes + members.assigned_bytes
    coordinator.shard.perform(lambda machine, effects: machine.on_unloaded(effects))
    assert held(coordinator) == 0


def test_a_loaded_group_is_counted_once() -> None:
    coordinator = Coordinator()
    coordinator.stable(3)
    assert held(coordinator.reloaded()) == held(coordinator) > 0


def test_members_of_a_group_that_had_only_offsets_are_counted() -> None:
    clients = Clients(a_shard())
    clients.commit(1)
    clients.join()
    assert clients.shard.machine.classic.counts.member_bytes > 0


def test_a_generation_sets_no_timer_for_each_of_its_members() -> None:
    coordinator = Coordinator()
    for _ in range(50):
        coordinator.join(version=3)
    effects = Effects(coordinator.shard.now_ms, coordinator.shard.monotonic_ms)
    coordinator.shard.machine.classic.rebalances.complete_join(coordinator.group, effects)
    assert len(effects.responses) == 50
    assert len([timer for timer in effects.timers if isinstance(timer, SetTimer)]) == 1  # of the sync phase


def test_log_lines_name_members_only_up_to_a_number() -> None:
    assert listed(["b", "a"]) == "a,b"
    assert listed(map(str, range(10_000))).endswith(" and 9980 more")


# -- assignments


def test_an_assignment_that_only_compression_makes_small_enough_is_refused() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.two_that_have_joined()
    waiting = coordinator.sync(follower, 1)
    refused = coordinator.sync(leader, 1, {follower: bytes(5 * DEFAULT_MAX_RECORD_BYTES)})
    assert refused.error == waiting.error == UnknownServerError.code
    assert coordinator.group.state is GroupState.PREPARING_REBALANCE


def test_assignments_of_all_groups_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_MEMBER_BYTES", 3 * len(HALF))
    coordinator = Coordinator(group_initial_rebalance_delay_ms=0)
    errors = []
    for number in range(4):
        group_id = f"g{number}"
        member_id = coordinator.join(group_id=group_id, version=3).joined.member_id
        errors.append(coordinator.sync(member_id, 1, {member_id: HALF}, group_id=group_id).error)
    assert errors == [0, 0, CoordinatorNotAvailable.code, CoordinatorNotAvailable.code]


def test_assignments_count_until_their_group_has_others_or_none() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable(2)
    members = coordinator.group.members
    assert held(coordinator) == members.held_bytes + len(first) + len(second)
    assert held(coordinator.reloaded()) == held(coordinator)
    coordinator.leave(leaving(second))
    assert held(coordinator) == members.held_bytes + len(first)
    coordinator.leave(leaving(first))
    assert held(coordinator) == 0


def test_assignments_of_static_members_that_come_back_count_once() -> None:
    coordinator = Coordinator()
    coordinator.static("one", "two")
    before = held(coordinator) - sum(map(len, coordinator.group.members))
    coordinator.join(instance="two")
    assert held(coordinator) - sum(map(len, coordinator.group.members)) == before

"""Elections by incarnations, eligible leader replicas and the ends of logs (R41, R42)."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog.cluster.image import PartitionRegistration, Topic
from tidelog.controller.context import ControllerContext
from tidelog.controller.elections import (
    NO_STATE_VERSION,
    UNKNOWN_LOG_END,
    Decision,
    Health,
    LogEnd,
    controlled_shutdown_leader_election,
    missing_members,
    preferred_replica_leader_election,
    replicas_to_query,
    unclean_leader_election,
    updated_leader_and_isr,
)
from tidelog.types import ZERO_UUID, TopicPartition

RECORDED = {1: 10, 2: 20, 3: 30}
"""Incarnations in which the states below were written."""
PRESENT = {1: 11, 2: 21, 3: 31}
"""Incarnations of those that restarted since."""
EVERYBODY = frozenset({1, 2, 3})


def partition(leader: int, in_sync: tuple[int, ...], eligible: tuple[int, ...] = ()) -> PartitionRegistration:
    return PartitionRegistration(
        0,
        (1, 2, 3),
        leader,
        7,
        in_sync,
        version=5,
        in_sync_epochs={each: RECORDED[each] for each in in_sync},
        eligible_leader_replicas=eligible,
        eligible_leader_epochs={each: RECORDED[each] for each in eligible},
    )


def health(
    *online: int,
    restarted: tuple[int, ...] = (),
    clean: tuple[int, ...] = (),
    lost: tuple[int, ...] = (),
    doubtful: tuple[int, ...] = (),
    shutting_down: tuple[int, ...] = (),
    responses: Mapping[int, tuple[int, int]] | None = None,
    min_in_sync: int = 2,
) -> Health:
    back = {*restarted, *clean, *lost, *doubtful}
    return Health(
        frozenset(online),
        frozenset(back),
        frozenset(shutting_down),
        frozenset(clean),
        frozenset(lost),
        frozenset(doubtful),
        epochs={each: PRESENT[each] if each in back else RECORDED[each] for each in online},
        responses={each: LogEnd(*end) for each, end in (responses or {}).items()},
        min_in_sync=min_in_sync,
    )


def outcome_of(decision: Decision | None) -> tuple[int, dict[int, int], dict[int, int]] | None:
    """Leader, in-sync replicas and eligible replicas, with their incarnations."""
    if decision is None:
        return None
    found = decision.partition
    assert tuple(found.in_sync_epochs) == found.in_sync_replicas, "somebody is in sync in no incarnation (R41)"
    assert tuple(found.eligible_leader_epochs) == found.eligible_leader_replicas
    return found.leader, dict(found.in_sync_epochs), dict(found.eligible_leader_epochs)


# ---- incarnations (R41)


def test_the_first_state_names_the_incarnations_of_all_who_are_in_sync() -> None:
    partition_without_leader = PartitionRegistration(0, (1, 2, 3), -1, 0, (), version=NO_STATE_VERSION)
    assert outcome_of(updated_leader_and_isr(partition_without_leader, health(1, 3))) == (1, {1: 10, 3: 30}, {})


def test_an_election_names_the_incarnations_of_all_who_are_in_sync_also_of_the_leader() -> None:
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2, 3)), health(2, 3))) == (2, {2: 20, 3: 30}, {})
    assert outcome_of(preferred_replica_leader_election(partition(2, (1, 2, 3)), health(1, 2, 3))) == (
        1,
        {1: 10, 2: 20, 3: 30},
        {},
    )
    assert outcome_of(
        controlled_shutdown_leader_election(partition(1, (1, 2, 3)), health(1, 2, 3, shutting_down=(1,)))
    ) == (
        2,
        {2: 20, 3: 30},
        {},
    )
    unclean = unclean_leader_election(partition(-1, (1,)), health(3))
    assert outcome_of(unclean) == (3, {3: 30}, {})
    assert unclean is not None
    assert unclean.is_unclean


def test_who_is_kept_though_it_is_away_or_came_back_keeps_the_incarnation_that_was_in_sync() -> None:
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2)), health(3))) == (-1, {1: 10, 2: 20}, {})
    assert outcome_of(preferred_replica_leader_election(partition(2, (1, 2, 3)), health(1, 2, restarted=(3,)))) == (
        1,
        {1: 10, 2: 20, 3: 30},
        {},
    )


def test_a_state_without_incarnations_gets_those_of_now() -> None:
    """It was written by Kafka, or by an earlier version."""
    before = replace(partition(1, (1, 2, 3)), in_sync_epochs={})
    assert outcome_of(updated_leader_and_isr(before, health(1, 2))) == (1, {1: 10, 2: 20}, {})
    decision = updated_leader_and_isr(before, health(2))
    assert decision is not None
    assert (decision.partition.eligible_leader_replicas, decision.partition.eligible_leader_epochs) == ((1, 3), {})


# ---- clean restarts


def test_a_broker_that_restarted_cleanly_is_as_good_as_before() -> None:
    back = health(1, 2, 3, clean=(1, 2, 3))
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2, 3)), back)) == (1, PRESENT, {})
    assert outcome_of(updated_leader_and_isr(partition(-1, (2,), (1,)), health(1, clean=(1,)))) == (1, {1: 11}, {2: 20})


def test_a_follower_that_restarted_cleanly_leaves_a_leader_that_did_not_and_stays_eligible() -> None:
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2)), health(1, 2, clean=(2,)))) == (1, {1: 10}, {2: 20})


# ---- eligible leader replicas (R42)


def test_who_leaves_below_min_isr_becomes_eligible() -> None:
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2, 3)), health(1, 2))) == (1, {1: 10, 2: 20}, {})
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2)), health(1))) == (1, {1: 10}, {2: 20})
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2, 3)), health(3))) == (3, {3: 30}, {1: 10, 2: 20})
    assert outcome_of(controlled_shutdown_leader_election(partition(1, (1, 2)), health(1, 2, shutting_down=(1,)))) == (
        2,
        {2: 20},
        {1: 10},
    )


def test_who_is_eligible_stays_so_until_enough_are_in_sync() -> None:
    assert outcome_of(updated_leader_and_isr(partition(1, (1,), (2, 3)), health(2, 3))) == (2, {2: 20}, {1: 10, 3: 30})
    before = partition(2, (1, 2, 3), eligible=())
    assert outcome_of(
        preferred_replica_leader_election(replace(before, eligible_leader_replicas=(3,)), health(1, 2, 3))
    ) == (
        1,
        RECORDED,
        {},
    )


def test_min_isr_is_never_more_than_there_are_replicas() -> None:
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2, 3)), health(1, 2, min_in_sync=9))) == (
        1,
        {1: 10, 2: 20},
        {3: 30},
    )
    alone = PartitionRegistration(0, (1,), 1, 7, (1,), version=5, in_sync_epochs={1: 10})
    assert outcome_of(updated_leader_and_isr(alone, health(1, restarted=(1,), min_in_sync=9))) == (1, {1: 11}, {})


def test_an_eligible_replica_leads_where_nobody_in_sync_can() -> None:
    assert outcome_of(updated_leader_and_isr(partition(1, (1,), (3,)), health(2, 3))) == (3, {3: 30}, {1: 10})
    assert outcome_of(updated_leader_and_isr(partition(1, (1,), (3,)), health(1, 3, restarted=(1,)))) == (
        3,
        {3: 30},
        {1: 10},
    )
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2), (3,)), health(2, 3))) == (2, {2: 20}, {1: 10, 3: 30})


def test_after_an_unclean_election_nobody_else_is_eligible() -> None:
    decision = updated_leader_and_isr(partition(1, (1,), (2,)), health(3), unclean_allowed=True)
    assert outcome_of(decision) == (3, {3: 30}, {})


# ---- unclean restarts


def test_those_who_restarted_uncleanly_are_asked_before_one_leads() -> None:
    back = health(1, 2, restarted=(1, 2))
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2), (3,)), back)) == (-1, {1: 10, 2: 20}, {3: 30})
    waiting = partition(-1, (1, 2), (3,))
    assert replicas_to_query(waiting, back) == {1, 2}
    assert updated_leader_and_isr(waiting, back) is None
    one = health(1, 2, restarted=(1, 2), responses={2: (6, 90)})
    assert replicas_to_query(waiting, one) == {1}
    assert updated_leader_and_isr(waiting, one) is None
    both = health(1, 2, restarted=(1, 2), responses={2: (6, 90), 1: (6, 80)})
    assert replicas_to_query(waiting, both) == set()
    assert outcome_of(updated_leader_and_isr(waiting, both)) == (2, {2: 21}, {1: 10, 3: 30})


def test_the_later_epoch_counts_more_than_the_longer_log() -> None:
    known = health(1, 2, restarted=(1, 2), responses={1: (5, 900), 2: (6, 90)})
    assert outcome_of(updated_leader_and_isr(partition(-1, (1, 2)), known)) == (2, {2: 21}, {1: 10})


def test_of_equal_logs_the_first_in_order_of_assignment_leads() -> None:
    known = health(1, 2, 3, restarted=(1, 2, 3), responses={3: (5, 9), 2: (5, 9), 1: (5, 8)})
    assert outcome_of(updated_leader_and_isr(partition(-1, (1, 2, 3)), known)) == (2, {2: 21}, {1: 10, 3: 30})


def test_nobody_is_asked_where_somebody_can_be_trusted() -> None:
    assert replicas_to_query(partition(-1, (1, 2)), health(1, 2, restarted=(1,))) == set()
    assert replicas_to_query(partition(1, (1, 2)), health(1, 2, restarted=(1, 2))) == set()


def test_a_lost_disk_counts_as_one_of_those_that_may_be_lost() -> None:
    """Fewer than min ISR lose their disks: the others then have everything."""
    waiting = partition(-1, (1, 2, 3))
    alone = health(2, restarted=(2,), responses={2: (5, 9)})
    assert updated_leader_and_isr(waiting, alone) is None
    with_lost = health(1, 2, restarted=(2,), lost=(1,), responses={2: (5, 9)})
    assert outcome_of(updated_leader_and_isr(waiting, with_lost)) == (2, {2: 21}, {1: 10, 3: 30})


def test_a_lost_disk_does_not_lead() -> None:
    waiting = partition(-1, (1, 2, 3))
    assert replicas_to_query(waiting, health(1, lost=(1,))) == set()
    assert updated_leader_and_isr(waiting, health(1, lost=(1,))) is None
    assert updated_leader_and_isr(waiting, health(1, lost=(1,), min_in_sync=1)) is None
    assert missing_members(waiting, health(1, lost=(1,))) == [2, 3]


def test_a_lost_disk_leads_where_nobody_ever_had_more() -> None:
    alone = PartitionRegistration(0, (1,), 1, 7, (1,), version=5, in_sync_epochs={1: 10})
    assert outcome_of(updated_leader_and_isr(alone, health(1, lost=(1,)))) == (1, {1: 11}, {})
    assert updated_leader_and_isr(partition(-1, (1,)), health(1, 2, lost=(1,))) is None, "2 and 3 may hold most of it"


def test_a_partition_that_never_had_min_isr_members_has_nothing_to_lose() -> None:
    """Seed 133681: created in an outage with a first leader that was dying and lost its disk."""
    created = replace(partition(-1, (1,)), leader_epoch=1, version=1)
    assert outcome_of(updated_leader_and_isr(created, health(1, 2, 3, lost=(1,)))) == (1, {1: 11}, {})
    assert outcome_of(updated_leader_and_isr(created, health(2, 3, lost=(1,)))) == (2, {2: 20}, {1: 10})
    assert updated_leader_and_isr(created, health(2, 3)) is None, "1 may still come back with its disk"
    assert updated_leader_and_isr(created, health(2, 3, lost=(1,), min_in_sync=1)) is None
    changed_since = replace(created, version=2)
    assert updated_leader_and_isr(changed_since, health(2, 3, lost=(1,))) is None


def test_all_members_that_are_left_suffice() -> None:
    """Fewer than min ISR are members: after an unclean election, or because min ISR was raised."""
    known = health(1, 2, restarted=(1,), responses={1: (5, 9)}, min_in_sync=3)
    assert outcome_of(updated_leader_and_isr(partition(-1, (1,)), known)) == (1, {1: 11}, {})


def test_with_a_min_isr_of_one_nobody_waits() -> None:
    known = health(2, 3, restarted=(2, 3), min_in_sync=1)
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2, 3)), known)) == (2, {2: 21}, {})
    some_disk_is_new = health(2, restarted=(2,), doubtful=(2,), min_in_sync=1)
    assert outcome_of(updated_leader_and_isr(partition(1, (1, 2)), some_disk_is_new)) == (-1, {1: 10, 2: 20}, {})
    assert replicas_to_query(partition(-1, (1, 2)), some_disk_is_new) == {2}


def test_who_cannot_be_asked_counts_and_comes_last() -> None:
    """Brokers of Apache Kafka; then it is as it was before there were questions."""
    waiting = partition(-1, (1, 2, 3))
    kafka = {1: UNKNOWN_LOG_END, 2: UNKNOWN_LOG_END}
    assert outcome_of(updated_leader_and_isr(waiting, health(1, 2, restarted=(1, 2), responses=kafka))) == (
        1,
        {1: 11},
        {2: 20, 3: 30},
    )
    mixed = {1: UNKNOWN_LOG_END, 2: (0, 0)}
    assert outcome_of(updated_leader_and_isr(waiting, health(1, 2, restarted=(1, 2), responses=mixed))) == (
        2,
        {2: 21},
        {1: 10, 3: 30},
    )


def test_an_unclean_election_waits_for_answers_and_takes_the_best() -> None:
    waiting = partition(-1, (1, 2))
    assert updated_leader_and_isr(waiting, health(2, 3, restarted=(2,)), unclean_allowed=True) is None
    known = health(2, 3, restarted=(2,), responses={2: (5, 9)})
    decision = updated_leader_and_isr(waiting, known, unclean_allowed=True)
    assert outcome_of(decision) == (2, {2: 21}, {})
    assert decision is not None
    assert decision.is_unclean


def test_an_unclean_election_prefers_a_broker_with_its_disk() -> None:
    assert outcome_of(updated_leader_and_isr(partition(-1, (1,)), health(1, 3, lost=(1,)), unclean_allowed=True)) == (
        3,
        {3: 30},
        {},
    )
    assert outcome_of(updated_leader_and_isr(partition(-1, (1,)), health(1, lost=(1,)), unclean_allowed=True)) == (
        1,
        {1: 11},
        {},
    )


# ---- I4, for all that may happen to fewer than min ISR disks

COMMITTED = LogEnd(5, 100)
whole_logs = st.sampled_from([LogEnd(5, 100), LogEnd(5, 120), LogEnd(6, 100), LogEnd(6, 130)])
damaged_logs = st.sampled_from([LogEnd(-1, 0), LogEnd(4, 99), LogEnd(5, 60), LogEnd(5, 99)])
replica_sets = st.sets(st.sampled_from([1, 2, 3, 4, 5]))


@given(st.data(), st.integers(1, 5), replica_sets, replica_sets, replica_sets, replica_sets, st.booleans())
def test_the_elected_leader_has_everything_while_fewer_than_min_isr_lost_something(
    data: st.DataObject,
    min_in_sync: int,
    in_sync: set[int],
    online: set[int],
    restarted: set[int],
    asked: set[int],
    unclean: bool,
) -> None:
    replicas = (1, 2, 3, 4, 5)
    eligible = data.draw(st.sets(st.sampled_from(replicas))) - in_sync if len(in_sync) < min_in_sync else set[int]()
    members = in_sync | eligible
    assume(len(members) >= min_in_sync)  # where there are fewer, an operator wanted it so
    damaged = data.draw(st.sets(st.sampled_from(replicas), max_size=min_in_sync - 1))
    clean = data.draw(st.sets(st.sampled_from(replicas))) & restarted - damaged
    restarted |= damaged
    wiped = data.draw(st.sets(st.sampled_from(replicas))) & damaged
    logs = {each: data.draw(damaged_logs if each in damaged - wiped else whole_logs) for each in replicas}
    logs |= dict.fromkeys(wiped, LogEnd(-1, 0))
    before = PartitionRegistration(
        0, replicas, -1, 7, tuple(sorted(in_sync)), version=5, eligible_leader_replicas=tuple(sorted(eligible))
    )
    known = Health(
        frozenset(online),
        frozenset(restarted),
        clean=clean,
        lost=wiped & online,
        responses={each: logs[each] for each in asked & online & restarted - wiped},
        min_in_sync=min_in_sync,
    )
    decision = updated_leader_and_isr(before, known, unclean_allowed=unclean)
    if decision is None or decision.is_unclean:
        return
    leader = decision.partition.leader
    assert leader in members
    assert logs[leader] >= COMMITTED, f"{leader} lacks what is committed"
    assert set(decision.partition.in_sync_replicas) <= members - damaged or decision.partition.in_sync_replicas == (
        leader,
    )


@pytest.mark.parametrize(("text", "expected"), [("2", 2), (" 2 ", 2), ("+2", 2), (None, 3)])
def test_min_in_sync_replicas_of_a_topic_is_read_as_its_leader_reads_it(text: str | None, expected: int) -> None:
    """Kafka stores values as they were given: with blanks and signs."""
    context = ControllerContext(default_min_in_sync=3)
    configs = {} if text is None else {"min.insync.replicas": text}
    context.add_topic(Topic("t", ZERO_UUID, (partition(1, (1, 2)),), configs))
    assert context.health(TopicPartition("t", 0)).min_in_sync == expected

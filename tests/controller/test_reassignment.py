"""Decisions on reassignments (R37): every case is a partition, who is there, and what becomes of it."""

from dataclasses import replace

import pytest

from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.elections import NO_STATE_VERSION, Health
from tidelog.controller.reassignment import cancelled, completed, reassigned, validate_target, without_removed
from tidelog.errors import InvalidReplicaAssignment, InvalidReplicationFactor, NoReassignmentInProgress

ALL = Health(online=frozenset(range(1, 10)), min_in_sync=2)


def partition_of(*replicas: int, in_sync: tuple[int, ...] = (), **fields: object) -> PartitionRegistration:
    in_sync = in_sync or replicas
    epochs = {each: 100 + each for each in in_sync}
    found = PartitionRegistration(0, replicas, in_sync[0], 5, in_sync, 1, 7, in_sync_epochs=epochs)
    return replace(found, **fields)  # type: ignore[arg-type]


def moving(*in_sync: int, **fields: object) -> PartitionRegistration:
    """From 1, 2, 3 to 4, 5, 6."""
    found = partition_of(4, 5, 6, 1, 2, 3, in_sync=in_sync, adding_replicas=(4, 5, 6), removing_replicas=(1, 2, 3))
    return replace(found, **fields)  # type: ignore[arg-type]


def after(decision: object) -> PartitionRegistration:
    assert decision is not None
    return decision.partition  # type: ignore[attr-defined, no-any-return]


def test_the_new_replicas_come_first_and_the_old_ones_stay_until_they_can_be_spared() -> None:
    found = after(reassigned(partition_of(1, 2, 3), (3, 4), ALL))
    assert (found.replicas, found.adding_replicas, found.removing_replicas) == ((3, 4, 1, 2), (4,), (1, 2))
    assert (found.target_replicas, found.original_replicas) == ((3, 4), (3, 1, 2))
    assert (found.leader, found.leader_epoch, found.in_sync_replicas) == (1, 6, (1, 2, 3)), "a new leader epoch"


def test_a_partition_that_has_its_target_stays_as_it_is() -> None:
    assert reassigned(partition_of(1, 2, 3), (1, 2, 3), ALL) is None
    assert reassigned(moving(1, 2, 3), (4, 5, 6), ALL) is None


def test_another_order_is_taken_at_once() -> None:
    found = after(reassigned(partition_of(1, 2, 3), (3, 1, 2), ALL))
    assert (found.replicas, found.is_being_reassigned, found.leader, found.leader_epoch) == ((3, 1, 2), False, 1, 6)


def test_a_partition_that_never_had_a_leader_takes_its_target_at_once() -> None:
    found = after(reassigned(partition_of(1, 2, leader=-1, version=NO_STATE_VERSION), (3, 4), ALL))
    assert (found.replicas, found.is_being_reassigned, found.removed_replicas) == ((3, 4), False, ())


def test_who_is_added_again_is_not_to_be_deleted_any_more() -> None:
    found = after(reassigned(partition_of(1, 2, removed_replicas=(3, 4)), (1, 3), ALL))
    assert (found.adding_replicas, found.removed_replicas) == ((3,), (4,))


def test_a_reassignment_is_replaced_by_the_next() -> None:
    found = after(reassigned(moving(1, 2, 3), (5, 7, 8), ALL))
    assert found.replicas == (5, 7, 8, 1, 2, 3)
    assert (found.adding_replicas, found.removing_replicas, found.removed_replicas) == ((5, 7, 8), (1, 2, 3), (4, 6))


def test_a_cancelled_reassignment_leaves_the_original_replicas() -> None:
    found = after(cancelled(moving(1, 2, 3, 4), ALL))
    assert (found.replicas, found.is_being_reassigned, found.removed_replicas) == ((1, 2, 3), False, (4, 5, 6))
    assert (found.leader, found.leader_epoch, found.in_sync_replicas) == (1, 6, (1, 2, 3)), "KAFKA-9672"
    assert found.in_sync_epochs == {1: 101, 2: 102, 3: 103}


def test_a_leader_that_was_added_hands_over_when_it_is_cancelled() -> None:
    found = after(cancelled(moving(4, 2, 3, leader=4), ALL))
    assert (found.leader, found.in_sync_replicas) == (2, (2, 3))


def test_nothing_is_cancelled_where_nothing_is_under_way() -> None:
    with pytest.raises(NoReassignmentInProgress):
        cancelled(partition_of(1, 2, 3), ALL)


@pytest.mark.parametrize("in_sync", [(4,), (4, 5, 6), (1, 4)], ids=["the last", "all but the original", "min ISR"])
def test_replicas_that_cannot_be_spared_are_not_cancelled(in_sync: tuple[int, ...]) -> None:
    with pytest.raises(InvalidReplicaAssignment, match="cannot be cancelled or replaced now"):
        cancelled(moving(*in_sync), ALL)


def test_it_is_complete_when_all_added_replicas_are_in_sync() -> None:
    assert completed(moving(1, 2, 3, 4, 5), ALL) is None
    found = after(completed(moving(1, 2, 3, 4, 5, 6), ALL))
    assert (found.replicas, found.is_being_reassigned, found.removed_replicas) == ((4, 5, 6), False, (1, 2, 3))
    assert (found.leader, found.leader_epoch, found.in_sync_replicas) == (4, 6, (4, 5, 6)), "KAFKA-9672"
    assert found.in_sync_epochs == {4: 104, 5: 105, 6: 106}


def test_a_leader_that_stays_leads_on() -> None:
    found = after(completed(partition_of(3, 2, 1, in_sync=(2, 1, 3), removing_replicas=(1,)), ALL))
    assert (found.replicas, found.leader, found.in_sync_replicas) == ((3, 2), 2, (2, 3))


def test_it_waits_for_an_added_replica_in_the_incarnation_that_is_in_sync() -> None:
    everybody = moving(1, 2, 3, 4, 5, 6)
    assert completed(everybody, ALL._replace(restarted=frozenset({5}))) is None
    assert completed(everybody, ALL._replace(online=ALL.online - {5})) is None


def test_a_kept_replica_that_is_out_of_sync_does_not_hold_it_up() -> None:
    """KAFKA-19975"""
    sick = partition_of(1, 2, 4, 3, in_sync=(3, 1, 4), adding_replicas=(4,), removing_replicas=(3,))
    found = after(completed(sick, ALL))
    assert (found.replicas, found.leader, found.in_sync_replicas) == ((1, 2, 4), 1, (1, 4))


def test_with_fewer_replicas_than_before_all_must_be_in_sync() -> None:
    assert completed(partition_of(1, 2, 3, in_sync=(1, 3), removing_replicas=(3,)), ALL) is None


def test_min_insync_replicas_are_left_in_sync() -> None:
    """KAFKA-15665"""
    lonely = partition_of(4, 2, 3, 1, in_sync=(1, 4), adding_replicas=(4,), removing_replicas=(1,))
    assert completed(lonely, ALL) is None
    assert completed(lonely, ALL._replace(min_in_sync=1)) is not None


def test_a_target_smaller_than_min_insync_replicas_can_be_reached() -> None:
    found = after(
        completed(partition_of(4, 1, 2, in_sync=(1, 2, 4), adding_replicas=(4,), removing_replicas=(1, 2)), ALL)
    )
    assert (found.replicas, found.in_sync_replicas) == ((4,), (4,))


def test_nobody_stays_eligible_who_is_removed() -> None:
    """R42"""
    below = moving(4, 5, 6, eligible_leader_replicas=(1,), eligible_leader_epochs={1: 101})
    found = after(completed(below, ALL))
    assert (found.eligible_leader_replicas, found.eligible_leader_epochs) == ((), {})


def test_a_broker_that_shuts_down_is_not_made_leader() -> None:
    found = after(completed(moving(1, 2, 3, 4, 5, 6), ALL._replace(shutting_down=frozenset({4}))))
    assert found.leader == 5


def test_without_leader_nothing_is_complete() -> None:
    assert completed(moving(4, 5, 6, leader=-1), ALL) is None
    assert completed(partition_of(1, 2, 3), ALL) is None


def test_deleted_logs_are_forgotten() -> None:
    assert after(without_removed(partition_of(1, 2, removed_replicas=(3, 4)), {3})).removed_replicas == (4,)
    assert without_removed(partition_of(1, 2, removed_replicas=(4,)), {3}) is None


@pytest.mark.parametrize("target", [(), (1, 1), (1, -2), (1, 9)], ids=["empty", "twice", "negative", "not alive"])
def test_impossible_targets_are_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(InvalidReplicaAssignment):
        validate_target(partition_of(1, 2, 3), target, frozenset({1, 2, 3}))


def test_replicas_that_stay_may_be_away() -> None:
    validate_target(partition_of(1, 2, 3), (3, 4), frozenset({1, 4}))


def test_the_replication_factor_changes_only_where_that_is_allowed() -> None:
    live = frozenset(range(9))
    validate_target(moving(1, 2, 3), (7, 8, 1), live, allow_replication_factor_change=False)
    with pytest.raises(InvalidReplicationFactor, match="from 3 to 2"):
        validate_target(moving(1, 2, 3), (7, 8), live, allow_replication_factor_change=False)

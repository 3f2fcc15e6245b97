import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.elections import (
    NO_STATE_VERSION,
    Decision,
    Health,
    controlled_shutdown_leader_election,
    preferred_replica_leader_election,
    unclean_leader_election,
    updated_leader_and_isr,
)

NONE = frozenset[int]()


def partition(leader: int, in_sync: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionRegistration:
    return PartitionRegistration(0, replicas, leader, 7, in_sync, controller_epoch=2, version=5)


def health(*online: int, restarted: frozenset[int] = NONE, shutting_down: frozenset[int] = NONE) -> Health:
    return Health(frozenset(online), restarted, shutting_down)


def leadership(decision: Decision | None) -> tuple[int, tuple[int, ...], int, bool] | None:
    if decision is None:
        return None
    found = decision.partition
    return found.leader, found.in_sync_replicas, found.leader_epoch, decision.is_unclean


REPAIRED = {
    "all is well": (partition(1, (1, 2, 3)), health(1, 2, 3), None),
    "a replica that is out of sync may go": (partition(1, (1, 2)), health(1, 2), None),
    "a dead leader is followed by the first of the assigned that is in sync": (
        partition(2, (3, 2, 1)),
        health(1, 3),
        (1, (3, 1), 8, False),
    ),
    "a replica that is out of sync does not lead": (partition(1, (1, 3)), health(2, 3), (3, (3,), 8, False)),
    "a dead follower leaves the in-sync replicas": (partition(1, (1, 2, 3)), health(1, 3), (1, (1, 3), 8, False)),
    "nobody left: no leader, and the in-sync replicas are kept": (
        partition(1, (1, 2)),
        health(3),
        (-1, (1, 2), 8, False),
    ),
    "still nobody": (partition(-1, (1, 2)), health(3), None),
    "one of the kept comes back": (
        partition(-1, (1, 2)),
        health(2, 3, restarted=frozenset({2})),
        (2, (2,), 8, False),
    ),
    "a leader that restarted gives way to a steady one": (
        partition(1, (1, 2, 3)),
        health(1, 2, 3, restarted=frozenset({1})),
        (2, (2, 3), 8, False),
    ),
    "a leader that restarted and has nobody else leads in a new epoch": (
        partition(1, (1,)),
        health(1, 2, restarted=frozenset({1})),
        (1, (1,), 8, False),
    ),
    "all restarted: one leads, the others must catch up with it": (
        partition(1, (2, 3)),
        health(1, 2, 3, restarted=frozenset({1, 2, 3})),
        (2, (2,), 8, False),
    ),
    "a follower that restarted leaves the in-sync replicas": (
        partition(1, (1, 2, 3)),
        health(1, 2, 3, restarted=frozenset({3})),
        (1, (1, 2), 8, False),
    ),
    "a broker that shuts down is not elected": (
        partition(1, (1, 2, 3)),
        health(2, 3, shutting_down=frozenset({2})),
        (3, (3,), 8, False),
    ),
    "a leader that shuts down leads until there is another leader": (
        partition(1, (1,)),
        health(1, 2, shutting_down=frozenset({1})),
        None,
    ),
}


@pytest.mark.parametrize(("before", "known", "expected"), REPAIRED.values(), ids=REPAIRED)
def test_a_partition_is_repaired(
    before: PartitionRegistration, known: Health, expected: tuple[int, tuple[int, ...], int, bool] | None
) -> None:
    assert leadership(updated_leader_and_isr(before, known)) == expected


def test_an_unclean_election_is_the_last_resort() -> None:
    before = partition(1, (1, 2))
    assert leadership(updated_leader_and_isr(before, health(3), unclean_allowed=True)) == (3, (3,), 8, True)
    assert leadership(updated_leader_and_isr(before, health(2, 3), unclean_allowed=True)) == (2, (2,), 8, False)
    restarted = health(1, 2, restarted=frozenset({1}))
    assert leadership(updated_leader_and_isr(partition(3, (3,)), restarted, unclean_allowed=True)) == (2, (2,), 8, True)
    restarted = health(2, restarted=frozenset({2}))
    assert leadership(updated_leader_and_isr(partition(3, (3,)), restarted, unclean_allowed=True)) == (2, (2,), 8, True)
    assert leadership(updated_leader_and_isr(before, health(), unclean_allowed=True)) == (-1, (1, 2), 8, False)


def test_a_broker_may_have_the_number_zero() -> None:
    assert leadership(updated_leader_and_isr(partition(1, (1, 0), (1, 0)), health(0))) == (0, (0,), 8, False)
    assert leadership(updated_leader_and_isr(partition(1, (1,), (0, 1)), health(0), unclean_allowed=True)) == (
        0,
        (0,),
        8,
        True,
    )


def test_the_first_election_takes_all_who_are_there() -> None:
    partition_without_leader = PartitionRegistration(0, (1, 2, 3), -1, 0, (), version=NO_STATE_VERSION)
    decision = updated_leader_and_isr(partition_without_leader, health(2, 3, restarted=frozenset({2})))
    assert leadership(decision) == (2, (2, 3), 0, False)
    assert updated_leader_and_isr(partition_without_leader, health()) is None


def test_the_preferred_leader_is_the_first_of_the_assigned() -> None:
    assert leadership(preferred_replica_leader_election(partition(2, (2, 1)), health(1, 2))) == (1, (2, 1), 8, False)
    assert preferred_replica_leader_election(partition(1, (1, 2)), health(1, 2)) is None
    assert preferred_replica_leader_election(partition(2, (2, 3)), health(1, 2, 3)) is None
    assert preferred_replica_leader_election(partition(2, (2, 1)), health(2)) is None
    assert preferred_replica_leader_election(partition(2, (2, 1)), health(1, 2, shutting_down=frozenset({1}))) is None


def test_who_asks_for_any_leader_gets_one_where_there_is_none() -> None:
    assert leadership(unclean_leader_election(partition(-1, (1,)), health(2, 3))) == (2, (2,), 8, True)
    assert leadership(unclean_leader_election(partition(-1, (3,)), health(2, 3))) == (3, (3,), 8, False)
    assert unclean_leader_election(partition(-1, (1,)), health()) is None
    assert unclean_leader_election(partition(1, (1,)), health(2, 3)) is None


def test_a_broker_that_shuts_down_is_left_as_leader_and_as_follower() -> None:
    shutting_down = frozenset({1})
    assert leadership(
        controlled_shutdown_leader_election(partition(1, (1, 3, 2)), health(1, 2, 3, shutting_down=shutting_down))
    ) == (
        2,
        (3, 2),
        8,
        False,
    )
    assert leadership(
        controlled_shutdown_leader_election(partition(2, (1, 2)), health(1, 2, shutting_down=shutting_down))
    ) == (2, (2,), 8, False)
    assert (
        controlled_shutdown_leader_election(partition(2, (2, 3)), health(1, 2, 3, shutting_down=shutting_down)) is None
    )
    assert controlled_shutdown_leader_election(partition(1, (1,)), health(1, 2, shutting_down=shutting_down)) is None
    assert controlled_shutdown_leader_election(partition(1, (1, 2)), health(1, shutting_down=shutting_down)) is None


brokers = st.sets(st.integers(1, 4))


@given(st.sets(st.integers(1, 4), min_size=1), st.integers(-1, 4), brokers, brokers, brokers, st.booleans())
def test_repairing_keeps_what_must_always_hold(
    in_sync: set[int], leader: int, online: set[int], restarted: set[int], shutting_down: set[int], unclean: bool
) -> None:
    before = partition(leader if leader in in_sync else -1, tuple(sorted(in_sync)), (4, 3, 2, 1))
    known = Health(frozenset(online), frozenset(restarted), frozenset(shutting_down))
    decision = updated_leader_and_isr(before, known, unclean_allowed=unclean)
    after = before if decision is None else decision.partition
    assert after.leader == -1 or after.leader in after.in_sync_replicas  # I1
    assert after.in_sync_replicas
    if decision is None:
        return
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.version == before.version
    assert after.leader == -1 or after.leader in online
    assert decision.is_unclean or set(after.in_sync_replicas) <= in_sync
    assert not decision.is_unclean or (unclean and in_sync.isdisjoint(online - shutting_down))
    again = updated_leader_and_isr(after, known._replace(restarted=NONE), unclean_allowed=unclean)
    assert again is None, "once is enough"

import pytest

from tidelog.controller.states import (
    REPLICA_TRANSITIONS,
    PartitionState,
    Replica,
    ReplicaState,
    partition_states,
    replica_states,
)
from tidelog.types import TopicPartition

P = TopicPartition("orders", 3)


@pytest.mark.parametrize("target", ReplicaState)
@pytest.mark.parametrize("before", ReplicaState)
def test_a_replica_moves_only_where_the_table_allows(before: ReplicaState, target: ReplicaState) -> None:
    replica = Replica(P, 2)
    states = replica_states()
    states[replica] = before
    moved, rejected = states.move([replica], target, "test")
    if target in REPLICA_TRANSITIONS[before]:
        assert moved == {replica: before}
        assert states.get(replica, ReplicaState.NON_EXISTENT) is target
    else:
        assert not moved
        assert states == {replica: before}
        assert [str(each) for each in rejected] == [f"orders-3@2: {before.name} -> {target.name} (test)"]


def test_what_is_refused_does_not_stop_the_rest() -> None:
    states = replica_states()
    states.update({Replica(P, 1): ReplicaState.ONLINE, Replica(P, 2): ReplicaState.OFFLINE})
    moved, rejected = states.move(
        [Replica(P, 1), Replica(P, 2), Replica(P, 3)], ReplicaState.DELETION_STARTED, "topic deletion begins"
    )
    assert list(moved) == [Replica(P, 2)]
    assert [each.subject for each in rejected] == [Replica(P, 1), Replica(P, 3)]


def test_a_partition_goes_from_new_over_online_and_offline_to_nothing() -> None:
    states = partition_states()
    for target in (PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.ONLINE):
        states.move([P], target, "test")
        assert states == {P: target}
    _, rejected = states.move([P], PartitionState.NON_EXISTENT, "test")
    assert rejected
    states.move([P], PartitionState.OFFLINE, "test")
    states.move([P], PartitionState.NON_EXISTENT, "test")
    assert not states


def test_a_refused_transition_lists_the_last_ones_of_its_replica() -> None:
    states = replica_states()
    states.move([Replica(P, 2), Replica(P, 5)], ReplicaState.NEW, "partition created")
    states.move([Replica(P, 2)], ReplicaState.ONLINE, "first leader chosen")
    states.move([Replica(P, 2)], ReplicaState.OFFLINE, "session of its broker ended")
    _, (rejected,) = states.move([Replica(P, 2)], ReplicaState.NEW, "broker 2 registered")
    assert str(rejected).splitlines() == [
        "orders-3@2: OFFLINE -> NEW (broker 2 registered)",
        "  ONLINE -> OFFLINE (session of its broker ended)",
        "  NEW -> ONLINE (first leader chosen)",
        "  NON_EXISTENT -> NEW (partition created)",
    ]

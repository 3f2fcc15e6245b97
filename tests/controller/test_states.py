import pytest

from tidelog.controller.states import (
    PARTITION_MOVES,
    REPLICA_MOVES,
    PartitionState,
    Replica,
    ReplicaState,
    move,
)
from tidelog.types import TopicPartition

P = TopicPartition("orders", 3)


def test_every_state_has_a_row_in_its_table() -> None:
    assert set(REPLICA_MOVES) == set(ReplicaState)
    assert set(PARTITION_MOVES) == set(PartitionState)


@pytest.mark.parametrize("target", ReplicaState)
@pytest.mark.parametrize("before", ReplicaState)
def test_a_replica_moves_only_where_the_table_allows(before: ReplicaState, target: ReplicaState) -> None:
    replica = Replica(P, 2)
    states = {replica: before}
    moved, refused = move(states, REPLICA_MOVES, [replica], target, ReplicaState.NON_EXISTENT)
    if before in REPLICA_MOVES[target]:
        assert moved == {replica: before}
        assert states.get(replica, ReplicaState.NON_EXISTENT) is target
    else:
        assert not moved
        assert states == {replica: before}
        assert [str(each) for each in refused] == [f"orders-3@2: {before.name} -> {target.name}"]


def test_what_is_refused_does_not_stop_the_rest() -> None:
    states = {Replica(P, 1): ReplicaState.ONLINE, Replica(P, 2): ReplicaState.OFFLINE}
    moved, refused = move(
        states,
        REPLICA_MOVES,
        [Replica(P, 1), Replica(P, 2), Replica(P, 3)],
        ReplicaState.DELETION_STARTED,
        ReplicaState.NON_EXISTENT,
    )
    assert list(moved) == [Replica(P, 2)]
    assert [each.thing for each in refused] == [Replica(P, 1), Replica(P, 3)]


def test_a_partition_goes_from_new_over_online_and_offline_to_nothing() -> None:
    states: dict[TopicPartition, PartitionState] = {}
    for target in (PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.ONLINE):
        move(states, PARTITION_MOVES, [P], target, PartitionState.NON_EXISTENT)
        assert states == {P: target}
    _, refused = move(states, PARTITION_MOVES, [P], PartitionState.NON_EXISTENT, PartitionState.NON_EXISTENT)
    assert refused
    move(states, PARTITION_MOVES, [P], PartitionState.OFFLINE, PartitionState.NON_EXISTENT)
    move(states, PARTITION_MOVES, [P], PartitionState.NON_EXISTENT, PartitionState.NON_EXISTENT)
    assert not states

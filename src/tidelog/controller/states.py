"""The states of replicas and partitions as the controller sees them, and which state may follow which (R34)."""

from collections.abc import Hashable, Iterable, Mapping, MutableMapping
from enum import Enum, auto
from typing import NamedTuple, TypeVar

from tidelog.types import BrokerId, TopicPartition


class Replica(NamedTuple):
    topic_partition: TopicPartition
    broker_id: BrokerId

    def __str__(self) -> str:
        return f"{self.topic_partition}@{self.broker_id}"


class ReplicaState(Enum):
    NON_EXISTENT = auto()
    NEW = auto()  # chosen, not yet told to the broker
    ONLINE = auto()  # running, leader or follower
    OFFLINE = auto()  # its broker or its log directory is gone, or it was told to stop
    DELETION_STARTED = auto()
    DELETION_SUCCESSFUL = auto()
    DELETION_INELIGIBLE = auto()  # cannot be deleted now: its broker is away, or failed to


class PartitionState(Enum):
    NON_EXISTENT = auto()
    NEW = auto()  # has replicas, never had a leader
    ONLINE = auto()  # has a leader
    OFFLINE = auto()  # had a leader


REPLICA_MOVES: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}
    ),
    ReplicaState.OFFLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}
    ),
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}
"""From which states a replica may come into each state."""

PARTITION_MOVES: Mapping[PartitionState, frozenset[PartitionState]] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}
"""From which states a partition may come into each state."""


Thing = TypeVar("Thing", bound=Hashable)
State = TypeVar("State", ReplicaState, PartitionState)


class IllegalMove(NamedTuple):
    """Refused; the story of it for the log."""

    thing: object
    before: Enum
    target: Enum

    def __str__(self) -> str:
        return f"{self.thing}: {self.before.name} -> {self.target.name}"


def move(
    states: MutableMapping[Thing, State],
    moves: Mapping[State, frozenset[State]],
    things: Iterable[Thing],
    target: State,
    non_existent: State,
) -> tuple[dict[Thing, State], list[IllegalMove]]:
    """Bring into the target state what may go there: with the states they had before, and what was refused."""
    moved: dict[Thing, State] = {}
    refused: list[IllegalMove] = []
    for thing in things:
        before = states.get(thing, non_existent)
        if before not in moves[target]:
            refused.append(IllegalMove(thing, before, target))
            continue
        moved[thing] = before
        if target is non_existent:
            states.pop(thing, None)
        else:
            states[thing] = target
    return moved, refused

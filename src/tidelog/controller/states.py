"""Replica and partition states of the controller, with their legal transitions (R34)."""

# Core: no clock, no I/O, no await.

from enum import Enum, auto
from typing import Final, NamedTuple

from tidelog.state_machine import StateMap, TransitionTable
from tidelog.types import BrokerId, TopicPartition


class Replica(NamedTuple):
    topic_partition: TopicPartition
    broker_id: BrokerId

    def __str__(self) -> str:
        return f"{self.topic_partition}@{self.broker_id}"


class ReplicaState(Enum):
    NON_EXISTENT = auto()
    NEW = auto()  # assigned, not yet sent to the broker
    ONLINE = auto()  # running, leader or follower
    OFFLINE = auto()  # its broker or log directory is offline, or it was stopped
    DELETION_STARTED = auto()
    DELETION_SUCCESSFUL = auto()
    DELETION_INELIGIBLE = auto()  # cannot be deleted now: its broker is down, or the deletion failed


class PartitionState(Enum):
    NON_EXISTENT = auto()
    NEW = auto()  # has replicas, never had a leader
    ONLINE = auto()  # has a leader
    OFFLINE = auto()  # had a leader


REPLICA_TRANSITIONS: Final = TransitionTable(
    {
        ReplicaState.NON_EXISTENT: {ReplicaState.NEW},
        ReplicaState.NEW: {ReplicaState.ONLINE, ReplicaState.OFFLINE},
        ReplicaState.ONLINE: {ReplicaState.ONLINE, ReplicaState.OFFLINE},
        ReplicaState.OFFLINE: {
            ReplicaState.ONLINE,
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_STARTED,
            ReplicaState.DELETION_INELIGIBLE,
        },
        ReplicaState.DELETION_STARTED: {ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE},
        ReplicaState.DELETION_SUCCESSFUL: {ReplicaState.NON_EXISTENT},
        ReplicaState.DELETION_INELIGIBLE: {ReplicaState.ONLINE, ReplicaState.OFFLINE},
    }
)

PARTITION_TRANSITIONS: Final = TransitionTable(
    {
        PartitionState.NON_EXISTENT: {PartitionState.NEW},
        PartitionState.NEW: {PartitionState.ONLINE, PartitionState.OFFLINE},
        PartitionState.ONLINE: {PartitionState.ONLINE, PartitionState.OFFLINE},
        PartitionState.OFFLINE: {PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.NON_EXISTENT},
    }
)


def replica_states() -> StateMap[Replica, ReplicaState]:
    return StateMap(REPLICA_TRANSITIONS, ReplicaState.NON_EXISTENT)


def partition_states() -> StateMap[TopicPartition, PartitionState]:
    return StateMap(PARTITION_TRANSITIONS, PartitionState.NON_EXISTENT)

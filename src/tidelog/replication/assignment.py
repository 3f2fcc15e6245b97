"""Partition assignments from the controller: the contents of LeaderAndIsr and StopReplica requests."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tidelog.types import ZERO_UUID, BrokerId, TopicPartition, Uuid

NO_EPOCH_CHECK = -1
"""Leader epoch of a StopReplica that is valid in any leader epoch (Kafka: LeaderAndIsr.NoEpoch)."""
EPOCH_DURING_DELETE = -2
"""Leader epoch of a StopReplica for a topic that is being deleted; it overrides every other epoch (KIP-570)."""

LOGGED_ONE_BY_ONE = 10
"""Maximum number of partitions that change in one step and get a log line each; more get one summary line."""


class PartitionAssignment(NamedTuple):
    """Leader, in-sync replicas and replicas of one partition, from LeaderAndIsr."""

    topic_partition: TopicPartition
    topic_id: Uuid
    controller_epoch: int
    leader: BrokerId
    leader_epoch: int
    in_sync_replicas: tuple[BrokerId, ...]
    version: int
    """Version of the partition's state node in the store (Kafka: partition epoch); a compare-and-set must name it."""
    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    is_new: bool = False
    """The partition was just created: no broker has records of it yet."""
    in_sync_epochs: Mapping[BrokerId, int] = MappingProxyType({})
    """Broker epochs in which the in-sync replicas are in sync (R41). Empty if the controller is Apache Kafka's."""
    eligible_leader_epochs: Mapping[BrokerId, int] = MappingProxyType({})
    """Eligible leader replicas with their broker epochs; -1 if the epoch is unknown (R42)."""
    broker_epoch: int = -1
    """Current broker epoch of the broker that receives this assignment."""

    def is_of_earlier_incarnation(self, broker_id: BrokerId) -> bool:
        """R41: the broker restarted since it was in sync, and may have lost records that it had before."""
        return self.broker_epoch != -1 and self.in_sync_epochs.get(broker_id, self.broker_epoch) != self.broker_epoch


class LeaderAddress(NamedTuple):
    broker_id: BrokerId
    host: str
    port: int


class ReplicaStop(NamedTuple):
    """One partition of a StopReplica."""

    topic_partition: TopicPartition
    leader_epoch: int
    delete: bool
    topic_id: Uuid = ZERO_UUID
    """Id of the topic that is deleted; ZERO_UUID if the controller does not send it, as Apache Kafka does not."""

"""What the controller says of partitions and brokers, as the replicas take it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tidelog.types import ZERO_UUID, BrokerId, TopicPartition, Uuid

NO_EPOCH_CHECK = -1
EPOCH_DURING_DELETE = -2
"""KIP-570: the leader epoch of a StopReplica for a topic that is deleted; it overrules every other."""

LOGGED_ONE_BY_ONE = 10
"""Partitions that change in one step have a log line each; if there are more, one line sums them up."""


class PartitionAssignment(NamedTuple):
    """Who leads and who follows one partition, from LeaderAndIsr."""

    topic_partition: TopicPartition
    topic_id: Uuid
    controller_epoch: int
    leader: BrokerId
    leader_epoch: int
    in_sync_replicas: tuple[BrokerId, ...]
    version: int
    """Of the state node in the store: the one a compare-and-set must name."""
    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    is_new: bool = False
    """The partition was just created: nobody has records of it yet."""
    in_sync_epochs: Mapping[BrokerId, int] = MappingProxyType({})
    """In which incarnations the in-sync replicas are in sync (R41); none where Kafka is controller."""
    eligible_epochs: Mapping[BrokerId, int] = MappingProxyType({})
    """The eligible replicas, and their incarnations; -1 where it is not known (R42)."""
    broker_epoch: int = -1
    """Of the broker that is told this, in its present incarnation."""

    def is_of_earlier_incarnation(self, broker_id: BrokerId) -> bool:
        """R41: what that one held this one may have lost."""
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
    """Of the topic that is deleted; ZERO_UUID where the controller does not tell it, as Kafka's does not."""

"""Cluster metadata of a client: brokers, topics, leaders. Immutable; each response creates a new version."""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.client.network.bootstrap import Address
from tidelog.errors import (
    NO_ERROR,
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
    error_of,
)
from tidelog.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tidelog.types import NO_BROKER, NO_LEADER_EPOCH, BrokerId, TopicPartition, Uuid


class BrokerMetadata(NamedTuple):
    broker_id: BrokerId
    address: Address
    rack: str | None


class PartitionMetadata(NamedTuple):
    partition: int
    leader: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    in_sync_replicas: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...]


class TopicMetadata(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]


class Leader(NamedTuple):
    broker: BrokerMetadata
    leader_epoch: int


class ClusterMetadata(NamedTuple):
    version: int = 0
    """Increases with every response, to detect a refresh by somebody else."""
    cluster_id: str | None = None
    controller_id: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, BrokerMetadata] = {}
    topics: Mapping[str, TopicMetadata] = {}
    errors: Mapping[str, KafkaError] = {}
    """Errors of requested topics that are not in `topics`."""

    def topic(self, name: str) -> TopicMetadata:
        """Raises the error that the broker returned for it."""
        found = self.topics.get(name)
        if found is None:
            raise self.errors.get(name, UnknownTopicOrPartition(f"topic {name} is unknown"))
        return found

    def leader_of(self, topic_partition: TopicPartition) -> Leader:
        """Raises a retriable error if there is none."""
        found = self.topic(topic_partition.topic).partitions.get(topic_partition.partition)
        if found is None:
            raise UnknownTopicOrPartition(f"{topic_partition} does not exist")
        broker = self.brokers.get(found.leader)
        if broker is None:
            raise LeaderNotAvailable(f"{topic_partition} has no leader at the moment")
        return Leader(broker, found.leader_epoch)

    def updated(self, response: MetadataResponse, *, has_all_topics: bool = False) -> "ClusterMetadata":
        """Topics that are not in the response are kept, unless it contains all topics."""
        topics, errors = ({}, {}) if has_all_topics else (dict(self.topics), dict(self.errors))
        for answer in response.topics:
            name = answer.name or ""
            topics.pop(name, None)
            errors.pop(name, None)
            if answer.error_code == NO_ERROR:
                topics[name] = _topic(answer, self.topics.get(name))
            else:
                errors[name] = error_of(answer.error_code, f"topic {name}")
        brokers = {
            broker.node_id: BrokerMetadata(broker.node_id, Address(broker.host, broker.port), broker.rack)
            for broker in response.brokers
        }
        return ClusterMetadata(self.version + 1, response.cluster_id, response.controller_id, brokers, topics, errors)


def _topic(response: MetadataResponseTopic, known: TopicMetadata | None) -> TopicMetadata:
    partitions = {partition.partition_index: _partition(partition) for partition in response.partitions}
    if known is not None and known.topic_id == response.topic_id:
        for partition, new in partitions.items():
            old = known.partitions.get(partition)
            # A broker with old metadata must not send the client back to an old leader (KIP-320).
            if old is not None and NO_LEADER_EPOCH < new.leader_epoch < old.leader_epoch:
                partitions[partition] = old
    return TopicMetadata(response.name or "", response.topic_id, response.is_internal, partitions)


def _partition(response: MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        response.partition_index,
        response.leader_id,
        response.leader_epoch,
        tuple(response.replica_nodes),
        tuple(response.isr_nodes),
        tuple(response.offline_replicas),
    )

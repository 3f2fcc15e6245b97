"""Snapshot of a cluster as the page shows it, and the difference between two of them."""

# Core: no clock, no I/O, no await.

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.client.routing.metadata import ClusterMetadata, PartitionMetadata
from tidelog.types import NO_BROKER, BrokerId, TopicPartition


class BrokerState(NamedTuple):
    host: str | None
    """None for a broker that hosts replicas and is not in the cluster."""
    port: int | None
    rack: str | None

    @property
    def is_up(self) -> bool:
        return self.host is not None


ABSENT = BrokerState(None, None, None)


class PartitionState(NamedTuple):
    leader: BrokerId | None
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    is_internal: bool = False

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync) < len(self.replicas)


class Snapshot(NamedTuple):
    cluster_id: str | None = None
    controller: BrokerId | None = None
    brokers: Mapping[BrokerId, BrokerState] = {}
    partitions: Mapping[TopicPartition, PartitionState] = {}
    at_ms: int = 0

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.partitions}


def snapshot_of(metadata: ClusterMetadata, known: Snapshot, at_ms: int) -> Snapshot:
    """Brokers of the `known` snapshot that are gone stay as absent: an operator looks for exactly those."""
    partitions = {
        TopicPartition(topic.name, number): _partition(partition, topic.is_internal)
        for topic in metadata.topics.values()
        for number, partition in topic.partitions.items()
    }
    is_same_cluster = known.cluster_id in (None, metadata.cluster_id)
    hosts = {replica for partition in partitions.values() for replica in partition.replicas}
    brokers = dict.fromkeys(hosts | (known.brokers.keys() if is_same_cluster else set()), ABSENT)
    brokers |= {each.broker_id: BrokerState(*each.address, each.rack) for each in metadata.brokers.values()}
    controller = None if metadata.controller_id == NO_BROKER else metadata.controller_id
    return Snapshot(metadata.cluster_id, controller, dict(sorted(brokers.items())), partitions, at_ms)


def _partition(found: PartitionMetadata, is_internal: bool) -> PartitionState:
    leader = None if found.leader == NO_BROKER else found.leader
    return PartitionState(leader, found.leader_epoch, found.replicas, found.in_sync_replicas, is_internal)


def as_json(snapshot: Snapshot) -> dict[str, object]:
    return {
        "cluster_id": snapshot.cluster_id,
        "at_ms": snapshot.at_ms,
        "controller": snapshot.controller,
        "brokers": _brokers_json(snapshot),
        "partitions": [_partition_json(*found) for found in sorted(snapshot.partitions.items())],
    }


def difference(before: Snapshot, after: Snapshot) -> dict[str, object] | None:
    """What a page that shows `before` has to change; None if that is nothing."""
    changed = [found for found in after.partitions.items() if before.partitions.get(found[0]) != found[1]]
    removed = [found for found in before.partitions if found not in after.partitions]
    has_same_brokers = before.brokers == after.brokers
    is_same = has_same_brokers and before.controller == after.controller
    if not changed and not removed and is_same and before.cluster_id == after.cluster_id:
        return None
    found: dict[str, object] = {
        "cluster_id": after.cluster_id,
        "at_ms": after.at_ms,
        "controller": after.controller,
        "partitions": [_partition_json(*found) for found in sorted(changed)],
        "removed": sorted(removed),
    }
    return found if has_same_brokers else found | {"brokers": _brokers_json(after)}


def _brokers_json(snapshot: Snapshot) -> list[dict[str, object]]:
    return [
        {"id": broker_id, "up": found.is_up, "host": found.host, "port": found.port, "rack": found.rack}
        for broker_id, found in snapshot.brokers.items()
    ]


def _partition_json(where: TopicPartition, found: PartitionState) -> list[object]:
    """A list: with ten thousand partitions the names of the fields would be most of the bytes."""
    return [
        where.topic,
        where.partition,
        found.leader,
        found.leader_epoch,
        found.replicas,
        found.in_sync,
        found.is_internal,
    ]

"""Read-only inspection of a simulated cluster: partition states in the store, replica logs on disk."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration, Topic
from tidelog.cluster.image import PartitionRegistration as PartitionState
from tidelog.errors import KafkaStorageError, UnknownTopicOrPartition
from tidelog.protocol.record_batch import BatchHeader, split_batches
from tidelog.replication.partition import Partition
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.storage.descriptor_reclaiming_disk import DescriptorReclaimingDisk
from tidelog.storage.log import Log
from tidelog.store.memory import MemoryStoreState
from tidelog.types import BrokerId, TopicPartition, Uuid

EVERYTHING_BYTES = 1 << 30


class Stored(NamedTuple):
    state: PartitionState
    modified_id: int


def stored_partitions(store: MemoryStoreState) -> Iterator[tuple[TopicPartition, Stored]]:
    """All partitions that have a state."""
    for topic in sorted(store.children.get(znodes.TOPICS, ())):
        node = store.find(znodes.topic_path(topic))
        assert node is not None
        for index in range(_partition_count(topic, node.data)):
            found = stored_partition(store, TopicPartition(topic, index))
            if found is not None:
                yield TopicPartition(topic, index), found


def stored_partition(store: MemoryStoreState, topic_partition: TopicPartition) -> Stored | None:
    topic, index = topic_partition
    assignment, node = store.find(znodes.topic_path(topic)), store.find(znodes.state_path(topic, index))
    if assignment is None or node is None:
        return None
    return _decoded(topic_partition, assignment.data, assignment.version, node.data, node.version, node.modified_id)


@lru_cache(maxsize=1024)
def _decoded(
    topic_partition: TopicPartition, assignment: bytes, assigned: int, state: bytes, version: int, modified_id: int
) -> Stored:
    """Cached: checks read every partition after every step."""
    topic, index = topic_partition
    partition = _decoded_topic(topic, assignment, assigned).partitions[index]
    return Stored(znodes.decode_state(topic, partition, state, version), modified_id)


@lru_cache(maxsize=256)
def _decoded_topic(topic: str, assignment: bytes, version: int) -> Topic:
    return znodes.decode_topic(topic, assignment, version, [None] * _partition_count(topic, assignment), {})


@lru_cache(maxsize=1024)
def _partition_count(topic: str, assignment: bytes) -> int:
    return znodes.partition_count(topic, assignment)


def is_to_be_deleted(store: MemoryStoreState, topic: str) -> bool:
    """True if a deletion was requested; its replicas are deleted one by one."""
    return store.find(znodes.delete_topic_path(topic)) is not None


def is_in_use(store: MemoryStoreState) -> bool:
    """False for a lost store until the takeover is done (R44)."""
    node = store.find(znodes.CLUSTER_ID)
    return node is not None and znodes.decode_cluster(node.data).takeover is znodes.TakeoverState.DONE


def registered_epoch(store: MemoryStoreState, broker_id: BrokerId) -> int | None:
    """None if the broker is not registered."""
    node = store.find(znodes.broker_path(broker_id))
    return None if node is None else node.created_id


def registered_broker(store: MemoryStoreState, broker_id: BrokerId) -> BrokerRegistration | None:
    node = store.find(znodes.broker_path(broker_id))
    return None if node is None else znodes.decode_broker(broker_id, node.data, node.created_id)


def topic_id_of(topic: str, data: bytes) -> Uuid:
    """Id in the content of the topic's node."""
    return znodes.decode_topic(topic, data, 0, [None] * znodes.partition_count(topic, data), {}).topic_id


def replica(cluster: SimulatedCluster, broker_id: BrokerId, topic_partition: TopicPartition) -> Partition | None:
    """Replica on a broker, even a stopped one; None if there is no broker, or it does not host the partition.

    None also in a failed log directory, even if the partition has not heard of the failure yet.
    """
    broker = cluster.machines[broker_id].broker
    if broker is None:
        return None
    try:
        found = broker.replicas.get(*topic_partition)
    except (UnknownTopicOrPartition, KafkaStorageError):
        return None
    return found if found.log.directory.is_online else None


def held_log(cluster: SimulatedCluster, broker_id: BrokerId, topic_partition: TopicPartition) -> Log | None:
    """Log of the partition on a running broker, whether it hosts the replica yet or not."""
    broker = cluster.machines[broker_id].broker
    log = None if broker is None else broker.replicas.log_of(topic_partition)
    return log if log is None or log.directory.is_online else None


def is_offline(cluster: SimulatedCluster, broker_id: BrokerId, topic_partition: TopicPartition) -> bool:
    """True if the broker may have the partition in a failed log directory."""
    broker = cluster.machines[broker_id].broker
    logs = None if broker is None else broker._logs
    for directory in () if logs is None else logs.directories:
        if not directory.is_online:
            return held_log(cluster, broker_id, topic_partition) is None
    return False


def content(log: Log, start_offset: int, end_offset: int) -> bytes:
    """The bytes of all batches that have records in this range."""
    disk = log.directory.context.disk
    disk = disk.disk if isinstance(disk, DescriptorReclaimingDisk) else disk
    if isinstance(disk, MemoryDisk) and disk.faults:
        with disk.observed():
            return _content(log, start_offset, end_offset)
    return _content(log, start_offset, end_offset)


def _content(log: Log, start_offset: int, end_offset: int) -> bytes:
    found = []
    starts = [segment.base_offset for segment in log.segments]
    for first, following in zip(starts, [*starts[1:], log.log_end_offset], strict=True):
        start, end = max(first, start_offset), min(following, end_offset)
        if start < end:
            part = log.read(start, EVERYTHING_BYTES, end).slice
            found.append(b"" if part is None else bytes(part.read()))
    return b"".join(found)


def batches(log: Log, start_offset: int, end_offset: int) -> list[tuple[BatchHeader, bytes]]:
    return [(header, bytes(batch)) for header, batch in split_batches(content(log, start_offset, end_offset))]

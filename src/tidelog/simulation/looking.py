"""What can be seen of a simulated cluster from outside: the states in the store, and the logs of its replicas."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.image import Broker
from tidelog.cluster.image import Partition as PartitionState
from tidelog.errors import UnknownTopicOrPartition
from tidelog.protocol.record_batch import BatchHeader, split_batches
from tidelog.replication.partition import Partition
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.storage.log import Log
from tidelog.store.memory import MemoryStoreState
from tidelog.types import BrokerId, TopicPartition

EVERYTHING_BYTES = 1 << 30


class Stored(NamedTuple):
    state: PartitionState
    modified_id: int


def stored_partitions(store: MemoryStoreState) -> Iterator[tuple[TopicPartition, Stored]]:
    """Every partition that has a state."""
    for topic in sorted(store.children.get(znodes.TOPICS, ())):
        node = store.find(znodes.topic_path(topic))
        assert node is not None
        for index in range(znodes.partition_count(topic, node.data)):
            found = stored_partition(store, TopicPartition(topic, index))
            if found is not None:
                yield TopicPartition(topic, index), found


def stored_partition(store: MemoryStoreState, topic_partition: TopicPartition) -> Stored | None:
    topic, index = topic_partition
    assignment, node = store.find(znodes.topic_path(topic)), store.find(znodes.state_path(topic, index))
    if assignment is None or node is None:
        return None
    states: list[tuple[bytes, int] | None] = [None] * znodes.partition_count(topic, assignment.data)
    states[index] = (node.data, node.version)
    decoded = znodes.decode_topic(topic, assignment.data, assignment.version, states, {})
    return Stored(decoded.partitions[index], node.modified_id)


def is_to_be_deleted(store: MemoryStoreState, topic: str) -> bool:
    """Its replicas go one after the other."""
    return store.find(znodes.delete_topic_path(topic)) is not None


def registered_epoch(store: MemoryStoreState, broker_id: BrokerId) -> int | None:
    """None if the broker is not registered."""
    node = store.find(znodes.broker_path(broker_id))
    return None if node is None else node.created_id


def registered_broker(store: MemoryStoreState, broker_id: BrokerId) -> Broker | None:
    node = store.find(znodes.broker_path(broker_id))
    return None if node is None else _decoded_broker(broker_id, node.data, node.created_id)


@lru_cache(maxsize=256)
def _decoded_broker(broker_id: BrokerId, data: bytes, epoch: int) -> Broker:
    """Kept: the checks after every change ask for the same few again and again."""
    return znodes.decode_broker(broker_id, data, epoch)


def replica(cluster: SimulatedCluster, broker_id: BrokerId, topic_partition: TopicPartition) -> Partition | None:
    """As its broker holds it, be the broker stopped; None if there is no broker, or it does not host the partition."""
    broker = cluster.machines[broker_id].broker
    if broker is None:
        return None
    try:
        return broker.replicas.get(*topic_partition)
    except UnknownTopicOrPartition:
        return None


def held_log(cluster: SimulatedCluster, broker_id: BrokerId, topic_partition: TopicPartition) -> Log | None:
    """What a broker that runs would lead with, be it hosted yet or not."""
    broker = cluster.machines[broker_id].broker
    return None if broker is None else broker.replicas.log_of(topic_partition)


def content(log: Log, start_offset: int, end_offset: int) -> bytes:
    """The bytes of all batches that have records in this range, whatever is the matter with the disk."""
    with _untroubled(log):
        return _content(log, start_offset, end_offset)


@contextmanager
def _untroubled(log: Log) -> Iterator[None]:
    """To look is not to read: no fault may strike whoever looks, and be taken for the broker's."""
    disk = log.directory.context.disk
    if not isinstance(disk, MemoryDisk):
        yield
        return
    faults, disk.faults = disk.faults, []
    try:
        yield
    finally:
        disk.faults = faults


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

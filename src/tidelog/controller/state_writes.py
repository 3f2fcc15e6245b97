"""Partition state writes (`updateLeaderAndIsr`): many partitions in one transaction, by compare-and-set."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.elections import NO_STATE_VERSION
from tidelog.controller.fenced_store import FencedStore, in_transactions
from tidelog.store.interface import BadVersion, Create, Node, NodeExists, NoNode, Operation, Set
from tidelog.types import TopicPartition

MAX_ATTEMPTS = 5


class WriteOutcome(NamedTuple):
    written: dict[TopicPartition, PartitionRegistration]
    """Written partitions, with their new versions."""
    lost: list[TopicPartition]
    """Partitions with another version in the store: to be read and decided again."""


async def write_states(store: FencedStore, wanted: Mapping[TopicPartition, PartitionRegistration]) -> WriteOutcome:
    """Each partition has the version expected in the store; NO_STATE_VERSION: the state must not exist."""
    outcome = WriteOutcome({}, [])
    await _make_parents(store, wanted)
    for batch in in_transactions(list(wanted.items())):
        await _write_batch(store, dict(batch), outcome)
    return outcome


async def _write_batch(
    store: FencedStore, batch: dict[TopicPartition, PartitionRegistration], outcome: WriteOutcome
) -> None:
    for _ in range(MAX_ATTEMPTS):
        try:
            if batch:
                await store.write([_operation(*item) for item in batch.items()])
        except (BadVersion, NoNode, NodeExists):
            await _remove_changed(store, batch, outcome)
            continue
        outcome.written.update((each, _written(partition)) for each, partition in batch.items())
        return
    outcome.lost.extend(batch)


async def _remove_changed(
    store: FencedStore, batch: dict[TopicPartition, PartitionRegistration], outcome: WriteOutcome
) -> None:
    """Remove from the batch what another writer changed, and what an unanswered attempt has written (R20)."""
    nodes = await store.get_many([state_path(each) for each in batch])
    for (topic_partition, partition), node in zip(list(batch.items()), nodes, strict=True):
        version = NO_STATE_VERSION if node is None else node.version
        if version == partition.version:
            continue
        del batch[topic_partition]
        if node is not None and _is_own(node, partition):
            outcome.written[topic_partition] = _written(partition)
        else:
            outcome.lost.append(topic_partition)


def _is_own(node: Node, partition: PartitionRegistration) -> bool:
    return node.version == partition.version + 1 and node.data == znodes.encode_state(partition)


def _written(partition: PartitionRegistration) -> PartitionRegistration:
    return partition.stamped(version=partition.version + 1)


def _operation(topic_partition: TopicPartition, partition: PartitionRegistration) -> Operation:
    path, data = state_path(topic_partition), znodes.encode_state(partition)
    return Create(path, data) if partition.version == NO_STATE_VERSION else Set(path, data, partition.version)


def state_path(topic_partition: TopicPartition) -> str:
    return znodes.state_path(topic_partition.topic, topic_partition.partition)


async def _make_parents(store: FencedStore, wanted: Mapping[TopicPartition, PartitionRegistration]) -> None:
    """Create the parents of the states of new partitions; some may exist already."""
    new = [each for each, partition in wanted.items() if partition.version == NO_STATE_VERSION]
    topics = dict.fromkeys(each.topic for each in new)
    paths = [znodes.partitions_path(topic) for topic in topics]
    paths += [znodes.partition_path(each.topic, each.partition) for each in new]
    nodes = await store.get_many(paths)
    missing = [path for path, node in zip(paths, nodes, strict=True) if node is None]
    for operations in in_transactions([Create(path) for path in missing]):
        try:
            await store.write(operations)
        except (NodeExists, NoNode):  # created by an unanswered attempt, or the topic is gone
            await _make_one_by_one(store, operations)


async def _make_one_by_one(store: FencedStore, operations: Sequence[Create]) -> None:
    for operation in operations:
        try:
            await store.write([operation])
        except (NodeExists, NoNode):
            continue

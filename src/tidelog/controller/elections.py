"""New leader epochs for a broker that comes back, and topics for logs that nobody has in the store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidelog.cluster import znodes
from tidelog.cluster.image import Partition, Topic
from tidelog.controller.registration import ControllerTerm
from tidelog.controller.topics import new_partition_nodes
from tidelog.store.interface import Check, Create, Operation, Set, Store
from tidelog.types import BrokerId

PARTITIONS_PER_WRITE = 1000
"""A store takes a transaction of limited size."""


async def raise_leader_epochs(
    store: Store, term: ControllerTerm, topics: Iterable[Topic], broker_id: BrokerId
) -> list[Topic]:
    """A leader that stopped without warning may have lost its tail: what it writes now belongs to a new epoch."""
    changed = [raised for topic in topics if (raised := _raised(topic, term, broker_id)) is not topic]
    await _write_states(store, term, changed)
    return changed


def _raised(topic: Topic, term: ControllerTerm, broker_id: BrokerId) -> Topic:
    if all(partition.leader != broker_id for partition in topic.partitions):
        return topic
    return replace(
        topic,
        partitions=tuple(
            replace(
                partition,
                leader_epoch=partition.leader_epoch + 1,
                controller_epoch=term.epoch,
                version=partition.version + 1,
            )
            if partition.leader == broker_id
            else partition
            for partition in topic.partitions
        ),
    )


async def _write_states(store: Store, term: ControllerTerm, topics: Sequence[Topic]) -> None:
    writes: list[Operation] = [
        Set(znodes.state_path(topic.name, partition.index), znodes.encode_state(partition), partition.version - 1)
        for topic in topics
        for partition in topic.partitions
        if partition.controller_epoch == term.epoch
    ]
    fence = Check(znodes.CONTROLLER_EPOCH, term.epoch_version)
    for start in range(0, len(writes), PARTITIONS_PER_WRITE):
        await store.multi([fence, *writes[start : start + PARTITIONS_PER_WRITE]])


async def register_found_topics(store: Store, term: ControllerTerm, topics: Iterable[Topic]) -> None:
    """Enter topics whose logs were there before the store was."""
    for topic in topics:
        operations: list[Operation] = [
            Check(znodes.CONTROLLER_EPOCH, term.epoch_version),
            Create(znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, topic.partitions)),
            Create(znodes.partitions_path(topic.name)),
            Create(znodes.topic_config_path(topic.name), znodes.encode_config(topic.configs)),
            *new_partition_nodes(topic.name, topic.partitions),
        ]
        await store.multi(operations)


def found_topic(
    name: str, topic_id: bytes, latest_epochs: Mapping[int, int], broker_id: BrokerId, term: ControllerTerm
) -> Topic:
    """A topic as its logs on one broker tell it: partition index to the latest leader epoch in its log."""
    return Topic(
        name,
        topic_id,
        tuple(
            Partition(
                index=index,
                replicas=(broker_id,),
                leader=broker_id,
                leader_epoch=latest_epochs.get(index, -1) + 1,
                in_sync_replicas=(broker_id,),
                controller_epoch=term.epoch,
            )
            for index in range(max(latest_epochs) + 1)
        ),
    )

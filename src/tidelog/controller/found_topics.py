"""Topics whose logs were there before the store was."""

from collections.abc import Iterable, Mapping

from tidelog.cluster import znodes
from tidelog.cluster.image import Partition, Topic
from tidelog.controller.registration import ControllerTerm
from tidelog.store.interface import Check, Create, Operation, Store
from tidelog.types import BrokerId


async def register_found_topics(store: Store, term: ControllerTerm, topics: Iterable[Topic]) -> None:
    """Enter topics whose logs were there before the store was."""
    for topic in topics:
        operations: list[Operation] = [
            Check(znodes.CONTROLLER_EPOCH, term.epoch_version),
            Create(znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, topic.partitions)),
            Create(znodes.partitions_path(topic.name)),
            Create(znodes.topic_config_path(topic.name), znodes.encode_config(topic.configs)),
            *_partition_nodes(topic),
        ]
        await store.multi(operations)


def _partition_nodes(topic: Topic) -> Iterable[Operation]:
    for partition in topic.partitions:
        yield Create(znodes.partition_path(topic.name, partition.index))
        yield Create(znodes.state_path(topic.name, partition.index), znodes.encode_state(partition))


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

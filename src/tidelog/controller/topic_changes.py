"""Topics and partitions that appear in the store, and requests to delete some."""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from tidelog.cluster import znodes
from tidelog.controller.events import PartitionModification, TopicChange, TopicDeletion
from tidelog.controller.loading import load_stored_topics
from tidelog.controller.notifications import remove_nodes
from tidelog.controller.office import Office
from tidelog.controller.partition_machine import Changes, move_partitions, repair
from tidelog.controller.replica_machine import move_replicas
from tidelog.controller.states import PartitionState, Replica, ReplicaState
from tidelog.controller.topic_deletion import delete_topics, hide_topic
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

WATCHES_AT_ONCE = 500


async def on_topic_change(office: Office, event: TopicChange) -> str | None:
    """New topics get leaders; topics that are gone from the store, by somebody else's hand, are forgotten."""
    names = await office.store.children(znodes.TOPICS, office.watch(event))
    gone = sorted(office.context.topics.keys() - set(names))
    for name in gone:
        logger.warning("topic vanished from the store topic=%s", name)
        hide_topic(office, name)
        office.context.drop_topic(name)
    new = [name for name in names if name not in office.context.topics]
    if not new:
        return None
    await watch_topics(office, new)
    stored = [each.topic for each in await load_stored_topics(office.store, new)]
    for topic in stored:
        office.context.add_topic(topic)
    partitions = [each for topic in stored for each, _ in office.context.topics[topic.name]]
    changes = await _start_partitions(office, partitions)
    return f"topics created topics={len(stored)} partitions={len(partitions)} with_leader={changes.created}"


async def on_partition_modification(office: Office, event: PartitionModification) -> str | None:
    """A topic grew."""
    known = office.context.topics.get(event.topic)
    if known is None or event.topic in office.context.topics_to_delete:
        return None  # nor is it watched any more: a topic that comes anew is a change of topics
    if await office.store.exists(znodes.topic_path(event.topic), office.watch(event)) is None:
        return None
    for stored in await load_stored_topics(office.store, [event.topic]):
        added = stored.topic.partitions[len(known.partitions) :]
        if not added:
            return None
        office.context.add_partitions(event.topic, added)
        partitions = [TopicPartition(event.topic, partition.index) for partition in added]
        changes = await _start_partitions(office, partitions)
        return f"partitions created topic={event.topic} partitions={len(added)} with_leader={changes.created}"
    return None


async def on_topic_deletion(office: Office, event: TopicDeletion) -> str | None:
    wanted = await office.store.children(znodes.DELETE_TOPICS, office.watch(event))
    if not wanted:
        return None
    if not office.settings().delete_topic_enable:
        await remove_nodes(office.store, [znodes.delete_topic_path(topic) for topic in wanted])
        return f"topics are not deleted: delete.topic.enable=false topics={','.join(wanted)}"
    if any(topic not in office.context.topics for topic in wanted):
        await on_topic_change(office, TopicChange())
    unknown = [topic for topic in wanted if topic not in office.context.topics]
    await remove_nodes(office.store, [znodes.delete_topic_path(topic) for topic in unknown])
    new = [topic for topic in wanted if topic not in office.context.topics_to_delete and topic not in unknown]
    await delete_topics(office, new)
    return f"topics to delete topics={','.join(new)}" if new else None


async def watch_topics(office: Office, topics: Sequence[str]) -> None:
    """Before they are read, so that nothing is missed."""
    for start in range(0, len(topics), WATCHES_AT_ONCE):
        await asyncio.gather(
            *(
                office.store.exists(znodes.topic_path(topic), office.watch(PartitionModification(topic)))
                for topic in topics[start : start + WATCHES_AT_ONCE]
            )
        )


async def _start_partitions(office: Office, partitions: Iterable[TopicPartition]) -> Changes:
    context = office.context
    new = [each for each in partitions if not context.is_being_deleted(each)]
    replicas = [Replica(each, broker_id) for each in new for broker_id in context.partition(each).replicas]
    move_partitions(office, new, PartitionState.NEW, "partition created")
    move_replicas(office, replicas, ReplicaState.NEW, "partition created")
    changes = await repair(office, new)
    online = [each for each in replicas if context.is_online(each)]
    offline = [each for each in replicas if not context.is_online(each)]
    move_replicas(office, online, ReplicaState.ONLINE, "first leader chosen")
    move_replicas(office, offline, ReplicaState.OFFLINE, "first leader chosen, its broker is not registered")
    office.tell_brokers(new)
    return changes

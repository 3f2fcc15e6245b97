"""Topic changes in the store: new topics, new partitions, deletion requests."""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from tidelog.cluster import znodes
from tidelog.controller.context_loading import load_stored_topics
from tidelog.controller.events import PartitionModifications, PartitionReassignment, TopicChange, TopicDeletion
from tidelog.controller.notifications import remove_nodes
from tidelog.controller.partition_state_machine import Changes, elect_offline_leaders, move_partitions
from tidelog.controller.replica_state_machine import move_replicas
from tidelog.controller.states import PartitionState, Replica, ReplicaState
from tidelog.controller.term import ControllerTerm
from tidelog.controller.topic_deletion import delete_topics, hide_topic
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

WATCHES_AT_ONCE = 500


async def on_topic_change(term: ControllerTerm, event: TopicChange) -> str | None:
    """Elect leaders for new topics. Drop topics that an external tool removed from the store."""
    names = await term.store.children(znodes.TOPICS, term.watch(event))
    gone = sorted(term.context.topics.keys() - set(names))
    for name in gone:
        logger.warning("topic disappeared from the store topic=%s", name)
        hide_topic(term, name)
        term.context.drop_topic(name)
    new = [name for name in names if name not in term.context.topics]
    if not new:
        return None
    await watch_topics(term, new)
    stored = [each.topic for each in await load_stored_topics(term.store, new)]
    for topic in stored:
        term.context.add_topic(topic)
    partitions = [each for topic in stored for each, _ in term.context.topics[topic.name]]
    changes = await _start_partitions(term, partitions)
    return f"topics created topics={len(stored)} partitions={len(partitions)} with_leader={changes.created}"


async def on_partition_modifications(term: ControllerTerm, event: PartitionModifications) -> str | None:
    """Partitions were added to a topic."""
    cached = term.context.topics.get(event.topic)
    if cached is None or event.topic in term.context.topics_to_delete:
        return None  # the watch stays removed: if the topic is created again, TopicChange sets it
    if await term.store.exists(znodes.topic_path(event.topic), term.watch(event)) is None:
        return None
    for stored in await load_stored_topics(term.store, [event.topic]):
        added = stored.topic.partitions[len(cached.partitions) :]
        if not added:
            return None
        term.context.add_partitions(event.topic, added)
        partitions = [TopicPartition(event.topic, partition.index) for partition in added]
        changes = await _start_partitions(term, partitions)
        return f"partitions created topic={event.topic} partitions={len(added)} with_leader={changes.created}"
    return None


async def on_topic_deletion(term: ControllerTerm, event: TopicDeletion) -> str | None:
    wanted = await term.store.children(znodes.DELETE_TOPICS, term.watch(event))
    if not wanted:
        return None
    if not term.settings().delete_topic_enable:
        await remove_nodes(term.store, [znodes.delete_topic_path(topic) for topic in wanted])
        return f"ignored topic deletion, delete.topic.enable=false topics={','.join(wanted)}"
    if any(topic not in term.context.topics for topic in wanted):
        await on_topic_change(term, TopicChange())
    unknown = [topic for topic in wanted if topic not in term.context.topics]
    await remove_nodes(term.store, [znodes.delete_topic_path(topic) for topic in unknown])
    new = [topic for topic in wanted if topic not in term.context.topics_to_delete and topic not in unknown]
    if any(each.topic in new for each in term.context.reassigning()):
        term.put(PartitionReassignment())  # requests for it are over
    await delete_topics(term, new)
    return f"topics to delete topics={','.join(new)}" if new else None


async def watch_topics(term: ControllerTerm, topics: Sequence[str]) -> None:
    """Set watches before the topics are read, so that no change is missed."""
    for start in range(0, len(topics), WATCHES_AT_ONCE):
        await asyncio.gather(
            *(
                term.store.exists(znodes.topic_path(topic), term.watch(PartitionModifications(topic)))
                for topic in topics[start : start + WATCHES_AT_ONCE]
            )
        )


async def _start_partitions(term: ControllerTerm, partitions: Iterable[TopicPartition]) -> Changes:
    context = term.context
    new = [each for each in partitions if not context.is_being_deleted(each)]
    replicas = [Replica(each, broker_id) for each in new for broker_id in context.partition(each).replicas]
    move_partitions(term, new, PartitionState.NEW, "partition created")
    move_replicas(term, replicas, ReplicaState.NEW, "partition created")
    changes = await elect_offline_leaders(term, new)
    online = [each for each in replicas if context.is_online(each)]
    offline = [each for each in replicas if not context.is_online(each)]
    move_replicas(term, online, ReplicaState.ONLINE, "first leader chosen")
    move_replicas(term, offline, ReplicaState.OFFLINE, "first leader chosen, its broker is not registered")
    term.enqueue_update_metadata(new)
    return changes

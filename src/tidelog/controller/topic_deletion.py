"""Topic deletion: every replica is deleted on its broker before the topic, even if the broker is down now (R38)."""

import logging
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tidelog.cluster import znodes
from tidelog.controller.events import RetryTopicDeletion, TopicDeletionStopReplicaResponseReceived
from tidelog.controller.fenced_store import in_transactions
from tidelog.controller.partition_state_machine import move_partitions
from tidelog.controller.replica_state_machine import move_replicas
from tidelog.controller.request_batch import LEADER_DURING_DELETE
from tidelog.controller.states import PartitionState, Replica, ReplicaState
from tidelog.controller.term import ControllerTerm
from tidelog.store.interface import BadVersion, Delete, NoNode, NotEmpty
from tidelog.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
RETRY_S = 5.0


async def delete_topics(term: ControllerTerm, topics: Iterable[str]) -> None:
    """Start these deletions and continue the pending ones."""
    term.context.topics_to_delete.update(topics)
    await resume_deletions(term)


async def resume_deletions(term: ControllerTerm) -> None:
    for topic in sorted(term.context.topics_to_delete):
        states = {term.context.replica_states.get(each) for each in term.context.replicas_of(topic)}
        if states <= {ReplicaState.DELETION_SUCCESSFUL}:
            await _complete(term, topic)
        elif ReplicaState.DELETION_STARTED not in states and topic not in term.context.topics_ineligible_for_deletion:
            _begin(term, topic)


async def on_topic_deletion_stop_replica_response_received(
    term: ControllerTerm, event: TopicDeletionStopReplicaResponseReceived
) -> None:
    """R43: a response to an earlier attempt is ignored."""
    context = term.context

    def answered(replicas: Iterable[Replica]) -> list[Replica]:
        return [
            each
            for each in sorted(replicas)
            if context.replica_states.get(each) is ReplicaState.DELETION_STARTED
            and context.deletion_attempts.get(each) == event.attempt
        ]

    move_replicas(term, answered(event.deleted), ReplicaState.DELETION_SUCCESSFUL, "StopReplica answered")
    rejected = answered(event.rejected)
    suspend_deletions(term, [*answered(event.failed), *rejected])
    if rejected:
        term.put_later(RetryTopicDeletion(frozenset(each.topic_partition.topic for each in rejected)), RETRY_S)
    await resume_deletions(term)


async def on_retry_topic_deletion(term: ControllerTerm, event: RetryTopicDeletion) -> None:
    """Retry deletions that failed for another reason than an offline log directory."""
    term.context.topics_ineligible_for_deletion -= event.topics
    await resume_deletions(term)


def suspend_deletions(term: ControllerTerm, replicas: Iterable[Replica]) -> None:
    """Mark the topics of these replicas ineligible for deletion until a broker starts."""
    context = term.context
    for replica in replicas:
        if not context.is_being_deleted(replica.topic_partition):
            continue
        if context.replica_states.get(replica) is ReplicaState.DELETION_STARTED:
            move_replicas(term, [replica], ReplicaState.DELETION_INELIGIBLE, "its deletion failed")
        if context.replica_states.get(replica) is not ReplicaState.DELETION_SUCCESSFUL:
            _suspend(term, replica.topic_partition.topic)


def allow_deletions(term: ControllerTerm, brokers: AbstractSet[BrokerId]) -> None:
    """Make topics with replicas on these brokers eligible for deletion again."""
    context = term.context
    context.topics_ineligible_for_deletion -= {
        topic
        for topic in context.topics_ineligible_for_deletion
        if any(replica.broker_id in brokers for replica in context.replicas_of(topic))
    }


def _begin(term: ControllerTerm, topic: str) -> None:
    context = term.context
    hide_topic(term, topic)
    remaining = [
        replica
        for replica in context.replicas_of(topic)
        if context.replica_states.get(replica) is not ReplicaState.DELETION_SUCCESSFUL
    ]
    offline = [replica for replica in remaining if not context.is_online(replica)]
    online = [replica for replica in remaining if context.is_online(replica)]
    move_replicas(term, remaining, ReplicaState.OFFLINE, "topic deletion begins")
    move_replicas(term, offline, ReplicaState.DELETION_INELIGIBLE, "its broker or log directory is offline")
    move_replicas(term, online, ReplicaState.DELETION_STARTED, "topic deletion begins")
    logger.info("deleting topic topic=%s replicas=%d offline_replicas=%d", topic, len(online), len(offline))
    if offline:
        _suspend(term, topic)


def _suspend(term: ControllerTerm, topic: str) -> None:
    if topic not in term.context.topics_ineligible_for_deletion:
        term.context.topics_ineligible_for_deletion.add(topic)
        logger.warning("topic deletion waits for brokers that are down or failed to delete topic=%s", topic)


def hide_topic(term: ControllerTerm, topic: str) -> None:
    """Remove the topic from the brokers' metadata at once, even if its deletion has to wait."""
    cached = term.context.topics[topic]
    partitions = [each for each, _ in cached]
    move_partitions(term, partitions, PartitionState.OFFLINE, "topic deletion begins")
    deleted = [replace(partition, leader=LEADER_DURING_DELETE) for partition in cached.partitions]
    term.batch.add_metadata(term.context.brokers, [(cached.name, cached.topic_id, partition) for partition in deleted])


async def _complete(term: ControllerTerm, topic: str) -> None:
    context = term.context
    partitions = [each for each, _ in context.topics[topic]]
    if not await _delete_nodes(term, topic, partitions):
        logger.error("gave up topic deletion, nodes keep changing topic=%s", topic)
        return
    move_replicas(term, context.replicas_of(topic), ReplicaState.NON_EXISTENT, "topic deleted")
    move_partitions(term, partitions, PartitionState.NON_EXISTENT, "topic deleted")
    context.drop_topic(topic)
    logger.info("deleted topic topic=%s partitions=%d", topic, len(partitions))


async def _delete_nodes(term: ControllerTerm, topic: str, partitions: list[TopicPartition]) -> bool:
    """Delete the request together with the topic's nodes: while the request exists, a controller continues with it."""
    of_partitions = [znodes.state_path(topic, each.partition) for each in partitions]
    of_partitions += [znodes.partition_path(topic, each.partition) for each in partitions]
    last = [
        znodes.partitions_path(topic),
        znodes.topic_path(topic),
        znodes.topic_config_path(topic),
        znodes.delete_topic_path(topic),
    ]
    for _ in range(MAX_ATTEMPTS):
        try:
            for paths in [*in_transactions(of_partitions), last]:
                nodes = await term.store.get_many(paths)
                found = [Delete(path) for path, node in zip(paths, nodes, strict=True) if node is not None]
                if found:
                    await term.store.write(found)
        except (NoNode, NotEmpty, BadVersion):
            continue
        return True
    return False

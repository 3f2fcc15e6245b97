"""Controller failover (`onControllerFailover`): the steps of a newly elected controller, in the order of R33."""

from collections.abc import Mapping
from dataclasses import replace

from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration, PartitionRegistration, Topic
from tidelog.controller.context import with_incarnations
from tidelog.controller.context_loading import StoredTopic, load_brokers, load_log_directories, load_stored_topics
from tidelog.controller.elections import NO_STATE_VERSION
from tidelog.controller.events import (
    BrokerChange,
    IsrChangeNotification,
    LogDirEventNotification,
    PartitionReassignment,
    PreferredReplicaElection,
    TopicChange,
    TopicDeletion,
)
from tidelog.controller.notifications import remove_nodes, resend_leader_and_isr
from tidelog.controller.partition_state_machine import elect_offline_leaders
from tidelog.controller.reassignment_events import resume_reassignments
from tidelog.controller.removed_replicas import initialize_removed_replicas
from tidelog.controller.states import PartitionState, Replica, ReplicaState
from tidelog.controller.term import ControllerTerm
from tidelog.controller.topic_changes import on_topic_deletion, watch_topics
from tidelog.types import BrokerId


async def on_controller_failover(term: ControllerTerm) -> str:
    """Watches are set before anything is read, so that no change is missed in between."""
    context, store = term.context, term.store
    brokers = await load_brokers(store, term.watch(BrokerChange()))
    topics = await store.children(znodes.TOPICS, term.watch(TopicChange()))
    deletions = await store.children(znodes.DELETE_TOPICS, term.watch(TopicDeletion()))
    await _clear_notifications(term)
    await watch_topics(term, topics)
    stored = await load_stored_topics(store, topics)
    context.brokers = brokers
    context.directories = dict(await load_log_directories(store, brokers.values()))
    for each in stored:
        context.add_topic(_with_broker_epochs(each, brokers))
    if term.settings().delete_topic_enable:
        context.topics_to_delete.update(context.topics.keys() & set(deletions))
    for broker in brokers.values():
        term.channels.add(broker)
    term.batch.add_metadata(brokers, ())
    term.send()
    _initialize_states(term)
    initialize_removed_replicas(term)
    resend_leader_and_isr(term, set(brokers))
    partitions = [each for each, _ in context.partitions()]
    changes = await elect_offline_leaders(term, partitions, are_fresh=True)
    term.enqueue_whole_metadata(brokers)
    await _resume(term)
    figures = f"brokers={len(brokers)} topics={len(stored)} partitions={len(partitions)}"
    return f"controller failover completed {figures} {changes}"


async def _clear_notifications(term: ControllerTerm) -> None:
    """Notifications are redundant here: all states are read, and LeaderAndIsr is sent to all brokers."""
    for parent, event in (
        (znodes.LOG_DIRECTORY_EVENTS, LogDirEventNotification()),
        (znodes.IN_SYNC_CHANGES, IsrChangeNotification()),
    ):
        names = await term.store.children(parent, term.watch(event))
        await remove_nodes(term.store, [f"{parent}/{name}" for name in names])


async def _resume(term: ControllerTerm) -> None:
    """Resume what a previous controller left unfinished. The events also set their watches."""
    await resume_reassignments(term)
    term.put(PartitionReassignment())
    await on_topic_deletion(term, TopicDeletion())
    term.put(PreferredReplicaElection())


def _initialize_states(term: ControllerTerm) -> None:
    context = term.context
    for topic_partition, partition in context.partitions():
        context.partition_states[topic_partition] = _partition_state(partition)
        for broker_id in partition.replicas:
            replica = Replica(topic_partition, broker_id)
            if context.is_online(replica):
                context.replica_states[replica] = ReplicaState.ONLINE
            elif context.is_being_deleted(topic_partition):
                context.replica_states[replica] = ReplicaState.DELETION_INELIGIBLE
            else:
                context.replica_states[replica] = ReplicaState.OFFLINE


def _partition_state(partition: PartitionRegistration) -> PartitionState:
    return PartitionState.NEW if partition.version == NO_STATE_VERSION else PartitionState.OFFLINE


def _with_broker_epochs(stored: StoredTopic, brokers: Mapping[BrokerId, BrokerRegistration]) -> Topic:
    partitions = zip(stored.topic.partitions, stored.modified_ids, strict=True)
    return replace(stored.topic, partitions=tuple(with_incarnations(*each, brokers) for each in partitions))

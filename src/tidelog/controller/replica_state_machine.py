"""Replica state machine: moves replicas to a state and enqueues LeaderAndIsr or StopReplica for their brokers (R34)."""

import logging
from collections.abc import Iterable

from tidelog.controller.elections import NO_STATE_VERSION
from tidelog.controller.states import Replica, ReplicaState
from tidelog.controller.term import ControllerTerm

logger = logging.getLogger(__name__)

EPOCH_DURING_DELETE = -2
"""Leader epoch in StopReplica for a deleted topic: overrides any epoch on the broker (KIP-570)."""


def move_replicas(term: ControllerTerm, replicas: Iterable[Replica], target: ReplicaState, reason: str) -> None:
    moved, rejected = term.context.replica_states.move(replicas, target, reason)
    for illegal in rejected:
        logger.error("refused illegal replica state transition: %s", illegal)
    for replica, before in moved.items():
        if target is ReplicaState.ONLINE:
            _start(term, replica, is_new=before is ReplicaState.NEW)
        elif target is ReplicaState.OFFLINE and term.context.is_online(replica):
            _stop(term, replica, delete=False)
        elif target is ReplicaState.DELETION_STARTED:
            _stop(term, replica, delete=True)


def _start(term: ControllerTerm, replica: Replica, *, is_new: bool) -> None:
    """Enqueue LeaderAndIsr, unless the partition never had a leader.

    A replica that is being added has no records to lose: it may be created beside a log directory that is offline.
    """
    partition = term.context.partition(replica.topic_partition)
    if partition.version != NO_STATE_VERSION:
        is_being_added = replica.broker_id in partition.adding_replicas and replica.broker_id not in (
            *partition.in_sync_replicas,
            *partition.eligible_leader_replicas,
        )
        term.enqueue_leader_and_isr(replica.topic_partition, (replica.broker_id,), is_new=is_new or is_being_added)


def _stop(term: ControllerTerm, replica: Replica, *, delete: bool) -> None:
    topic_partition = replica.topic_partition
    leader_epoch = term.context.partition(topic_partition).leader_epoch
    if term.context.is_being_deleted(topic_partition):
        leader_epoch = EPOCH_DURING_DELETE
    term.batch.add_stop_replica(
        (replica.broker_id,),
        topic_partition.topic,
        topic_partition.partition,
        leader_epoch=leader_epoch,
        delete=delete,
        topic_id=term.context.topics[topic_partition.topic].topic_id,
    )

"""Bringing replicas into a state, and telling their brokers what that means for them (R34)."""

import logging
from collections.abc import Iterable

from tidelog.controller.elections import NO_STATE_VERSION
from tidelog.controller.office import Office
from tidelog.controller.states import Replica, ReplicaState

logger = logging.getLogger(__name__)

EPOCH_DURING_DELETE = -2
"""The leader epoch of a StopReplica for a topic that is deleted: whatever epoch the broker knows (KIP-570)."""


def move_replicas(office: Office, replicas: Iterable[Replica], target: ReplicaState, reason: str) -> None:
    moved, refused = office.context.replica_states.move(replicas, target, reason)
    for illegal in refused:
        logger.error("refused to change the state of a replica: %s", illegal)
    for replica, before in moved.items():
        if target is ReplicaState.ONLINE:
            _start(office, replica, is_new=before is ReplicaState.NEW)
        elif target is ReplicaState.OFFLINE and office.context.is_online(replica):
            _stop(office, replica, delete=False)
        elif target is ReplicaState.DELETION_STARTED:
            _stop(office, replica, delete=True)


def _start(office: Office, replica: Replica, *, is_new: bool) -> None:
    """A partition that never had a leader has nothing to tell yet."""
    if office.context.partition(replica.topic_partition).version != NO_STATE_VERSION:
        office.tell_replicas(replica.topic_partition, (replica.broker_id,), is_new=is_new)


def _stop(office: Office, replica: Replica, *, delete: bool) -> None:
    topic_partition = replica.topic_partition
    leader_epoch = office.context.partition(topic_partition).leader_epoch
    if office.context.is_being_deleted(topic_partition):
        leader_epoch = EPOCH_DURING_DELETE
    office.batch.add_stop_replica(
        (replica.broker_id,),
        topic_partition.topic,
        topic_partition.partition,
        leader_epoch=leader_epoch,
        delete=delete,
        topic_id=office.context.topics[topic_partition.topic].topic_id,
    )

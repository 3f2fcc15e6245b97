"""Replicas that a reassignment adds and removes: start the added ones, delete the logs of the removed ones (R37).

The topic node keeps a removed replica until its broker has deleted the log, even if the broker is down or the
controller changes meanwhile. The reassignment itself does not wait for that.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.assignment_writes import change_assignments
from tidelog.controller.elections import NO_STATE_VERSION, Decision
from tidelog.controller.events import DeleteRemovedReplicas, TopicDeletionStopReplicaResponseReceived
from tidelog.controller.reassignment import without_removed
from tidelog.controller.replica_state_machine import move_replicas
from tidelog.controller.states import Replica, ReplicaState
from tidelog.controller.term import ControllerTerm
from tidelog.controller.topic_deletion import RETRY_S, on_topic_deletion_stop_replica_response_received
from tidelog.types import BrokerId, TopicPartition


def move_reassigned_replicas(term: ControllerTerm, before: Mapping[TopicPartition, PartitionRegistration]) -> None:
    """Start the added and stop the removed replicas of these partitions, compared with their registrations before."""
    added: list[Replica] = []
    removed: list[Replica] = []
    for topic_partition, earlier in before.items():
        replicas = term.context.partition(topic_partition).replicas
        added += [Replica(topic_partition, each) for each in replicas if each not in earlier.replicas]
        removed += [Replica(topic_partition, each) for each in earlier.replicas if each not in replicas]
    _start(term, added)
    _stop(term, removed)


def _start(term: ControllerTerm, added: Iterable[Replica]) -> None:
    context = term.context
    for replica in added:
        context.forget_replica(replica)  # its deletion may have been pending
        move_replicas(term, [replica], ReplicaState.NEW, "added by a reassignment")
        state = ReplicaState.ONLINE if context.is_online(replica) else ReplicaState.OFFLINE
        move_replicas(term, [replica], state, "added by a reassignment")


def _stop(term: ControllerTerm, removed: Iterable[Replica]) -> None:
    context = term.context
    for replica in removed:
        if context.partition(replica.topic_partition).version == NO_STATE_VERSION:
            context.forget_replica(replica)  # no broker has ever hosted it
            continue
        if context.replica_states.get(replica) is not ReplicaState.OFFLINE:
            move_replicas(term, [replica], ReplicaState.OFFLINE, "removed by a reassignment")
        _delete(term, [replica])


def initialize_removed_replicas(term: ControllerTerm) -> None:
    """Mark removed replicas as offline after a new controller has loaded its context."""
    for topic_partition, partition in term.context.partitions():
        for broker_id in partition.removed_replicas:
            term.context.replica_states[Replica(topic_partition, broker_id)] = ReplicaState.OFFLINE


def delete_removed_replicas(term: ControllerTerm, brokers: AbstractSet[BrokerId]) -> None:
    """Delete the removed replicas on these brokers, which have registered."""
    _delete(term, term.context.removed_replicas(brokers))


def _delete(term: ControllerTerm, replicas: Iterable[Replica]) -> None:
    context = term.context
    move_replicas(
        term,
        [
            each
            for each in replicas
            if context.is_online(each) and context.replica_states.get(each) is ReplicaState.OFFLINE
        ],
        ReplicaState.DELETION_STARTED,
        "removed by a reassignment",
    )


def suspend_removals(term: ControllerTerm, brokers: AbstractSet[BrokerId]) -> None:
    """These brokers are gone, and so are the StopReplica requests in flight to them."""
    _give_up(term, term.context.removed_replicas(brokers), "session of its broker ended")


def _give_up(term: ControllerTerm, replicas: Iterable[Replica], reason: str) -> None:
    """End these deletions for now. They are repeated when the broker registers, or later if it rejected them."""
    states = term.context.replica_states
    begun = [each for each in replicas if states.get(each) is ReplicaState.DELETION_STARTED]
    move_replicas(term, begun, ReplicaState.DELETION_INELIGIBLE, reason)
    for replica in begun:
        # Not by `move_replicas`, which would also send StopReplica for a replica that the broker no longer hosts.
        states.move([replica], ReplicaState.OFFLINE, reason)


async def on_delete_removed_replicas(term: ControllerTerm, _: DeleteRemovedReplicas) -> None:
    """Retry deletions that brokers have rejected."""
    delete_removed_replicas(term, term.context.brokers.keys())


async def on_stop_replica_response_received(
    term: ControllerTerm, event: TopicDeletionStopReplicaResponseReceived
) -> str | None:
    """Handles responses for deleted topics, and for replicas that reassignments have removed."""
    deleted = _answered(term, event, event.deleted)
    rejected = _answered(term, event, event.rejected)
    _give_up(term, [*_answered(term, event, event.failed), *rejected], "StopReplica answered")
    if rejected:
        term.put_once_later(DeleteRemovedReplicas(), RETRY_S)
    for replica in deleted:
        term.context.forget_replica(replica)
    await _forget(term, deleted)
    await on_topic_deletion_stop_replica_response_received(term, event)
    return f"removed replicas deleted replicas={len(deleted)}" if deleted else None


def _answered(
    term: ControllerTerm, event: TopicDeletionStopReplicaResponseReceived, replicas: Iterable[Replica]
) -> list[Replica]:
    """R43: a response to an earlier attempt changes nothing."""
    context = term.context
    found = []
    for replica in sorted(replicas):
        partition = context.find(replica.topic_partition)
        if (
            partition is not None
            and replica.broker_id in partition.removed_replicas
            and not context.is_being_deleted(replica.topic_partition)
            and context.replica_states.get(replica) is ReplicaState.DELETION_STARTED
            and context.deletion_attempts.get(replica) == event.attempt
        ):
            found.append(replica)
    return found


async def _forget(term: ControllerTerm, deleted: Iterable[Replica]) -> None:
    brokers: dict[TopicPartition, set[BrokerId]] = {}
    for replica in deleted:
        brokers.setdefault(replica.topic_partition, set()).add(replica.broker_id)

    def decide(topic_partition: TopicPartition, partition: PartitionRegistration) -> Decision | None:
        return without_removed(partition, brokers[topic_partition])

    if brokers:
        await change_assignments(term, brokers, decide)

"""LeaderAndIsr responses: failed log directories, and retries of refused replicas (R43)."""

from tidelog.controller.elections import NO_STATE_VERSION
from tidelog.controller.events import LeaderAndIsrResponseReceived, RejectedReplica, ResendLeaderAndIsr
from tidelog.controller.partition_state_machine import elect_offline_leaders
from tidelog.controller.replica_state_machine import move_replicas
from tidelog.controller.states import Replica, ReplicaState
from tidelog.controller.term import ControllerTerm

FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 10.0


async def on_leader_and_isr_response_received(term: ControllerTerm, event: LeaderAndIsrResponseReceived) -> str | None:
    """Replicas with a failed log directory are treated as offline. Refused replicas are sent again after a pause."""
    if not _is_registered(term, event.broker_id, event.broker_epoch):
        return None
    _resend_later(term, event)
    context = term.context
    failed = {each for each in event.failed - context.failed_replicas if _is_replica(term, each)}
    recovered = event.healthy & context.failed_replicas
    context.failed_replicas |= failed
    context.failed_replicas -= recovered
    affected = [each for each in sorted(failed | recovered) if not context.is_being_deleted(each.topic_partition)]
    if not affected:
        return None
    changes = await elect_offline_leaders(term, [each.topic_partition for each in affected])
    gone, back = [each for each in affected if each in failed], [each for each in affected if each in recovered]
    move_replicas(term, gone, ReplicaState.OFFLINE, "LeaderAndIsr answered: log directory offline")
    move_replicas(term, back, ReplicaState.ONLINE, "LeaderAndIsr answered: log directory online")
    return f"log directories of replicas changed offline={len(failed)} online={len(recovered)} {changes}"


def _resend_later(term: ControllerTerm, event: LeaderAndIsrResponseReceived) -> None:
    rejections = term.context.rejections
    if not event.rejected:
        rejections.pop(event.broker_id, None)
        return
    pause_s = min(FIRST_PAUSE_S * 2 ** min(rejections.get(event.broker_id, 0), 20), MAX_PAUSE_S)
    rejections[event.broker_id] = rejections.get(event.broker_id, 0) + 1
    term.put_later(ResendLeaderAndIsr(event.broker_id, event.broker_epoch, event.rejected), pause_s)


async def on_resend_leader_and_isr(term: ControllerTerm, event: ResendLeaderAndIsr) -> str | None:
    """Send the current state, which may be newer than the refused one."""
    if not _is_registered(term, event.broker_id, event.broker_epoch):
        return None
    sent = [each for each in sorted(event.replicas) if _is_due(term, each)]
    for replica, is_new in sent:
        term.enqueue_leader_and_isr(replica.topic_partition, (replica.broker_id,), is_new=is_new)
    return f"resending LeaderAndIsr broker_id={event.broker_id} partitions={len(sent)}" if sent else None


def _is_due(term: ControllerTerm, rejected: RejectedReplica) -> bool:
    context, replica = term.context, rejected.replica
    return (
        _is_replica(term, replica)
        and context.is_online(replica)
        and context.replica_states.get(replica) is ReplicaState.ONLINE
        and not context.is_being_deleted(replica.topic_partition)
        and context.partition(replica.topic_partition).version != NO_STATE_VERSION
    )


def _is_registered(term: ControllerTerm, broker_id: int, broker_epoch: int) -> bool:
    """True if the broker still has the registration to which the request was sent."""
    broker = term.context.brokers.get(broker_id)
    return broker is not None and broker.epoch == broker_epoch


def _is_replica(term: ControllerTerm, replica: Replica) -> bool:
    partition = term.context.find(replica.topic_partition)
    return partition is not None and replica.broker_id in partition.replicas

"""Answers to LeaderAndIsr: log directories that failed, and roles that must be told again (R43)."""

from tidelog.controller.elections import NO_STATE_VERSION
from tidelog.controller.events import LeaderAndIsrAnswered, RefusedReplica, ResendLeaderAndIsr
from tidelog.controller.partition_state_machine import repair
from tidelog.controller.replica_state_machine import move_replicas
from tidelog.controller.states import Replica, ReplicaState
from tidelog.controller.term import ControllerTerm

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0


async def on_leader_and_isr_answered(term: ControllerTerm, event: LeaderAndIsrAnswered) -> str | None:
    """Replicas whose log directory is gone count as if their broker was. What was refused is told again, later."""
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
    changes = await repair(term, [each.topic_partition for each in affected])
    gone, back = [each for each in affected if each in failed], [each for each in affected if each in recovered]
    move_replicas(term, gone, ReplicaState.OFFLINE, "LeaderAndIsr answered: log directory offline")
    move_replicas(term, back, ReplicaState.ONLINE, "LeaderAndIsr answered: log directory online")
    return f"replicas lost or found their log directories lost={len(failed)} found={len(recovered)} {changes}"


def _resend_later(term: ControllerTerm, event: LeaderAndIsrAnswered) -> None:
    refusals = term.context.refusals
    if not event.refused:
        refusals.pop(event.broker_id, None)
        return
    pause_s = min(FIRST_PAUSE_S * 2 ** min(refusals.get(event.broker_id, 0), 20), LONGEST_PAUSE_S)
    refusals[event.broker_id] = refusals.get(event.broker_id, 0) + 1
    term.put_later(ResendLeaderAndIsr(event.broker_id, event.broker_epoch, event.refused), pause_s)


async def on_resend_leader_and_isr(term: ControllerTerm, event: ResendLeaderAndIsr) -> str | None:
    """What stands now is told: what was decided meanwhile has overtaken what was refused."""
    if not _is_registered(term, event.broker_id, event.broker_epoch):
        return None
    told = [each for each in sorted(event.replicas) if _is_due(term, each)]
    for replica, is_new in told:
        term.enqueue_leader_and_isr(replica.topic_partition, (replica.broker_id,), is_new=is_new)
    return f"telling roles again broker_id={event.broker_id} partitions={len(told)}" if told else None


def _is_due(term: ControllerTerm, refused: RefusedReplica) -> bool:
    context, replica = term.context, refused.replica
    return (
        _is_replica(term, replica)
        and context.is_online(replica)
        and context.replica_states.get(replica) is ReplicaState.ONLINE
        and not context.is_being_deleted(replica.topic_partition)
        and context.partition(replica.topic_partition).version != NO_STATE_VERSION
    )


def _is_registered(term: ControllerTerm, broker_id: int, broker_epoch: int) -> bool:
    """Still in the registration that was asked."""
    broker = term.context.brokers.get(broker_id)
    return broker is not None and broker.epoch == broker_epoch


def _is_replica(term: ControllerTerm, replica: Replica) -> bool:
    partition = term.context.find(replica.topic_partition)
    return partition is not None and replica.broker_id in partition.replicas

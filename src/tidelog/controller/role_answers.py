"""Answers to LeaderAndIsr: log directories that failed, and roles that must be told again (R43)."""

from tidelog.controller.elections import NO_STATE_VERSION
from tidelog.controller.events import LeaderAndIsrAnswered, RefusedReplica, TellAgain
from tidelog.controller.office import Office
from tidelog.controller.partition_machine import repair
from tidelog.controller.replica_machine import move_replicas
from tidelog.controller.states import Replica, ReplicaState

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0


async def on_leader_and_isr_answered(office: Office, event: LeaderAndIsrAnswered) -> str | None:
    """Replicas whose log directory is gone count as if their broker was. What was refused is told again, later."""
    if not _is_registered(office, event.broker_id, event.broker_epoch):
        return None
    _tell_again_later(office, event)
    context = office.context
    failed = {each for each in event.failed - context.failed_replicas if _is_replica(office, each)}
    recovered = event.healthy & context.failed_replicas
    context.failed_replicas |= failed
    context.failed_replicas -= recovered
    affected = [each for each in sorted(failed | recovered) if not context.is_being_deleted(each.topic_partition)]
    if not affected:
        return None
    changes = await repair(office, [each.topic_partition for each in affected])
    gone, back = [each for each in affected if each in failed], [each for each in affected if each in recovered]
    move_replicas(office, gone, ReplicaState.OFFLINE, "LeaderAndIsr answered: log directory offline")
    move_replicas(office, back, ReplicaState.ONLINE, "LeaderAndIsr answered: log directory online")
    return f"replicas lost or found their log directories lost={len(failed)} found={len(recovered)} {changes}"


def _tell_again_later(office: Office, event: LeaderAndIsrAnswered) -> None:
    refusals = office.context.refusals
    if not event.refused:
        refusals.pop(event.broker_id, None)
        return
    pause_s = min(FIRST_PAUSE_S * 2 ** min(refusals.get(event.broker_id, 0), 20), LONGEST_PAUSE_S)
    refusals[event.broker_id] = refusals.get(event.broker_id, 0) + 1
    office.put_later(TellAgain(event.broker_id, event.broker_epoch, event.refused), pause_s)


async def on_tell_again(office: Office, event: TellAgain) -> str | None:
    """What stands now is told: what was decided meanwhile has overtaken what was refused."""
    if not _is_registered(office, event.broker_id, event.broker_epoch):
        return None
    told = [each for each in sorted(event.replicas) if _is_due(office, each)]
    for replica, is_new in told:
        office.tell_replicas(replica.topic_partition, (replica.broker_id,), is_new=is_new)
    return f"telling roles again broker_id={event.broker_id} partitions={len(told)}" if told else None


def _is_due(office: Office, refused: RefusedReplica) -> bool:
    context, replica = office.context, refused.replica
    return (
        _is_replica(office, replica)
        and context.is_online(replica)
        and context.replica_states.get(replica) is ReplicaState.ONLINE
        and not context.is_being_deleted(replica.topic_partition)
        and context.partition(replica.topic_partition).version != NO_STATE_VERSION
    )


def _is_registered(office: Office, broker_id: int, broker_epoch: int) -> bool:
    """Still in the registration that was asked."""
    broker = office.context.brokers.get(broker_id)
    return broker is not None and broker.epoch == broker_epoch


def _is_replica(office: Office, replica: Replica) -> bool:
    partition = office.context.find(replica.topic_partition)
    return partition is not None and replica.broker_id in partition.replicas

"""Broker changes (`onBrokerStartup`, `onBrokerFailure`): brokers that registered, failed or restarted."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tidelog.cluster.image import BrokerRegistration
from tidelog.controller.context import ControllerContext
from tidelog.controller.context_loading import load_brokers, load_log_directories
from tidelog.controller.elections import NO_BROKERS
from tidelog.controller.events import BrokerChange
from tidelog.controller.partition_state_machine import elect_offline_leaders
from tidelog.controller.reassignment_events import advance_reassignments
from tidelog.controller.removed_replicas import delete_removed_replicas, suspend_removals
from tidelog.controller.replica_state_machine import move_replicas
from tidelog.controller.states import Replica, ReplicaState
from tidelog.controller.term import ControllerTerm
from tidelog.controller.topic_deletion import allow_deletions, resume_deletions, suspend_deletions
from tidelog.types import BrokerId, TopicPartition


class Difference(NamedTuple):
    """Brokers whose registrations differ from those known before."""

    new: AbstractSet[BrokerId] = NO_BROKERS
    gone: AbstractSet[BrokerId] = NO_BROKERS
    restarted: AbstractSet[BrokerId] = NO_BROKERS
    """Registered again since the last change: the broker failed and came back (R39)."""
    moved: AbstractSet[BrokerId] = NO_BROKERS
    """The same epoch with other content, such as another address (`onBrokerUpdate`)."""

    @property
    def started(self) -> AbstractSet[BrokerId]:
        return self.new | self.restarted

    @property
    def stopped(self) -> AbstractSet[BrokerId]:
        return self.gone | self.restarted

    def __str__(self) -> str:
        return " ".join(f"{name}={','.join(map(str, sorted(ids)))}" for name, ids in self._asdict().items() if ids)


def difference(
    previous: Mapping[BrokerId, BrokerRegistration], current: Mapping[BrokerId, BrokerRegistration]
) -> Difference:
    in_both = previous.keys() & current.keys()
    return Difference(
        new=current.keys() - previous.keys(),
        gone=previous.keys() - current.keys(),
        restarted={each for each in in_both if current[each].epoch != previous[each].epoch},
        moved={
            each for each in in_both if previous[each].epoch == current[each].epoch and previous[each] != current[each]
        },
    )


async def on_broker_change(term: ControllerTerm, event: BrokerChange) -> str | None:
    """Move leadership away from failed brokers and send all state to new ones: one write, one round of requests."""
    current = await load_brokers(term.store, term.watch(event))
    found = difference(term.context.brokers, current)
    if not any(found):
        return None
    appeared = await load_log_directories(term.store, [current[each] for each in sorted(found.started)])
    _update_live_brokers(term, current, found)
    term.context.directories.update(appeared)
    # The live brokers first: a broker of Apache Kafka does not follow a leader that is missing from its metadata.
    term.batch.add_metadata(found.started)
    term.send()
    affected = term.context.partitions_on(found.started | found.stopped)
    changes = await elect_offline_leaders(term, [*affected, *term.context.without_leader()])
    _move_replicas_on(term, found)
    term.batch.add_metadata(current)
    # A replica that restarted uncleanly is no longer published as eligible (KIP-966).
    term.enqueue_update_metadata([each for each in affected if _has_eligible_replicas(term.context, each)])
    suspend_removals(term, found.stopped)
    delete_removed_replicas(term, found.started)
    await advance_reassignments(term, term.context.reassigning())
    if found.started:
        term.enqueue_whole_metadata(found.started)
        allow_deletions(term, found.started)
    await resume_deletions(term)
    return f"brokers changed {found} {changes}"


def _has_eligible_replicas(context: ControllerContext, topic_partition: TopicPartition) -> bool:
    return bool(context.partition(topic_partition).eligible_leader_replicas) and not context.is_being_deleted(
        topic_partition
    )


def _update_live_brokers(term: ControllerTerm, current: dict[BrokerId, BrokerRegistration], found: Difference) -> None:
    context = term.context
    context.brokers = current
    context.shutting_down -= found.started | found.stopped
    context.failed_replicas = {each for each in context.failed_replicas if each.broker_id not in found.stopped}
    for broker_id in found.stopped:
        context.directories.pop(broker_id, None)
    if found.moved:  # pending queries went to the previous address
        context.pending_log_end_queries.clear()
    for broker_id in found.stopped | found.moved:
        term.channels.remove(broker_id)
    for broker_id in sorted(found.started | found.moved):
        term.channels.add(current[broker_id])


def _move_replicas_on(term: ControllerTerm, found: Difference) -> None:
    context = term.context
    stopped = context.replicas_on(found.stopped)
    suspend_deletions(term, stopped)
    gone, started = context.replicas_on(found.gone), context.replicas_on(found.started)
    move_replicas(term, _not_deleted(context, gone), ReplicaState.OFFLINE, "session of its broker ended")
    move_replicas(term, _not_deleted(context, started), ReplicaState.ONLINE, "its broker registered")


def _not_deleted(context: ControllerContext, replicas: Iterable[Replica]) -> list[Replica]:
    return [each for each in replicas if not context.is_being_deleted(each.topic_partition)]

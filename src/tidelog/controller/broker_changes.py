"""Brokers that come, go, and come back: what a failover is made of."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tidelog.cluster.image import Broker
from tidelog.controller.context import ControllerContext
from tidelog.controller.context_loading import load_brokers, load_log_directories
from tidelog.controller.elections import NOBODY
from tidelog.controller.events import BrokerChange
from tidelog.controller.partition_state_machine import repair
from tidelog.controller.replica_state_machine import move_replicas
from tidelog.controller.states import Replica, ReplicaState
from tidelog.controller.term import ControllerTerm
from tidelog.controller.topic_deletion import allow_deletions, resume_deletions, suspend_deletions
from tidelog.types import BrokerId, TopicPartition


class Difference(NamedTuple):
    new: AbstractSet[BrokerId] = NOBODY
    gone: AbstractSet[BrokerId] = NOBODY
    restarted: AbstractSet[BrokerId] = NOBODY
    """Registered anew since they were seen: they went and came back (R39)."""
    moved: AbstractSet[BrokerId] = NOBODY
    """The same registration with another address."""

    @property
    def started(self) -> AbstractSet[BrokerId]:
        return self.new | self.restarted

    @property
    def stopped(self) -> AbstractSet[BrokerId]:
        return self.gone | self.restarted

    def __str__(self) -> str:
        return " ".join(f"{name}={','.join(map(str, sorted(ids)))}" for name, ids in self._asdict().items() if ids)


def difference(known: Mapping[BrokerId, Broker], current: Mapping[BrokerId, Broker]) -> Difference:
    in_both = known.keys() & current.keys()
    return Difference(
        new=current.keys() - known.keys(),
        gone=known.keys() - current.keys(),
        restarted={each for each in in_both if current[each].epoch != known[each].epoch},
        moved={each for each in in_both if known[each].epoch == current[each].epoch and known[each] != current[each]},
    )


async def on_broker_change(term: ControllerTerm, event: BrokerChange) -> str | None:
    """Whoever went loses its offices, whoever came gets to know everything, in one write and one round of requests."""
    current = await load_brokers(term.store, term.watch(event))
    found = difference(term.context.brokers, current)
    if not any(found):
        return None
    appeared = await load_log_directories(term.store, [current[each] for each in sorted(found.started)])
    _take_brokers(term, current, found)
    term.context.directories.update(appeared)
    # A broker of Apache Kafka follows no leader of whom it has not heard.
    term.batch.add_metadata(found.started, ())
    term.send()
    affected = term.context.partitions_on(found.started | found.stopped)
    changes = await repair(term, [*affected, *term.context.without_leader()])
    _move_replicas_on(term, found)
    term.batch.add_metadata(current, ())
    # Who came back uncleanly is told as eligible no more (KIP-966).
    term.enqueue_update_metadata([each for each in affected if _has_eligible_replicas(term.context, each)])
    if found.started:
        term.enqueue_whole_metadata(found.started)
        allow_deletions(term, found.started)
    await resume_deletions(term)
    return f"brokers changed {found} {changes}"


def _has_eligible_replicas(context: ControllerContext, topic_partition: TopicPartition) -> bool:
    return bool(context.partition(topic_partition).eligible_replicas) and not context.is_being_deleted(topic_partition)


def _take_brokers(term: ControllerTerm, current: dict[BrokerId, Broker], found: Difference) -> None:
    context = term.context
    context.brokers = current
    context.leaving -= found.started | found.stopped
    context.failed_replicas = {each for each in context.failed_replicas if each.broker_id not in found.stopped}
    for broker_id in found.stopped:
        context.directories.pop(broker_id, None)
    if found.moved:  # questions under way went to the earlier address
        context.asked.clear()
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

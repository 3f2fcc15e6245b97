"""Notification znodes (ISR changes, log directory failures): read, process, delete."""

import logging
from collections.abc import Iterable, Sequence

from tidelog.cluster import znodes
from tidelog.controller.events import IsrChangeNotification, LogDirEventNotification, LogEndsResponseReceived
from tidelog.controller.fenced_store import FencedStore, in_transactions
from tidelog.controller.leader_rebalance import schedule_check_after_join
from tidelog.controller.log_end_queries import record_log_ends
from tidelog.controller.partition_state_machine import elect_offline_leaders, reload
from tidelog.controller.reassignment_events import advance_reassignments
from tidelog.controller.replica_state_machine import move_replicas
from tidelog.controller.states import ReplicaState
from tidelog.controller.term import ControllerTerm
from tidelog.store.interface import Delete, NoNode
from tidelog.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)


async def on_isr_change_notification(term: ControllerTerm, event: IsrChangeNotification) -> str | None:
    """Read the in-sync replicas that leaders wrote, and send them to all brokers (R21)."""
    paths = await _paths(term, znodes.IN_SYNC_CHANGES, event)
    if not paths:
        return None
    named: dict[TopicPartition, None] = {}
    for path, node in zip(paths, await term.store.get_many(paths), strict=True):
        named.update(dict.fromkeys(_partitions(b"" if node is None else node.data, path)))
    existing = [each for each in named if term.context.find(each) is not None]
    await reload(term, existing)
    # Includes partitions whose state another event has read already: that event did not process the new ISR.
    changed = [each for each in existing if not term.context.is_being_deleted(each)]
    term.enqueue_update_metadata(changed)
    await elect_offline_leaders(term, [each for each in changed if _has_restarted_member(term, each)], are_fresh=True)
    await advance_reassignments(term, changed)
    schedule_check_after_join(term, changed)
    await remove_nodes(term.store, paths)
    return f"in-sync replicas changed partitions={len(changed)}" if changed else None


def _has_restarted_member(term: ControllerTerm, topic_partition: TopicPartition) -> bool:
    """True if the leader recorded a broker incarnation that has ended: the current one may lack records (R41)."""
    in_sync = term.context.partition(topic_partition).in_sync_replicas
    return not term.context.health(topic_partition).restarted.isdisjoint(in_sync)


async def on_log_ends_response_received(term: ControllerTerm, event: LogEndsResponseReceived) -> str | None:
    """Elect leaders where the log ends of uncleanly restarted candidates are now known (R42)."""
    answered = record_log_ends(term, event)
    if not answered:
        return None
    changes = await elect_offline_leaders(term, answered, are_fresh=True)
    return f"broker reported log ends broker_id={event.broker_id} partitions={len(answered)} {changes}"


async def on_log_dir_event_notification(term: ControllerTerm, event: LogDirEventNotification) -> str | None:
    """A broker lost a log directory: send it LeaderAndIsr for all replicas. The response names the offline ones."""
    paths = await _paths(term, znodes.LOG_DIRECTORY_EVENTS, event)
    if not paths:
        return None
    brokers: set[BrokerId] = set()
    for path, node in zip(paths, await term.store.get_many(paths), strict=True):
        try:
            if node is not None:
                brokers.add(znodes.decode_log_directory_event(node.data, path))
        except znodes.MalformedNode as error:
            logger.warning("ignored malformed notification reason=%s", error)
    resend_leader_and_isr(term, brokers)
    await remove_nodes(term.store, paths)
    return f"log directories failed brokers={','.join(map(str, sorted(brokers)))}"


def resend_leader_and_isr(term: ControllerTerm, brokers: set[BrokerId]) -> None:
    context = term.context
    move_replicas(
        term,
        [
            replica
            for replica in context.replicas_on(brokers & context.brokers.keys())
            if context.is_online(replica) and not context.is_being_deleted(replica.topic_partition)
        ],
        ReplicaState.ONLINE,
        "its broker reported a failed log directory",
    )


async def remove_nodes(store: FencedStore, paths: Sequence[str]) -> None:
    """Delete nodes, some of which may be gone already."""
    for part in in_transactions(paths):
        try:
            await store.write([Delete(path) for path in part])
        except NoNode:
            await _remove_one_by_one(store, part)


async def _remove_one_by_one(store: FencedStore, paths: Iterable[str]) -> None:
    for path in paths:
        try:
            await store.write([Delete(path)])
        except NoNode:
            continue


async def _paths(
    term: ControllerTerm, parent: str, event: IsrChangeNotification | LogDirEventNotification
) -> list[str]:
    return [f"{parent}/{name}" for name in await term.store.children(parent, term.watch(event))]


def _partitions(data: bytes, path: str) -> list[TopicPartition]:
    try:
        return znodes.decode_partition_list(data, path) if data else []
    except znodes.MalformedNode as error:
        logger.warning("ignored malformed notification reason=%s", error)
        return []

"""Nodes by which others tell the controller something: read them, act, remove them."""

import logging
from collections.abc import Iterable, Sequence

from tidelog.cluster import znodes
from tidelog.controller.events import InSyncChange, LogDirectoryEvent, LogEndsAnswered
from tidelog.controller.fenced_store import FencedStore, in_transactions
from tidelog.controller.leader_rebalance import schedule_check_after_join
from tidelog.controller.log_end_queries import take_answers
from tidelog.controller.partition_state_machine import reload, repair
from tidelog.controller.replica_state_machine import move_replicas
from tidelog.controller.states import ReplicaState
from tidelog.controller.term import ControllerTerm
from tidelog.store.interface import Delete, NoNode
from tidelog.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)


async def on_in_sync_change(term: ControllerTerm, event: InSyncChange) -> str | None:
    """Leaders have written new in-sync replicas: learn them, and tell all brokers (R21)."""
    paths = await _paths(term, znodes.IN_SYNC_CHANGES, event)
    if not paths:
        return None
    named: dict[TopicPartition, None] = {}
    for path, node in zip(paths, await term.store.get_many(paths), strict=True):
        named.update(dict.fromkeys(_partitions(b"" if node is None else node.data, path)))
    known = [each for each in named if term.context.find(each) is not None]
    await reload(term, known)
    # All of them, also those whose state another event has read meanwhile without a look at its in-sync replicas.
    changed = [each for each in known if not term.context.is_being_deleted(each)]
    term.enqueue_update_metadata(changed)
    await repair(term, [each for each in changed if _has_restarted_member(term, each)], are_fresh=True)
    schedule_check_after_join(term, changed)
    await remove_nodes(term.store, paths)
    return f"in-sync replicas changed partitions={len(changed)}" if changed else None


def _has_restarted_member(term: ControllerTerm, topic_partition: TopicPartition) -> bool:
    """Its leader wrote down an incarnation that is gone: whoever is there now may lack what that one had (R41)."""
    in_sync = term.context.partition(topic_partition).in_sync_replicas
    return not term.context.health(topic_partition).restarted.isdisjoint(in_sync)


async def on_log_ends_answered(term: ControllerTerm, event: LogEndsAnswered) -> str | None:
    """Enough may be known now to elect leaders where all candidates restarted uncleanly (R42)."""
    answered = take_answers(term, event)
    if not answered:
        return None
    changes = await repair(term, answered, are_fresh=True)
    return f"broker told where its logs end broker_id={event.broker_id} partitions={len(answered)} {changes}"


async def on_log_directory_event(term: ControllerTerm, event: LogDirectoryEvent) -> str | None:
    """A broker lost a log directory: tell it all its replicas anew, and it will answer which of them are gone."""
    paths = await _paths(term, znodes.LOG_DIRECTORY_EVENTS, event)
    if not paths:
        return None
    brokers: set[BrokerId] = set()
    for path, node in zip(paths, await term.store.get_many(paths), strict=True):
        try:
            if node is not None:
                brokers.add(znodes.decode_log_directory_event(node.data, path))
        except znodes.MalformedNode as error:
            logger.warning("passed over a notification reason=%s", error)
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
    """Whether or not they are still there."""
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


async def _paths(term: ControllerTerm, parent: str, event: InSyncChange | LogDirectoryEvent) -> list[str]:
    return [f"{parent}/{name}" for name in await term.store.children(parent, term.watch(event))]


def _partitions(data: bytes, path: str) -> list[TopicPartition]:
    try:
        return znodes.decode_partition_list(data, path) if data else []
    except znodes.MalformedNode as error:
        logger.warning("passed over a notification reason=%s", error)
        return []

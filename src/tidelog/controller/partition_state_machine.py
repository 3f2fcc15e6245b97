"""Changing the leadership of partitions: decide, write, decide anew what others have changed, tell the brokers."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from tidelog.cluster import znodes
from tidelog.cluster.image import Partition
from tidelog.config.resolution import topic_defaults, topic_settings
from tidelog.controller.context import with_incarnations
from tidelog.controller.context_loading import load_topic_configs
from tidelog.controller.elections import (
    NO_STATE_VERSION,
    Decision,
    missing_members,
    repaired,
    to_be_asked,
)
from tidelog.controller.log_end_queries import ask_for_log_ends
from tidelog.controller.state_writes import state_path, write_states
from tidelog.controller.states import PartitionState
from tidelog.controller.term import ControllerTerm
from tidelog.types import NO_BROKER, BrokerId, TopicPartition, ids_text

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 10
NAMED_IN_LOG = 10
NOBODY_IS_ALIVE = "none of the brokers that hold all records is alive"
RESTARTED_UNCLEANLY = "the replicas that are alive restarted uncleanly and may lack records that these brokers hold"
ALL_LOST = "the replicas that are alive came back without their log directories"

Decide: TypeAlias = Callable[[TopicPartition, Partition], Decision | None]


@dataclass(slots=True)
class Changes:
    """What became of a decision about many partitions, as the log tells it."""

    changed: dict[TopicPartition, None] = field(default_factory=dict)
    elected: int = 0
    created: int = 0
    in_sync_changed: int = 0
    unclean: int = 0
    left_without_leader: int = 0

    def __str__(self) -> str:
        """Elections always, the others where there is something to tell."""
        told = {
            "created": self.created,
            "in_sync_changed": self.in_sync_changed,
            "unclean": self.unclean,
            "without_leader": self.left_without_leader,
        }
        return f"elected={self.elected}" + "".join(f" {name}={count}" for name, count in told.items() if count)


async def repair(term: ControllerTerm, partitions: Iterable[TopicPartition], *, are_fresh: bool = False) -> Changes:
    """Elect leaders where they are missing, and take out of the in-sync replicas who is gone or came back."""
    context = term.context

    def decide(topic_partition: TopicPartition, partition: Partition, unclean_allowed: bool = False) -> Decision | None:
        return repaired(partition, context.health(topic_partition), unclean_allowed=unclean_allowed)

    wanted = [each for each in dict.fromkeys(partitions) if not context.is_being_deleted(each)]
    changes = Changes()
    await change(term, wanted, decide, changes, are_fresh=are_fresh)
    last_resort = await _with_unclean_elections(term, _without_leader(term, wanted))
    if last_resort:
        await change(term, last_resort, partial(decide, unclean_allowed=True), changes, are_fresh=True)
    _settle_states(term, wanted)
    waiting = _without_leader(term, wanted)
    _log_asked(ask_for_log_ends(term, waiting))
    _log_without_leader(term, waiting, changes)
    return changes


async def change(
    term: ControllerTerm,
    partitions: Sequence[TopicPartition],
    decide: Decide,
    changes: Changes,
    *,
    are_fresh: bool = False,
) -> None:
    """Write what is decided of each partition, with the controller epoch (R31), and tell everybody (R36).

    Where nothing is to be done the store is asked whether that is still true, unless the states are `are_fresh`: a
    leader may have changed its in-sync replicas and not announced it yet (R21).
    """
    term.context.default_min_in_sync = term.settings().min_insync_replicas
    pending = list(partitions)
    unsure = [] if are_fresh else pending
    for _ in range(MAX_ATTEMPTS):
        decisions = _decisions(term, pending, decide)
        unsure = [each for each in unsure if each not in decisions]
        outcome = await write_states(term.store, {each: found.partition for each, found in decisions.items()})
        for topic_partition, partition in outcome.written.items():
            _take_over(term, topic_partition, partition, decisions[topic_partition], changes)
        pending = await reload(term, [*outcome.lost, *unsure])
        unsure = []
        if not pending:
            break
    else:
        logger.error("partitions kept changing, left as they are partitions=%s", _named(pending))
    _settle_states(term, changes.changed)
    term.enqueue_update_metadata(changes.changed)


async def reload(term: ControllerTerm, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Take the states that are in the store now; the partitions whose state was another, or of which there is none."""
    nodes = await term.store.get_many([state_path(each) for each in partitions])
    changed = []
    for topic_partition, node in zip(partitions, nodes, strict=True):
        known = term.context.find(topic_partition)
        if known is None or node is None or node.version == known.version:
            continue
        try:
            found = znodes.decode_state(topic_partition.topic, known, node.data, node.version)
        except znodes.MalformedNode:
            logger.exception("partition passed over: its state in the store is malformed partition=%s", topic_partition)
            continue
        term.context.put(topic_partition, with_incarnations(found, node.modified_id, term.context.brokers))
        changed.append(topic_partition)
    return changed


def move_partitions(
    term: ControllerTerm, partitions: Iterable[TopicPartition], target: PartitionState, reason: str
) -> None:
    _, refused = term.context.partition_states.move(partitions, target, reason)
    for illegal in refused:
        logger.error("refused to change the state of a partition: %s", illegal)


def _decisions(
    term: ControllerTerm, partitions: Iterable[TopicPartition], decide: Decide
) -> dict[TopicPartition, Decision]:
    decisions = {}
    for topic_partition in partitions:
        partition = term.context.find(topic_partition)
        decision = None if partition is None else decide(topic_partition, partition)
        if decision is not None:
            stamped = decision.partition.stamped(controller_epoch=term.fence.epoch)
            decisions[topic_partition] = decision._replace(partition=stamped)
    return decisions


def _take_over(
    term: ControllerTerm, topic_partition: TopicPartition, partition: Partition, decision: Decision, changes: Changes
) -> None:
    context = term.context
    before = context.partition(topic_partition)
    context.put(topic_partition, partition)
    is_new = before.version == NO_STATE_VERSION
    term.enqueue_leader_and_isr(
        topic_partition,
        (each for each in partition.replicas if each in context.brokers and _is_concerned(term, partition, each)),
        is_new=is_new,
    )
    changes.changed[topic_partition] = None
    if partition.leader != NO_BROKER:
        context.forget_answers(topic_partition)
    if is_new:
        changes.created += 1
    elif partition.leader == before.leader:
        changes.in_sync_changed += 1
    elif partition.leader != NO_BROKER:
        changes.elected += 1
        term.statistics.leader_elections += 1
    if decision.is_unclean:
        changes.unclean += 1
        term.statistics.unclean_elections += 1
        _log_unclean(topic_partition, before, partition)
    if not is_new:
        is_told = len(changes.changed) <= NAMED_IN_LOG
        _log_change(topic_partition, before, partition, logging.INFO if is_told else logging.DEBUG)


def _is_concerned(term: ControllerTerm, partition: Partition, broker_id: BrokerId) -> bool:
    """A broker that leaves is told to stop instead: as a follower in the new epoch it would get back in sync."""
    return broker_id not in term.context.leaving or broker_id == partition.leader


def _settle_states(term: ControllerTerm, partitions: Iterable[TopicPartition]) -> None:
    """Online is what has a leader."""
    by_state: dict[PartitionState, list[TopicPartition]] = defaultdict(list)
    for topic_partition in partitions:
        partition = term.context.find(topic_partition)
        if partition is not None and partition.version != NO_STATE_VERSION:
            by_state[_state_of(partition)].append(topic_partition)
    for state, found in by_state.items():
        move_partitions(term, found, state, "leader known" if state is PartitionState.ONLINE else "no leader")


def _state_of(partition: Partition) -> PartitionState:
    return PartitionState.OFFLINE if partition.leader == NO_BROKER else PartitionState.ONLINE


def _without_leader(term: ControllerTerm, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    found = []
    for topic_partition in partitions:
        partition = term.context.find(topic_partition)
        if partition is not None and partition.leader == NO_BROKER:
            found.append(topic_partition)
    return found


async def _with_unclean_elections(term: ControllerTerm, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Of those that somebody could lead, the ones whose topic prefers loss; asked of the store, for settings change."""
    context = term.context
    led_before = [each for each in partitions if context.partition(each).version != NO_STATE_VERSION]
    candidates = [each for each in led_before if context.health(each).online - context.leaving]
    if not candidates:
        return []
    defaults = topic_defaults(term.settings())
    stored = await load_topic_configs(term.store, sorted({each.topic for each in candidates}))
    allowed = {
        topic for topic, configs in stored.items() if topic_settings(defaults, configs).unclean_leader_election_enable
    }
    return [each for each in candidates if each.topic in allowed]


def _log_change(topic_partition: TopicPartition, before: Partition, after: Partition, level: int) -> None:
    """The first few of an event, whose own line tells how many there were."""
    if after.leader == NO_BROKER:
        return  # told together, with what to do about it
    verb = "changed in-sync replicas" if after.leader == before.leader else "elected leader"
    logger.log(
        level,
        "%s partition=%s leader=%d leader_epoch=%d in_sync=%s leader_before=%d in_sync_before=%s",
        verb,
        topic_partition,
        after.leader,
        after.leader_epoch,
        ids_text(after.in_sync_replicas),
        before.leader,
        ids_text(before.in_sync_replicas),
    )


def _log_unclean(topic_partition: TopicPartition, before: Partition, after: Partition) -> None:
    logger.warning(
        "unclean election: the new leader was not in sync, acknowledged records that only the others have are lost:"
        " partition=%s leader=%d leader_epoch=%d lost_in_sync_replicas=%s",
        topic_partition,
        after.leader,
        after.leader_epoch,
        ids_text(before.in_sync_replicas),
    )


def _log_asked(asked: Mapping[BrokerId, Sequence[TopicPartition]]) -> None:
    for broker_id, partitions in asked.items():
        logger.info(
            "partitions without leader: asking a broker that restarted uncleanly where its logs end broker_id=%d"
            " partitions=%d (%s)",
            broker_id,
            len(partitions),
            _named(partitions),
        )


def _log_without_leader(term: ControllerTerm, partitions: Iterable[TopicPartition], changes: Changes) -> None:
    """One line for all that wait for the same brokers; those that waited for them before were logged then."""
    context = term.context
    waiting: dict[tuple[str, tuple[BrokerId, ...]], list[TopicPartition]] = defaultdict(list)
    for topic_partition in partitions:
        partition = context.partition(topic_partition)
        if topic_partition in changes.changed or partition.version == NO_STATE_VERSION:
            changes.left_without_leader += 1
        elif topic_partition not in context.answers:
            continue
        health = context.health(topic_partition)
        if not to_be_asked(partition, health):
            missing = tuple(missing_members(partition, health)) or partition.replicas
            reason = RESTARTED_UNCLEANLY if health.answers else ALL_LOST if health.lost else NOBODY_IS_ALIVE
            waiting[reason, missing].append(topic_partition)
    for (reason, brokers), found in waiting.items():
        logger.warning(
            "partitions without leader: %s; start them, or allow unclean.leader.election.enable and lose what only"
            " they have brokers=%s partitions=%d (%s)",
            reason,
            ids_text(brokers),
            len(found),
            _named(found),
        )


def _named(partitions: Sequence[TopicPartition]) -> str:
    named = ",".join(map(str, partitions[:NAMED_IN_LOG]))
    return f"{named},..." if len(partitions) > NAMED_IN_LOG else named

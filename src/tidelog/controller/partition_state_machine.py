"""Partition state machine: elects leaders, writes the states by compare-and-set, and enqueues requests to brokers."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from tidelog.cluster import znodes
from tidelog.cluster.image import PartitionRegistration
from tidelog.config.resolution import topic_defaults, topic_settings
from tidelog.controller.context import ControllerContext, with_incarnations
from tidelog.controller.context_loading import load_topic_configs
from tidelog.controller.elections import (
    NO_STATE_VERSION,
    Decision,
    Health,
    LogEnd,
    missing_members,
    replicas_to_query,
    updated_leader_and_isr,
)
from tidelog.controller.log_end_queries import query_log_ends
from tidelog.controller.state_writes import state_path, write_states
from tidelog.controller.states import PartitionState
from tidelog.controller.term import ControllerTerm
from tidelog.types import NO_BROKER, BrokerId, TopicPartition, ids_text

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 10
NAMED_IN_LOG = 10
NO_REPLICA_IS_ALIVE = "none of the brokers that hold all records is alive; start them"
DISK_IS_OFFLINE = "the disks that hold all records are offline; repair them and restart their brokers"
RESTARTED_UNCLEANLY = (
    "the replicas that are alive restarted uncleanly and may lack records that these brokers hold; start them"
)
ALL_LOST = "the replicas that are alive came back without their log directories; start them"

Decide: TypeAlias = Callable[[TopicPartition, PartitionRegistration], Decision | None]
Rule: TypeAlias = Callable[[PartitionRegistration, Health], Decision | None]


def decide_by(context: ControllerContext, rule: Rule) -> Decide:
    """Apply a rule of `elections` or `reassignment` with the health of each partition at that time."""

    def decide(topic_partition: TopicPartition, partition: PartitionRegistration) -> Decision | None:
        return rule(partition, context.health(topic_partition))

    return decide


@dataclass(slots=True)
class Changes:
    """Outcomes of an election of many partitions, as logged."""

    changed: dict[TopicPartition, None] = field(default_factory=dict)
    elected: int = 0
    created: int = 0
    in_sync_changed: int = 0
    unclean: int = 0
    left_without_leader: int = 0

    def __str__(self) -> str:
        """Elections always, the other counts only if they are not 0."""
        counts = {
            "created": self.created,
            "in_sync_changed": self.in_sync_changed,
            "unclean": self.unclean,
            "without_leader": self.left_without_leader,
        }
        return f"elected={self.elected}" + "".join(f" {name}={count}" for name, count in counts.items() if count)


async def elect_offline_leaders(
    term: ControllerTerm, partitions: Iterable[TopicPartition], *, are_fresh: bool = False
) -> Changes:
    """Elect leaders of offline partitions and remove failed or restarted replicas from the ISR.

    Kafka's `triggerOnlinePartitionStateChange`, for these partitions.
    """
    context = term.context
    wanted = [each for each in dict.fromkeys(partitions) if not context.is_being_deleted(each)]
    changes = Changes()
    await elect_leaders_for_partitions(
        term, wanted, decide_by(context, updated_leader_and_isr), changes, are_fresh=are_fresh
    )
    last_resort = await _with_unclean_elections(term, _without_leader(term, wanted))
    if last_resort:
        unclean = decide_by(context, partial(updated_leader_and_isr, unclean_allowed=True))
        await elect_leaders_for_partitions(term, last_resort, unclean, changes, are_fresh=True)
    _update_partition_states(term, wanted)
    waiting = _without_leader(term, wanted)
    _log_queries(query_log_ends(term, waiting))
    _log_without_leader(term, waiting, changes)
    return changes


async def elect_leaders_for_partitions(
    term: ControllerTerm,
    partitions: Sequence[TopicPartition],
    decide: Decide,
    changes: Changes,
    *,
    are_fresh: bool = False,
) -> None:
    """Decide, write with the controller epoch (R31) and enqueue requests (R36): Kafka's `doElectLeaderForPartitions`.

    Where nothing has to change, the state is read again and decided again, unless `are_fresh`: a leader may have
    changed the ISR without its notification having arrived (R21).
    """
    term.context.default_min_in_sync = term.settings().min_insync_replicas
    pending = list(partitions)
    unsure = [] if are_fresh else pending
    for _ in range(MAX_ATTEMPTS):
        decisions = _decisions(term, pending, decide)
        unsure = [each for each in unsure if each not in decisions]
        outcome = await write_states(term.store, {each: found.partition for each, found in decisions.items()})
        for topic_partition, partition in outcome.written.items():
            record_written(term, topic_partition, partition, decisions[topic_partition], changes)
        pending = await reload(term, [*outcome.lost, *unsure])
        unsure = []
        if not pending:
            break
    else:
        logger.error("gave up on partitions that kept changing partitions=%s", _named(pending))
    _update_partition_states(term, changes.changed)
    term.enqueue_update_metadata(changes.changed)


async def reload(term: ControllerTerm, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Read the states from the store. Returns the partitions whose state differs from the context or is missing."""
    nodes = await term.store.get_many([state_path(each) for each in partitions])
    changed = []
    for topic_partition, node in zip(partitions, nodes, strict=True):
        cached = term.context.find(topic_partition)
        if cached is None or node is None or node.version == cached.version:
            continue
        try:
            found = znodes.decode_state(topic_partition.topic, cached, node.data, node.version)
        except znodes.MalformedNode:
            logger.exception("ignored malformed partition state in the store partition=%s", topic_partition)
            continue
        term.context.put(topic_partition, with_incarnations(found, node.modified_id, term.context.brokers))
        changed.append(topic_partition)
    return changed


def move_partitions(
    term: ControllerTerm, partitions: Iterable[TopicPartition], target: PartitionState, reason: str
) -> None:
    _, rejected = term.context.partition_states.move(partitions, target, reason)
    for illegal in rejected:
        logger.error("refused illegal partition state transition: %s", illegal)


def _decisions(
    term: ControllerTerm, partitions: Iterable[TopicPartition], decide: Decide
) -> dict[TopicPartition, Decision]:
    decisions, epoch = {}, term.fence.epoch
    for topic_partition in partitions:
        partition = term.context.find(topic_partition)
        decision = None if partition is None else decide(topic_partition, partition)
        if decision is not None:
            if decision.partition.controller_epoch != epoch:
                decision = decision._replace(partition=decision.partition.stamped(controller_epoch=epoch))
            decisions[topic_partition] = decision
    return decisions


def record_written(
    term: ControllerTerm,
    topic_partition: TopicPartition,
    partition: PartitionRegistration,
    decision: Decision,
    changes: Changes,
) -> None:
    """Put the written state into the context, and enqueue the requests that are sent at the end of the event."""
    context = term.context
    before = context.partition(topic_partition)
    context.put(topic_partition, partition)
    is_new = before.version == NO_STATE_VERSION
    term.enqueue_leader_and_isr(
        topic_partition,
        (
            each
            for each in partition.replicas
            if each in context.brokers and _receives_leader_and_isr(term, partition, each)
        ),
        is_new=is_new,
    )
    changes.changed[topic_partition] = None
    if decision.is_unclean:
        changes.unclean += 1
        term.statistics.unclean_elections += 1
        _log_unclean(topic_partition, before, partition, context.health(topic_partition).responses)
    if partition.leader != NO_BROKER:
        context.forget_answers(topic_partition)
    if is_new:
        changes.created += 1
    elif partition.leader == before.leader:
        changes.in_sync_changed += 1
    elif partition.leader != NO_BROKER:
        changes.elected += 1
        term.statistics.leader_elections += 1
    if not is_new:
        is_logged = len(changes.changed) <= NAMED_IN_LOG
        _log_change(topic_partition, before, partition, logging.INFO if is_logged else logging.DEBUG)


def _receives_leader_and_isr(term: ControllerTerm, partition: PartitionRegistration, broker_id: BrokerId) -> bool:
    """A broker in controlled shutdown that has left the ISR gets StopReplica instead: as a follower it would rejoin.

    While it is in the ISR, because no other replica could lead, it has to follow the next leader like any other.
    """
    is_shutting_down = broker_id in term.context.shutting_down
    return not is_shutting_down or broker_id in (partition.leader, *partition.in_sync_replicas)


def _update_partition_states(term: ControllerTerm, partitions: Iterable[TopicPartition]) -> None:
    """A partition with a leader is online, any other is offline."""
    by_state: dict[PartitionState, list[TopicPartition]] = defaultdict(list)
    for topic_partition in partitions:
        partition = term.context.find(topic_partition)
        if partition is not None and partition.version != NO_STATE_VERSION:
            by_state[_state_of(partition)].append(topic_partition)
    for state, found in by_state.items():
        move_partitions(term, found, state, "leader cached" if state is PartitionState.ONLINE else "no leader")


def _state_of(partition: PartitionRegistration) -> PartitionState:
    return PartitionState.OFFLINE if partition.leader == NO_BROKER else PartitionState.ONLINE


def _without_leader(term: ControllerTerm, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    found = []
    for topic_partition in partitions:
        partition = term.context.find(topic_partition)
        if partition is not None and partition.leader == NO_BROKER:
            found.append(topic_partition)
    return found


async def _with_unclean_elections(term: ControllerTerm, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Partitions whose topic allows unclean election. Settings are read from the store: they may have changed."""
    context = term.context
    led_before = [each for each in partitions if context.partition(each).version != NO_STATE_VERSION]
    candidates = [each for each in led_before if context.health(each).online - context.shutting_down]
    if not candidates:
        return []
    defaults = topic_defaults(term.settings())
    stored = await load_topic_configs(term.store, sorted({each.topic for each in candidates}))
    allowed = {
        topic for topic, configs in stored.items() if topic_settings(defaults, configs).unclean_leader_election_enable
    }
    return [each for each in candidates if each.topic in allowed]


def _log_change(
    topic_partition: TopicPartition, before: PartitionRegistration, after: PartitionRegistration, level: int
) -> None:
    """Logs the first few changes of an event; the line of the event itself has the totals."""
    if after.leader == NO_BROKER or not logger.isEnabledFor(level):
        return  # partitions without a leader are logged together by _log_without_leader
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


def _log_unclean(
    topic_partition: TopicPartition,
    before: PartitionRegistration,
    after: PartitionRegistration,
    log_ends: Mapping[BrokerId, LogEnd],
) -> None:
    """What is lost, the other replicas log when they truncate: only they know its offsets."""
    ends = ",".join(f"{broker_id}:{end.end_offset}(epoch {end.last_epoch})" for broker_id, end in log_ends.items())
    logger.warning(
        "unclean election: the new leader was not in sync, acknowledged records that only other replicas hold are lost"
        " partition=%s leader=%d leader_epoch=%d leader_epoch_before=%d lost_in_sync_replicas=%s"
        " lost_eligible_replicas=%s known_log_ends=%s",
        topic_partition,
        after.leader,
        after.leader_epoch,
        before.leader_epoch,
        ids_text(before.in_sync_replicas),
        ids_text(before.eligible_leader_replicas),
        ends or "none",
    )


def _log_queries(queries: Mapping[BrokerId, Sequence[TopicPartition]]) -> None:
    for broker_id, partitions in queries.items():
        logger.info(
            "querying log ends of broker that restarted uncleanly, for partitions without leader broker_id=%d"
            " partitions=%d (%s)",
            broker_id,
            len(partitions),
            _named(partitions),
        )


def _log_without_leader(term: ControllerTerm, partitions: Iterable[TopicPartition], changes: Changes) -> None:
    """One line for all partitions that wait for the same brokers, unless it was logged before."""
    context = term.context
    waiting: dict[tuple[str, tuple[BrokerId, ...]], list[TopicPartition]] = defaultdict(list)
    for topic_partition in partitions:
        partition = context.partition(topic_partition)
        if topic_partition in changes.changed or partition.version == NO_STATE_VERSION:
            changes.left_without_leader += 1
        elif topic_partition not in context.responses:
            continue
        health = context.health(topic_partition)
        if not replicas_to_query(partition, health):
            missing = tuple(missing_members(partition, health)) or partition.replicas
            waiting[_reason(health, missing), missing].append(topic_partition)
    for (reason, brokers), found in waiting.items():
        logger.warning(
            "partitions without leader: %s, or set unclean.leader.election.enable and lose what only they hold"
            " brokers=%s partitions=%d (%s)",
            reason,
            ids_text(brokers),
            len(found),
            _named(found),
        )


def _reason(health: Health, missing: Sequence[BrokerId]) -> str:
    """Why no leader is elected, and what the operator can do."""
    if health.responses:
        return RESTARTED_UNCLEANLY
    if health.lost:
        return ALL_LOST
    return DISK_IS_OFFLINE if health.epochs.keys() >= set(missing) else NO_REPLICA_IS_ALIVE


def _named(partitions: Sequence[TopicPartition]) -> str:
    named = ",".join(map(str, partitions[:NAMED_IN_LOG]))
    return f"{named},..." if len(partitions) > NAMED_IN_LOG else named

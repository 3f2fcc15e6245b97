"""Reassignment of partitions: requests by AlterPartitionReassignments or znode, progress, completion (R37)."""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeAlias

from tidelog.cluster import znodes
from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.assignment_writes import change_assignments
from tidelog.controller.elections import Decision
from tidelog.controller.events import AlterPartitionReassignments, PartitionReassignment
from tidelog.controller.partition_state_machine import decide_by, elect_offline_leaders
from tidelog.controller.reassignment import cancelled, completed, reassigned, validate_target
from tidelog.controller.removed_replicas import delete_removed_replicas, move_reassigned_replicas
from tidelog.controller.term import ControllerTerm
from tidelog.errors import KafkaError, RequestTimedOut, UnknownTopicOrPartition
from tidelog.store.interface import BadVersion, Delete, NoNode, Set
from tidelog.types import NO_BROKER, BrokerId, TopicPartition, ids_text

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 5

Targets: TypeAlias = Mapping[TopicPartition, tuple[BrokerId, ...] | None]
"""None cancels the reassignment of the partition."""
Outcomes: TypeAlias = dict[TopicPartition, KafkaError | None]


async def on_alter_partition_reassignments(term: ControllerTerm, event: AlterPartitionReassignments) -> str | None:
    targets = dict(event.targets)
    outcomes = await _alter(
        term,
        targets,
        live=term.context.brokers.keys(),
        allow_replication_factor_change=event.allow_replication_factor_change,
    )
    accepted = {each for each, error in outcomes.items() if error is None}
    # As in Kafka the latest request counts, be it by the API or by the znode.
    await _remove_requests(term, lambda each, _: each in accepted)
    if not event.answer.done():
        event.answer.set_result(outcomes)
    await advance_reassignments(term, accepted)
    return f"reassignments requested partitions={len(outcomes)} accepted={len(accepted)}"


async def on_partition_reassignment(term: ControllerTerm, event: PartitionReassignment) -> str | None:
    """A request in /admin/reassign_partitions, as tools before KIP-455 wrote it; it stays until it is carried out."""
    node = await term.store.exists(znodes.REASSIGN_PARTITIONS, term.watch(event))
    if node is None:
        return None
    try:
        targets = znodes.decode_reassignment(node.data)
    except znodes.MalformedNode as error:
        logger.warning("removed malformed request for reassignments reason=%s", error)
        with suppress(NoNode, BadVersion):
            await term.store.write([Delete(znodes.REASSIGN_PARTITIONS, node.version)])
        return None
    everybody = {each for target in targets.values() for each in target}
    outcomes = await _alter(term, targets, live=everybody)  # brokers that are away may come, as in Kafka
    rejected = {each: error for each, error in outcomes.items() if error is not None}
    for topic_partition, reason in rejected.items():
        logger.warning("refused to reassign partition=%s reason=%s", topic_partition, reason)
    await advance_reassignments(term, outcomes.keys() - rejected.keys())
    await _remove_requests(term, lambda each, target: each in rejected or _is_carried_out(term, each, target))
    return f"reassignments requested by znode partitions={len(outcomes)} refused={len(rejected)}"


async def resume_reassignments(term: ControllerTerm) -> None:
    """A new controller goes on where the one before stopped."""
    await advance_reassignments(term, term.context.reassigning())
    delete_removed_replicas(term, term.context.brokers.keys())


async def advance_reassignments(term: ControllerTerm, partitions: Iterable[TopicPartition]) -> None:
    """Complete those that can be. The others wait until their replicas are in sync."""
    context = term.context
    decide = decide_by(context, completed)
    named = [each for each in partitions if context.find(each) is not None and not context.is_being_deleted(each)]
    ready = [each for each in named if decide(each, context.partition(each)) is not None]
    if not ready:
        return
    outcome = await change_assignments(term, ready, decide)
    move_reassigned_replicas(term, outcome.before)
    for topic_partition, before in outcome.before.items():
        _log("reassignment completed", topic_partition, before, context.partition(topic_partition))
    await _remove_requests(term, lambda each, target: _is_carried_out(term, each, target))


async def _alter(
    term: ControllerTerm,
    targets: Targets,
    *,
    live: Iterable[BrokerId],
    allow_replication_factor_change: bool = True,
) -> Outcomes:
    context, live = term.context, frozenset(live)
    outcomes: Outcomes = {each: UnknownTopicOrPartition("The partition does not exist.") for each in targets}

    def decide(topic_partition: TopicPartition, partition: PartitionRegistration) -> Decision | None:
        target, health = targets[topic_partition], context.health(topic_partition)
        outcomes[topic_partition] = None
        try:
            if target is None:
                return cancelled(partition, health)
            validate_target(partition, target, live, allow_replication_factor_change=allow_replication_factor_change)
            return reassigned(partition, target, health)
        except KafkaError as error:
            outcomes[topic_partition] = error.as_value()
            return None

    named = [each for each in targets if context.find(each) is not None and not context.is_being_deleted(each)]
    outcome = await change_assignments(term, named, decide)
    for each in outcome.gone:
        outcomes[each] = UnknownTopicOrPartition("The partition does not exist.")
    for each in outcome.failed:
        outcomes[each] = RequestTimedOut("The partition kept changing.")
    move_reassigned_replicas(term, outcome.before)
    for topic_partition, before in outcome.before.items():
        _log("reassignment changed", topic_partition, before, context.partition(topic_partition))
    # A partition without a leader may get one now. One that waits has a new leader epoch: brokers are queried again.
    await elect_offline_leaders(term, [each for each in outcome.before if context.partition(each).leader == NO_BROKER])
    return outcomes


async def _remove_requests(
    term: ControllerTerm, is_over: Callable[[TopicPartition, tuple[BrokerId, ...]], bool]
) -> None:
    """From the znode; the node itself goes with the last of them, so that tools may write the next one."""
    for _ in range(MAX_ATTEMPTS):
        (node,) = await term.store.get_many([znodes.REASSIGN_PARTITIONS])
        if node is None:
            return
        try:
            named = znodes.decode_reassignment(node.data)
        except znodes.MalformedNode:
            return  # its own event removes it
        left = {each: target for each, target in named.items() if not is_over(each, target)}
        if len(left) == len(named) and left:
            return
        try:
            if left:
                data = znodes.encode_reassignment(left)
                await term.store.write([Set(znodes.REASSIGN_PARTITIONS, data, node.version)])
            else:
                await term.store.write([Delete(znodes.REASSIGN_PARTITIONS, node.version)])
        except (BadVersion, NoNode):
            continue
        return


def _is_carried_out(term: ControllerTerm, topic_partition: TopicPartition, target: tuple[BrokerId, ...]) -> bool:
    partition = term.context.find(topic_partition)
    return partition is None or (not partition.is_being_reassigned and partition.replicas == target)


def _log(
    what: str, topic_partition: TopicPartition, before: PartitionRegistration, after: PartitionRegistration
) -> None:
    logger.info(
        "%s partition=%s replicas=%s replicas_before=%s adding=%s removing=%s leader=%d leader_epoch=%d in_sync=%s",
        what,
        topic_partition,
        ids_text(after.replicas),
        ids_text(before.replicas),
        ids_text(after.adding_replicas),
        ids_text(after.removing_replicas),
        after.leader,
        after.leader_epoch,
        ids_text(after.in_sync_replicas),
    )

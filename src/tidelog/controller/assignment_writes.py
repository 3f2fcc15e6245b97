"""Changes of the assigned replicas of partitions: topic node and partition states in one transaction (R37).

Kafka writes them one after the other, and its controllers and leaders must cope with a state whose in-sync replicas are
not assigned (KAFKA-9672). In one transaction a controller may stop at any step, and the next one finds a whole step.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.image import PartitionRegistration, Topic
from tidelog.controller.context import with_incarnations
from tidelog.controller.elections import Decision
from tidelog.controller.partition_state_machine import Changes, Decide, record_written
from tidelog.controller.state_writes import state_path
from tidelog.controller.term import ControllerTerm
from tidelog.store.interface import BadVersion, Node, NoNode, Operation, Set
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 10
WRITTEN_TOGETHER = 500
"""Partitions of one topic: ZooKeeper takes requests of 1 MB."""


@dataclass(slots=True)
class AssignmentOutcome:
    before: dict[TopicPartition, PartitionRegistration] = field(default_factory=dict)
    """The partitions that were changed, as they were."""
    gone: list[TopicPartition] = field(default_factory=list)
    """Their topic is not in the store any more."""
    failed: list[TopicPartition] = field(default_factory=list)
    """Somebody else kept changing them."""
    changes: Changes = field(default_factory=Changes)


async def change_assignments(
    term: ControllerTerm, partitions: Iterable[TopicPartition], decide: Decide
) -> AssignmentOutcome:
    """Decide on each partition as the store has it now, write the decision, and enqueue requests to the brokers."""
    term.context.default_min_in_sync = term.settings().min_insync_replicas
    outcome = AssignmentOutcome()
    by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for each in dict.fromkeys(partitions):
        by_topic[each.topic].append(each)
    for named in by_topic.values():
        for start in range(0, len(named), WRITTEN_TOGETHER):
            await _change(term, named[start : start + WRITTEN_TOGETHER], decide, outcome)
    term.enqueue_update_metadata(outcome.before)
    return outcome


class _Step(NamedTuple):
    before: PartitionRegistration
    after: PartitionRegistration
    """Its version is the one that the state must have now."""

    @property
    def has_new_epoch(self) -> bool:
        """False: only the assignment is written, and brokers need no request."""
        return self.after.leader_epoch != self.before.leader_epoch


async def _change(
    term: ControllerTerm, partitions: Sequence[TopicPartition], decide: Decide, outcome: AssignmentOutcome
) -> None:
    steps: dict[TopicPartition, _Step] = {}
    for _ in range(MAX_ATTEMPTS):
        found = await _load(term, partitions)
        if found is None:
            outcome.gone.extend(partitions)
            return
        if steps and all(_is_written(found.states[each], step.after) for each, step in steps.items()):
            _take_over(term, steps, found.states, outcome)  # by an earlier attempt, whose answer was lost
            return
        steps = _steps(term, found.states, decide)
        if not steps:
            return
        try:
            await term.store.write(_operations(found, steps))
        except (BadVersion, NoNode):
            continue
        _take_over(term, steps, {each: _written(step) for each, step in steps.items()}, outcome)
        return
    logger.error("assignment kept changing, left as it is topic=%s", partitions[0].topic)
    outcome.failed.extend(partitions)


class _Found(NamedTuple):
    topic: Topic
    """Only the assignment of its partitions counts."""
    states: dict[TopicPartition, PartitionRegistration]
    """The partitions that were asked for, with their states."""


async def _load(term: ControllerTerm, partitions: Sequence[TopicPartition]) -> _Found | None:
    """As the store has it now; the context has it, too, afterwards."""
    name = partitions[0].topic
    known = term.context.topics.get(name)
    node, *states = await term.store.get_many([znodes.topic_path(name), *map(state_path, partitions)])
    if known is None or node is None:
        return None
    try:
        topic = _decode(name, node, dict(zip(partitions, states, strict=True)))
    except znodes.MalformedNode:
        logger.exception("cannot reassign partitions: nodes in the store are malformed topic=%s", name)
        return None
    if topic.topic_id != known.topic_id:
        return None
    found: dict[TopicPartition, PartitionRegistration] = {}
    for each, state in zip(partitions, states, strict=True):
        if each.partition >= len(topic.partitions):
            return None
        partition = topic.partitions[each.partition]
        if state is not None:
            partition = with_incarnations(partition, state.modified_id, term.context.brokers)
        found[each] = partition
        term.context.put(each, partition)
    return _Found(topic, found)


def _decode(name: str, node: Node, states: Mapping[TopicPartition, Node | None]) -> Topic:
    count = znodes.partition_count(name, node.data)
    by_index = {each.partition: state for each, state in states.items()}
    known = [None if (state := by_index.get(index)) is None else (state.data, state.version) for index in range(count)]
    return znodes.decode_topic(name, node.data, node.version, known, {})


def _steps(
    term: ControllerTerm, partitions: Mapping[TopicPartition, PartitionRegistration], decide: Decide
) -> dict[TopicPartition, _Step]:
    steps = {}
    for topic_partition, partition in partitions.items():
        decision = decide(topic_partition, partition)
        if decision is not None:
            step = _Step(partition, decision.partition)
            epoch = term.fence.epoch if step.has_new_epoch else partition.controller_epoch
            steps[topic_partition] = step._replace(after=step.after.stamped(controller_epoch=epoch))
    return steps


def _operations(found: _Found, steps: Mapping[TopicPartition, _Step]) -> list[Operation]:
    topic, changed = found.topic, {each.partition: step.after for each, step in steps.items()}
    assignment = znodes.encode_topic(topic.topic_id, [changed.get(each.index, each) for each in topic.partitions])
    return [
        Set(znodes.topic_path(topic.name), assignment, topic.version),
        *(
            Set(state_path(each), znodes.encode_state(step.after), step.after.version)
            for each, step in steps.items()
            if step.has_new_epoch
        ),
    ]


def _written(step: _Step) -> PartitionRegistration:
    return step.after.stamped(version=step.after.version + 1) if step.has_new_epoch else step.after


def _is_written(stored: PartitionRegistration, wanted: PartitionRegistration) -> bool:
    """Only the active controller changes assignments and leader epochs, one event at a time."""
    return (
        stored.replicas == wanted.replicas
        and stored.adding_replicas == wanted.adding_replicas
        and stored.removing_replicas == wanted.removing_replicas
        and stored.removed_replicas == wanted.removed_replicas
        and stored.leader_epoch == wanted.leader_epoch
        and stored.controller_epoch == wanted.controller_epoch
    )


def _take_over(
    term: ControllerTerm,
    steps: Mapping[TopicPartition, _Step],
    written: Mapping[TopicPartition, PartitionRegistration],
    outcome: AssignmentOutcome,
) -> None:
    for topic_partition, step in steps.items():
        outcome.before[topic_partition] = step.before
        term.context.put(topic_partition, step.before)
        if step.has_new_epoch:
            record_written(term, topic_partition, written[topic_partition], Decision(step.after), outcome.changes)
        else:
            term.context.put(topic_partition, written[topic_partition])

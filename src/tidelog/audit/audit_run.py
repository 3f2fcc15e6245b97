"""Audit run: list replicas, read all segments in parallel, check them, and read doubtful partitions again."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from tidelog.audit.directories import (
    Survey,
    find_log_dirs,
    reject_unknown_topics,
    reread_checkpoints,
    survey,
    topic_filter,
)
from tidelog.audit.finding import Finding, Kind, finding_of
from tidelog.audit.replica_checks import check_replica
from tidelog.audit.replica_comparison import Difference, Side, by_topic_id, check_difference, cuts_of, differences
from tidelog.audit.replica_facts import MAX_OFFSET, LogDir, OffsetRange, PlacedBatch, Replica, SegmentFacts
from tidelog.audit.segments import BlockItem, SegmentItem, list_batches, read_segment
from tidelog.types import TopicPartition

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_READINGS = 3
"""Files of a running broker change while they are read: only a fault found in every reading is reported."""
PAUSE_S = 1.0


class Runner(Protocol):
    """Executor of the tasks that read segments."""

    def run(self, work: Callable[[Item], Result], items: Sequence[Item], sizes: Sequence[int]) -> list[Result]:
        """Results in the order of the items. `sizes`: bytes to read for each item, to balance the load."""
        ...


class LocalRunner:
    """Runner in this process: one task after the other."""

    def run(self, work: Callable[[Item], Result], items: Sequence[Item], sizes: Sequence[int]) -> list[Result]:
        return [work(item) for item in items]


@dataclass(frozen=True)
class AuditOptions:
    paths: Sequence[str]
    topics: Sequence[str] = ()
    compacted: Sequence[str] = ()
    counts_keys: bool = True


@dataclass(frozen=True)
class AuditResult:
    """Result of an audit: what was read and what was found."""

    log_dirs: Sequence[LogDir]
    replicas: Sequence[Replica]
    findings: Sequence[Finding] = field(default_factory=list)

    @property
    def faults(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.is_fault]

    @property
    def notes(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.is_fault]


def audit(options: AuditOptions, runner: Runner, pause: Callable[[float], None] = time.sleep) -> AuditResult:
    log_dirs = find_log_dirs(options.paths)
    surveyed = survey(log_dirs, topic_filter(options.topics))
    reject_unknown_topics(options.topics, surveyed, log_dirs)
    found = _read_and_check(surveyed, options, runner)
    for _ in range(MAX_READINGS - 1):
        doubtful = _doubtful(found)
        if not doubtful:
            break
        pause(PAUSE_S)
        again = _read_and_check(survey(log_dirs, doubtful.__contains__), replace(options, counts_keys=False), runner)
        found = _with_later_reading(found, again, doubtful)
    return found


def _doubtful(found: AuditResult) -> set[TopicPartition]:
    """Partitions with faults that may only be changes made by a running broker while they were read."""
    running = {replica.topic_partition for replica in found.replicas if replica.log_dir.is_running}
    faulty = {finding.topic_partition for finding in found.faults if finding.topic_partition is not None}
    return running & faulty


def _with_later_reading(found: AuditResult, again: AuditResult, doubtful: set[TopicPartition]) -> AuditResult:
    """The result so far, with the findings of doubtful partitions replaced by those of the later reading."""
    kept = [finding for finding in found.findings if finding.topic_partition not in doubtful]
    new = [finding for finding in again.findings if finding.topic_partition in doubtful]
    return AuditResult(found.log_dirs, found.replicas, kept + new)


def _read_and_check(found: Survey, options: AuditOptions, runner: Runner) -> AuditResult:
    read = _read(found.replicas, options, runner)
    replicas = reread_checkpoints(read, found)
    findings = list(found.findings)
    is_compacted = _compacted_filter(replicas, options)
    differing: list[tuple[Sequence[Replica], Difference]] = []
    for of_partition in by_partition(replicas).values():
        same_topic, others = by_topic_id(of_partition)
        findings += others
        for replica in of_partition:
            findings += check_replica(replica, is_compacted=is_compacted(replica.topic_partition))
        findings += _different_starts(same_topic)
        cleaned_end = _cleaned_end(same_topic, options)
        differing += [(same_topic, difference) for difference in differences(same_topic, cleaned_end)]
    findings += _explain_differences(differing, runner)
    return AuditResult(found.log_dirs, replicas, findings)


def by_partition(replicas: Iterable[Replica]) -> dict[TopicPartition, list[Replica]]:
    found: dict[TopicPartition, list[Replica]] = defaultdict(list)
    for replica in replicas:
        found[replica.topic_partition].append(replica)
    for of_partition in found.values():
        of_partition.sort(key=lambda replica: (replica.log_dir.broker is None, replica.log_dir.broker, replica.path))
    return dict(sorted(found.items()))


def representative(replicas: Sequence[Replica]) -> Replica:
    """The replica with the most bytes, for statistics that need only one replica of a partition."""
    return max(replicas, key=lambda replica: sum(file.size_bytes for file in replica.files))


def _read(replicas: Sequence[Replica], options: AuditOptions, runner: Runner) -> list[Replica]:
    items: list[SegmentItem] = []
    owners: list[str] = []
    for of_partition in by_partition(replicas).values():
        cuts = cuts_of(of_partition)
        counted = representative(of_partition) if options.counts_keys else None
        for replica in of_partition:
            for file in replica.files:
                counts_keys = replica is counted
                path = replica.file_path(file.base_offset)
                items.append(
                    SegmentItem(replica.topic_partition, path, file.base_offset, file.size_bytes, cuts, counts_keys)
                )
                owners.append(replica.path)
    facts: dict[str, list[SegmentFacts]] = defaultdict(list)
    sizes = [item.size_bytes for item in items]
    for owner, segment in zip(owners, runner.run(read_segment, items, sizes), strict=True):
        facts[owner].append(segment)
    return [replace(replica, segments=tuple(facts[replica.path])) for replica in replicas]


def _compacted_filter(replicas: Sequence[Replica], options: AuditOptions) -> Callable[[TopicPartition], bool]:
    """Filter of compacted topics: those with a partition that a broker compacted, and those that the options name."""
    cleaned = {replica.topic_partition.topic for replica in replicas if replica.cleaned_end > 0}
    named = topic_filter(options.compacted) if options.compacted else lambda _: False
    return lambda topic_partition: topic_partition.topic in cleaned or named(topic_partition)


def _cleaned_end(replicas: Sequence[Replica], options: AuditOptions) -> int:
    """Offset from which replicas must be identical. MAX_OFFSET if it is unknown, so that nothing is compared."""
    end = max((replica.cleaned_end for replica in replicas), default=0)
    topic_partition = replicas[0].topic_partition
    if not end and options.compacted and topic_filter(options.compacted)(topic_partition):
        return MAX_OFFSET
    return end


def _different_starts(replicas: Sequence[Replica]) -> list[Finding]:
    starts = {replica.log_start for replica in replicas if replica.files}
    if len(starts) < 2:
        return []
    listed = ", ".join(f"{replica.log_start} on {replica.log_dir}" for replica in replicas)
    sentence = f"the replicas begin at different offsets ({listed}): brokers apply retention independently"
    return [finding_of(replicas[0], Kind.NOTE, sentence)]


def _explain_differences(differing: Sequence[tuple[Sequence[Replica], Difference]], runner: Runner) -> list[Finding]:
    """Read the first and the last block of each range where digests differ, on all replicas, batch by batch."""
    items: list[BlockItem] = []
    owners: list[tuple[int, int]] = []
    for number, (replicas, difference) in enumerate(differing):
        for place, replica in enumerate(replicas):
            for block in dict.fromkeys((difference.first, difference.last)):
                for item in _block_items(replica, block):
                    items.append(item)
                    owners.append((number, place))
    batches: dict[tuple[int, int], dict[int, PlacedBatch]] = defaultdict(dict)
    sizes = [item.segment.size_bytes - item.position for item in items]
    for owner, listed in zip(owners, runner.run(list_batches, items, sizes), strict=True):
        batches[owner].update({batch.identity.base_offset: batch for batch in listed})
    return [
        finding
        for number, (replicas, _) in enumerate(differing)
        for finding in check_difference(_sides(number, replicas, batches))
    ]


def _sides(
    number: int, replicas: Sequence[Replica], batches: Mapping[tuple[int, int], Mapping[int, PlacedBatch]]
) -> list[Side]:
    return [Side(replica, batches.get((number, place), {})) for place, replica in enumerate(replicas)]


def _block_items(replica: Replica, block: OffsetRange) -> Iterable[BlockItem]:
    for segment in replica.segments:
        starts, _, positions = segment.blocks
        here = starts == block.start
        if here.any():
            path = replica.file_path(segment.base_offset)
            item = SegmentItem(replica.topic_partition, path, segment.base_offset, segment.size_bytes, ())
            yield BlockItem(item, int(positions[here][0]), block)

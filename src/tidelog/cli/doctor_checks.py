"""Checks of `tidelog doctor`: facts about a machine and a cluster in, findings with the command that mends them out."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from tidelog.cli.disk_remedy import disk_remedy
from tidelog.cli.disk_view import DisksView
from tidelog.cli.local_cluster.report import GONE, STATE_TEXTS
from tidelog.cli.local_cluster.view import BrokerState, ClusterView, PartitionView, is_internal
from tidelog.client.admin.hanging_transactions import OLD_TRANSACTION_MS
from tidelog.terminal.plurals import plural
from tidelog.terminal.quantities import duration_text, size_text
from tidelog.types import TopicPartition

MIN_OPEN_FILES = 4_096
FEW_OPEN_FILES = 16_384
MIN_FREE_SHARE = 0.10
MIN_FREE_BYTES = 1_000_000_000
MIN_MEMORY_BYTES = 256_000_000
CLOCK_TOLERANCE_S = 60.0
MAX_IMBALANCE = 0.10
VOLATILE_FILE_SYSTEMS = ("tmpfs", "ramfs")
NAMES_SHOWN = 3


class Severity(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Nothing is wrong, but the reader should know."""
    WARNING = "warning"
    ERROR = "error"


class Finding(NamedTuple):
    severity: Severity
    subject: str
    sentence: str
    remedy: str = ""
    """What to do; a command where there is one."""

    @property
    def is_problem(self) -> bool:
        return self.severity in (Severity.WARNING, Severity.ERROR)


class MachineFacts(NamedTuple):
    open_files_limit: int
    data_directory: str
    total_bytes: int
    free_bytes: int
    file_system: str
    available_memory_bytes: int | None
    newest_file_ahead_s: float
    """How far the newest file of the data directory lies in the future."""
    has_compiled_kernels: bool
    java_problem: str | None
    """None also without Spark."""
    taken_ports: Mapping[int, int]
    """Ports of local brokers that are down, but in use by others; by broker."""


class OpenTransaction(NamedTuple):
    name: str
    """The transactional id, or the partition of one that no coordinator knows."""
    age_ms: int
    timeout_ms: int
    remedy: str


class ClusterFacts(NamedTuple):
    view: ClusterView
    disks: DisksView | None
    replication_factors: Mapping[str, int]
    transactions: Sequence[OpenTransaction]
    is_local: bool


def machine_findings(facts: MachineFacts) -> list[Finding]:
    return [
        _open_files(facts),
        _space(f"disk of {facts.data_directory}", facts.total_bytes, facts.free_bytes),
        *_file_system(facts),
        *_memory(facts),
        _clock(facts),
        _kernels(facts),
        *_java(facts),
        *_ports(facts),
    ]


def _open_files(facts: MachineFacts) -> Finding:
    limit = facts.open_files_limit
    sentence = f"a process may open {plural(limit, 'file')}; a broker keeps three per segment and one per connection"
    remedy = "`ulimit -n 65536`, or LimitNOFILE=65536 in the systemd unit"
    if limit < MIN_OPEN_FILES:
        return Finding(Severity.ERROR, "open files", sentence, remedy)
    return Finding(Severity.WARNING if limit < FEW_OPEN_FILES else Severity.OK, "open files", sentence, remedy)


def _space(subject: str, total_bytes: int, free_bytes: int) -> Finding:
    sentence = f"{size_text(free_bytes)} of {size_text(total_bytes)} are free"
    remedy = "shorten retention.ms of large topics (`tidelog config set topic NAME retention.ms=...`), or add a disk"
    if free_bytes < MIN_FREE_BYTES:
        return Finding(Severity.ERROR, subject, sentence, remedy)
    is_short = total_bytes > 0 and free_bytes / total_bytes < MIN_FREE_SHARE
    return Finding(Severity.WARNING if is_short else Severity.OK, subject, sentence, remedy if is_short else "")


def _file_system(facts: MachineFacts) -> Iterator[Finding]:
    if facts.file_system in VOLATILE_FILE_SYSTEMS:
        sentence = f"{facts.data_directory} is on {facts.file_system}: a reboot loses everything"
        yield Finding(Severity.WARNING, "file system", sentence, "choose a directory on a disk with --data")


def _memory(facts: MachineFacts) -> Iterator[Finding]:
    if facts.available_memory_bytes is None:
        return
    is_short = facts.available_memory_bytes < MIN_MEMORY_BYTES
    sentence = f"{size_text(facts.available_memory_bytes)} are available"
    remedy = "stop other programs: without page cache every read goes to the disk" if is_short else ""
    yield Finding(Severity.WARNING if is_short else Severity.OK, "memory", sentence, remedy)


def _clock(facts: MachineFacts) -> Finding:
    ahead_s = facts.newest_file_ahead_s
    if ahead_s > CLOCK_TOLERANCE_S:
        sentence = f"the newest file lies {duration_text(ahead_s)} in the future: the clock was set back"
        return Finding(
            Severity.ERROR, "clock", sentence, "synchronise it (`timedatectl set-ntp true`): retention goes by time"
        )
    return Finding(Severity.OK, "clock", "no file lies in the future")


def _kernels(facts: MachineFacts) -> Finding:
    if facts.has_compiled_kernels:
        return Finding(Severity.OK, "kernels", "the loops over records are compiled")
    return Finding(
        Severity.WARNING,
        "kernels",
        "the loops over records run interpreted, about 100 times slower",
        "install a C compiler, then `pip install --force-reinstall --no-deps tidelog`",
    )


def _java(facts: MachineFacts) -> Iterator[Finding]:
    if facts.java_problem is not None:
        sentence, _, remedy = facts.java_problem.partition("; ")
        yield Finding(Severity.WARNING, "Java", sentence, remedy)


def _ports(facts: MachineFacts) -> Iterator[Finding]:
    for broker_id, port in facts.taken_ports.items():
        yield Finding(
            Severity.ERROR,
            f"broker {broker_id}",
            f"it is down, and another program uses its port {port}",
            f"stop that program (`ss -ltnp 'sport = :{port}'` names it), or `tidelog up --port P`",
        )


def cluster_findings(facts: ClusterFacts) -> list[Finding]:
    view = facts.view
    found = [
        *_brokers(facts),
        *_leaderless(view),
        *_unwritable(view),
        *_under_replicated(view),
        *_disks(facts),
        *_imbalance(view),
        *_moves(view),
        *_fragile_topics(facts),
        *_transactions(facts.transactions),
    ]
    if view.controller is None:
        found.insert(0, Finding(Severity.ERROR, "controller", "there is none", "look into the logs of the brokers"))
    return found or [Finding(Severity.OK, "cluster", "all brokers are up and all partitions are in sync")]


def _brokers(facts: ClusterFacts) -> Iterator[Finding]:
    for broker in facts.view.brokers:
        if broker.state is BrokerState.UP:
            continue
        remedy = {
            BrokerState.DOWN: f"`tidelog start {broker.broker_id}`" if facts.is_local else "start it on its host",
            BrokerState.PAUSED: f"`kill -CONT {broker.pid}`",
            BrokerState.SILENT: "look into its log, and whether its port can be reached from here",
            BrokerState.STARTING: "wait, or look into its log",
            BrokerState.SUSPENDED: facts.view.suspensions.get(broker.broker_id, "look into its log"),
        }[broker.state]
        severity = Severity.ERROR if broker.state in GONE else Severity.WARNING
        yield Finding(severity, f"broker {broker.broker_id}", f"it {STATE_TEXTS[broker.state]}", remedy)


def _names(partitions: Sequence[PartitionView]) -> str:
    shown = ", ".join(str(each.topic_partition) for each in partitions[:NAMES_SHOWN])
    return f"{shown} and {len(partitions) - NAMES_SHOWN:,} more" if len(partitions) > NAMES_SHOWN else shown


def _why(partition: PartitionView) -> str:
    topic, number = partition.topic_partition
    return f"`tidelog partition why {topic} {number}`"


def _of_users_first(view: ClusterView) -> list[PartitionView]:
    """Internal topics have many partitions. They would hide those that somebody waits for."""
    return sorted(view.partitions, key=lambda each: is_internal(each.topic_partition.topic))


def _leaderless(view: ClusterView) -> Iterator[Finding]:
    found = [each for each in _of_users_first(view) if not each.has_leader]
    if found:
        count = plural(len(found), "partition")
        yield Finding(Severity.ERROR, "leaders", f"{count} without a leader: {_names(found)}", _why(found[0]))


def _unwritable(view: ClusterView) -> Iterator[Finding]:
    found = [each for each in _of_users_first(view) if each.has_leader and each.is_below_minimum]
    if found:
        count = plural(len(found), "partition")
        sentence = f"{count} below min.insync.replicas refuse acks=all: {_names(found)}"
        yield Finding(Severity.ERROR, "writes", sentence, _why(found[0]))


def _under_replicated(view: ClusterView) -> Iterator[Finding]:
    gone = {each.broker_id for each in view.brokers if each.state in GONE}
    found = [
        each
        for each in _of_users_first(view)
        if each.has_leader and any(reason.replica not in gone for reason in each.out_of_sync)
    ]
    if found:
        count = plural(len(found), "partition")
        sentence = f"{count} with a replica out of sync on a broker that is up: {_names(found)}"
        yield Finding(Severity.WARNING, "replicas", sentence, _why(found[0]))


def _disks(facts: ClusterFacts) -> Iterator[Finding]:
    for broker_id, offline in sorted(facts.view.offline_directories.items()):
        for path, reason in sorted(offline.items()):
            sentence = f"{path} is offline: {reason or 'reason unknown'}"
            remedy = f"{disk_remedy(reason)}, then restart the broker"
            yield Finding(Severity.ERROR, f"broker {broker_id}", sentence, remedy)
    for each in facts.disks.directories if facts.disks is not None else ():
        if each.total_bytes and each.free_bytes is not None and each.offline_reason is None:
            found = _space(f"broker {each.broker_id}, {each.path}", each.total_bytes, each.free_bytes)
            if found.severity is not Severity.OK:
                yield found


def _imbalance(view: ClusterView) -> Iterator[Finding]:
    """Not while a broker is away: it cannot lead then."""
    counts = view.counts
    if any(each.state is not BrokerState.UP for each in view.brokers):
        return
    if counts.partitions and counts.led_by_others / counts.partitions > MAX_IMBALANCE:
        sentence = f"{counts.led_by_others} of {counts.partitions} partitions are not led by their preferred replica"
        yield Finding(Severity.WARNING, "leader balance", sentence, "`tidelog partition elect`")


def _moves(view: ClusterView) -> Iterator[Finding]:
    found = [each for each in view.partitions if each.move is not None]
    if found:
        sentence = f"{plural(len(found), 'partition')} being moved: {_names(found)}"
        yield Finding(Severity.WARNING, "moves", sentence, "`tidelog partition move --status`, or --cancel")


def _fragile_topics(facts: ClusterFacts) -> Iterator[Finding]:
    """Topics that do not survive the loss of one broker, in a cluster that has several."""
    if len(facts.view.brokers) < 2:
        return
    single = sorted(name for name, factor in facts.replication_factors.items() if factor == 1)
    if single:
        sentence = f"{plural(len(single), 'topic')} with one replica: {', '.join(single[:NAMES_SHOWN])}"
        yield Finding(
            Severity.WARNING,
            "replication",
            f"{sentence}{' and more' if len(single) > NAMES_SHOWN else ''}",
            "write a plan with more replicas: `tidelog partition move --plan FILE`",
        )
    strict = sorted(
        {
            each.topic_partition.topic
            for each in facts.view.partitions
            if 1 < len(each.replicas) <= each.min_in_sync and not is_internal(each.topic_partition.topic)
        }
    )
    if strict:
        yield Finding(
            Severity.WARNING,
            "min.insync.replicas",
            f"one lost broker stops writes to {', '.join(strict[:NAMES_SHOWN])}: all replicas must be in sync",
            f"`tidelog config set topic {strict[0]} min.insync.replicas=...`, one less than its replicas",
        )


def _transactions(transactions: Sequence[OpenTransaction]) -> Iterator[Finding]:
    for each in transactions:
        if each.age_ms > max(each.timeout_ms, OLD_TRANSACTION_MS):
            sentence = f"the transaction of {each.name} is open for {duration_text(each.age_ms / 1000)}"
            yield Finding(Severity.WARNING, "transactions", f"{sentence}; it holds read_committed back", each.remedy)


def finding_lines(findings: Sequence[Finding], *, shows_all: bool) -> list[str]:
    """Problems first; the last line counts them."""
    order = [Severity.ERROR, Severity.WARNING, Severity.NOTE, Severity.OK]
    shown = sorted(
        (each for each in findings if shows_all or each.severity is not Severity.OK),
        key=lambda each: order.index(each.severity),
    )
    lines: list[str] = []
    for each in shown:
        lines.append(f"{each.severity}: {each.subject}: {each.sentence}")
        if each.remedy and each.is_problem:
            lines.append(f"    {each.remedy}")
    problems = sum(each.is_problem for each in findings)
    checks = plural(sum(each.severity is not Severity.NOTE for each in findings), "check")
    return [*lines, f"{checks}, {plural(problems, 'problem')}" if problems else f"ok: {checks}, nothing is wrong"]


def hanging_partition(topic_partition: TopicPartition, producer_id: int) -> str:
    """The command that ends a transaction that no coordinator knows."""
    topic, number = topic_partition
    return f"`tidelog transaction abort --partition {topic}:{number} --producer-id {producer_id}`"

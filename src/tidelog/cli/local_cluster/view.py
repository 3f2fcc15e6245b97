"""View of a cluster for status output: answers of brokers in, text and JSON out."""

# Core: no clock, no I/O, no await.

import textwrap
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from tidelog.cli.disk_remedy import disk_remedy
from tidelog.cluster.topic_names import is_internal as is_internal
from tidelog.terminal.tables import table
from tidelog.types import BrokerId, TopicPartition

STRAYS_SHOWN = 10
UNLIMITED = 10_000
"""Columns of output that is not redrawn, such as a pipe."""


class BrokerState(StrEnum):
    UP = "up"  # answers and is a live member of the cluster
    STARTING = "starting"  # runs, but is not in the cluster yet
    PAUSED = "paused"  # stopped with SIGSTOP
    SUSPENDED = "suspended"  # answers, but is suspended and leads no partition
    SILENT = "silent"  # a live member that does not answer
    DOWN = "down"


class BrokerView(NamedTuple):
    broker_id: BrokerId
    host: str | None
    port: int | None
    pid: int | None
    state: BrokerState


class OutOfSync(NamedTuple):
    """Reason why a replica is not in the ISR."""

    replica: BrokerId
    rule: str
    remedy: str
    behind: int | None = None
    since_ms: int | None = None

    def text(self, now_ms: int) -> str:
        duration = "" if self.since_ms is None else f" for {_duration(now_ms - self.since_ms)}"
        behind = "" if self.behind is None else f", {self.behind} behind"
        return f"replica {self.replica} out of sync{duration}{behind}: {self.rule}; {self.remedy}"


def _duration(duration_ms: int) -> str:
    seconds = max(0, duration_ms) // 1000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


class Move(NamedTuple):
    """A reassignment under way."""

    adding: Sequence[BrokerId]
    removing: Sequence[BrokerId]
    copied_percent: int | None
    """Of the bytes of the new replicas; None if they are unknown."""

    @property
    def text(self) -> str:
        copied = "" if self.copied_percent is None else f" ({self.copied_percent} % copied)"
        parts = [f"adds {_ids(self.adding)}{copied}"] if self.adding else []
        parts += [f"removes {_ids(self.removing)}"] if self.removing else []
        return f"being moved: {', '.join(parts)}"


class PartitionView(NamedTuple):
    topic_partition: TopicPartition
    leader: BrokerId | None
    leader_epoch: int
    replicas: Sequence[BrokerId]
    in_sync: Sequence[BrokerId]
    high_watermark: int | None
    lag: Mapping[BrokerId, int | None]
    """Offsets that each replica is behind the leader; None if a log end offset is unknown."""
    out_of_sync: Sequence[OutOfSync]
    """The replicas outside the ISR, each with the reason; without those that are being added."""
    move: Move | None = None
    min_in_sync: int = 1
    """min.insync.replicas of the topic; 1 if it is unknown."""
    is_leader_silent: bool = False
    """The metadata names a leader that does not answer: it has just died, and no other is elected yet."""

    @property
    def has_leader(self) -> bool:
        return self.leader is not None and not self.is_leader_silent

    @property
    def is_healthy(self) -> bool:
        return self.has_leader and not self.is_under_replicated

    @property
    def is_below_minimum(self) -> bool:
        return len(self.in_sync) < min(self.min_in_sync, len(self.replicas))

    @property
    def is_writable(self) -> bool:
        """With acks=all."""
        return self.has_leader and not self.is_below_minimum

    @property
    def is_under_replicated(self) -> bool:
        """As in Kafka, replicas that a reassignment is adding do not count."""
        adding = self.move.adding if self.move else ()
        return any(each not in self.in_sync for each in self.replicas if each not in adding)

    @property
    def is_led_by_another(self) -> bool:
        """Not by its preferred replica. While it is moved, its order of replicas means nothing yet."""
        return self.leader not in (None, self.replicas[0]) and self.move is None

    @property
    def is_shown_by_default(self) -> bool:
        """False for healthy partitions of internal topics: they are many and rarely of interest."""
        return not (self.is_healthy and self.move is None and is_internal(self.topic_partition.topic))


class ClusterView(NamedTuple):
    cluster_id: str | None
    controller: BrokerId | None
    brokers: Sequence[BrokerView]
    partitions: Sequence[PartitionView]
    at_ms: int
    suspensions: Mapping[BrokerId, str] = {}
    """Reasons why brokers are suspended."""
    stray_logs: Mapping[BrokerId, Sequence[str]] = {}
    """Directories of stray logs, by broker."""
    offline_directories: Mapping[BrokerId, Mapping[str, str]] = {}
    """Reasons why log directories are offline, by broker and path."""

    @property
    def counts(self) -> "Counts":
        partitions = self.partitions
        return Counts(
            topics=len({partition.topic_partition.topic for partition in partitions}),
            partitions=len(partitions),
            without_leader=sum(not partition.has_leader for partition in partitions),
            under_replicated=sum(partition.is_under_replicated for partition in partitions),
            moving=sum(partition.move is not None for partition in partitions),
            led_by_others=sum(partition.is_led_by_another for partition in partitions),
        )


class Counts(NamedTuple):
    topics: int
    partitions: int
    without_leader: int
    under_replicated: int
    moving: int
    led_by_others: int
    """Partitions whose preferred replica does not lead: Kafka's PreferredReplicaImbalanceCount."""


def as_json(view: ClusterView) -> dict[str, object]:
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller,
        "brokers": [
            {
                "id": found.broker_id,
                "host": found.host,
                "port": found.port,
                "pid": found.pid,
                "state": found.state.value,
                "suspension": view.suspensions.get(found.broker_id),
                "stray_logs": list(view.stray_logs.get(found.broker_id, ())),
                "offline_log_dirs": dict(view.offline_directories.get(found.broker_id, {})),
            }
            for found in view.brokers
        ],
        "preferred_replica_imbalance": view.counts.led_by_others,
        "partitions": [_partition_as_json(partition, view.at_ms) for partition in view.partitions],
    }


def _partition_as_json(partition: PartitionView, at_ms: int) -> dict[str, object]:
    return {
        "topic": partition.topic_partition.topic,
        "partition": partition.topic_partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.in_sync),
        "high_watermark": partition.high_watermark,
        "lag": {str(replica): lag for replica, lag in partition.lag.items()},
        "out_of_sync": [{**found._asdict(), "reason": found.text(at_ms)} for found in partition.out_of_sync],
        "move": partition.move and partition.move._asdict(),
        "min_in_sync": partition.min_in_sync,
        "is_writable": partition.is_writable,
    }


def broker_lines(view: ClusterView, columns: int = UNLIMITED) -> list[str]:
    led: dict[BrokerId, int] = {}
    for partition in view.partitions:
        if partition.leader is not None:
            led[partition.leader] = led.get(partition.leader, 0) + 1
    titles = ["BROKER", "STATE", "ADDRESS", "PID", "LEADS", ""]
    lines = table(titles, [_broker_row(broker, view, led) for broker in view.brokers])
    return [
        *lines,
        *_suspension_lines(view, columns),
        *_offline_directory_lines(view, columns),
        *_stray_lines(view, columns),
    ]


def _suspension_lines(view: ClusterView, columns: int) -> list[str]:
    """One line per reason, with all brokers that report it."""
    brokers: dict[str, list[BrokerId]] = {}
    for broker_id, reason in sorted(view.suspensions.items()):
        brokers.setdefault(reason, []).append(broker_id)
    return [
        line
        for reason, ids in brokers.items()
        for line in _wrapped(f"{'broker' if len(ids) == 1 else 'brokers'} {_ids(ids)} suspended: {reason}", columns)
    ]


def _offline_directory_lines(view: ClusterView, columns: int) -> list[str]:
    return [
        line
        for broker_id, offline in sorted(view.offline_directories.items())
        for path, reason in sorted(offline.items())
        for line in _wrapped(
            f"broker {broker_id}: log directory {path} is offline: {reason or 'reason unknown'}."
            f" {disk_remedy(reason).capitalize()}, then restart broker {broker_id}",
            columns,
        )
    ]


def _stray_lines(view: ClusterView, columns: int) -> list[str]:
    found = [f"broker {broker_id}: {path}" for broker_id, paths in sorted(view.stray_logs.items()) for path in paths]
    if not found:
        return []
    sentence = (
        f"{_plural(len(found), 'stray log')}: the topic was deleted and created again under the same name. Tidelog"
        " never deletes stray logs. To read one, move it to an empty directory under its old name and run a broker"
        " there:"
    )
    more = [f"    and {len(found) - STRAYS_SHOWN} more"] if len(found) > STRAYS_SHOWN else []
    return [*_wrapped(sentence, columns), *(f"    {line}" for line in found[:STRAYS_SHOWN]), *more]


def _wrapped(sentence: str, columns: int) -> list[str]:
    return textwrap.wrap(sentence, columns, subsequent_indent="  ")


def _broker_row(broker: BrokerView, view: ClusterView, led: Mapping[BrokerId, int]) -> list[str]:
    return [
        str(broker.broker_id),
        broker.state.value,
        f"{broker.host}:{broker.port}" if broker.host else "?",
        str(broker.pid or "-"),
        str(led.get(broker.broker_id, 0)) if broker.state is BrokerState.UP else "-",
        "controller" if broker.broker_id == view.controller else "",
    ]


def partition_lines(partitions: Sequence[PartitionView], at_ms: int, columns: int = UNLIMITED) -> list[str]:
    """A table; below each unhealthy partition, the reason."""
    if not partitions:
        return []
    titles = ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "HIGH WATERMARK", "LAG"]
    lines = table(titles, [_partition_row(partition) for partition in partitions])
    shown = [lines[0]]
    for partition, line in zip(partitions, lines[1:], strict=True):
        shown.append(line)
        shown += reason_lines(partition, at_ms, columns)
    return shown


def reason_lines(partition: PartitionView, at_ms: int, columns: int) -> list[str]:
    sentences = [found.text(at_ms) for found in partition.out_of_sync]
    if partition.move is not None:
        sentences.append(partition.move.text)
    return [
        line
        for sentence in sentences
        for line in textwrap.wrap(sentence, columns, initial_indent="    ", subsequent_indent="      ")
    ]


def _partition_row(partition: PartitionView) -> list[str]:
    return [
        str(partition.topic_partition),
        "none" if not partition.has_leader else str(partition.leader),
        str(partition.leader_epoch),
        _ids(partition.replicas),
        _ids(partition.in_sync),
        "?" if partition.high_watermark is None else str(partition.high_watermark),
        _lag(partition),
    ]


def _lag(partition: PartitionView) -> str:
    """Only replicas that are behind; 0 if none is."""
    behind = [
        f"{replica}:{'?' if lag is None else lag}" for replica, lag in partition.lag.items() if lag is None or lag > 0
    ]
    return " ".join(behind) or "0"


def _ids(broker_ids: Sequence[BrokerId]) -> str:
    return ",".join(map(str, broker_ids)) or "-"


def _plural(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def changes(before: ClusterView | None, after: ClusterView) -> list[str]:
    """One line per change, for output that cannot be redrawn."""
    if before is None:
        return []
    lines = []
    states = {broker.broker_id: broker for broker in before.brokers}
    for broker in after.brokers:
        earlier = states.get(broker.broker_id)
        if earlier is None or (earlier.state, earlier.pid) != (broker.state, broker.pid):
            process = f" (pid {broker.pid})" if broker.pid else ""
            lines.append(f"broker {broker.broker_id} is {broker.state.value}{process}")
    if after.controller != before.controller:
        lines.append(f"controller: {_named(before.controller)} -> {_named(after.controller)}")
    return lines + _partition_changes(before.partitions, after.partitions)


def _partition_changes(before: Sequence[PartitionView], after: Sequence[PartitionView]) -> list[str]:
    known = {partition.topic_partition: partition for partition in before}
    lines = []
    for partition in after:
        earlier = known.get(partition.topic_partition)
        if earlier is not None and earlier.leader != partition.leader:
            lines.append(
                f"{partition.topic_partition}: leader {_named(earlier.leader)} -> {_named(partition.leader)},"
                f" epoch {partition.leader_epoch}"
            )
        if earlier is not None and set(earlier.in_sync) != set(partition.in_sync):
            lines.append(f"{partition.topic_partition}: in sync {_ids(earlier.in_sync)} -> {_ids(partition.in_sync)}")
    return lines


def _named(broker_id: BrokerId | None) -> str:
    return "none" if broker_id is None else str(broker_id)

"""View of the log directories of all brokers, from their DescribeLogDirs responses."""

# Core: no clock, no I/O, no await.

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.cli.disk_remedy import disk_remedy
from tidelog.client.network.connection import ConnectionLost
from tidelog.errors import NO_ERROR, KafkaError
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from tidelog.terminal.quantities import size_text
from tidelog.terminal.tables import table
from tidelog.types import BrokerId, TopicPartition


class DirectoryView(NamedTuple):
    broker_id: BrokerId
    path: str
    size_bytes: int
    """Size of all logs in it, future logs included."""
    total_bytes: int | None
    free_bytes: int | None
    partitions: int
    future_logs: int
    offline_reason: str | None
    """None if the directory is online."""


class MoveView(NamedTuple):
    """A replica that moves to another log directory of its broker."""

    broker_id: BrokerId
    topic_partition: TopicPartition
    source: str | None
    """None if the broker does not say where the current log is."""
    target: str
    copied_bytes: int
    size_bytes: int
    lag: int
    """Offsets that the copy lacks; -1 if unknown."""

    @property
    def progress(self) -> float:
        return min(self.copied_bytes / self.size_bytes, 1.0) if self.size_bytes else 1.0


class DisksView(NamedTuple):
    directories: Sequence[DirectoryView]
    moves: Sequence[MoveView]
    silent: Mapping[BrokerId, str]
    """Brokers that did not answer, with the reason."""


def disks_of(responses: Mapping[BrokerId, DescribeLogDirsResponse | KafkaError | ConnectionLost]) -> DisksView:
    directories: list[DirectoryView] = []
    moves: list[MoveView] = []
    silent: dict[BrokerId, str] = {}
    for broker_id, response in sorted(responses.items()):
        if isinstance(response, DescribeLogDirsResponse):
            directories += [_directory(broker_id, each) for each in response.results]
            moves += _moves(broker_id, response)
        else:
            silent[broker_id] = str(response)
    return DisksView(directories, moves, silent)


def _directory(broker_id: BrokerId, found: DescribeLogDirsResult) -> DirectoryView:
    logs = [log for topic in found.topics for log in topic.partitions]
    is_online = found.error_code == NO_ERROR
    return DirectoryView(
        broker_id,
        found.log_dir,
        sum(log.partition_size for log in logs),
        found.total_bytes if found.total_bytes >= 0 else None,
        found.usable_bytes if found.usable_bytes >= 0 else None,
        sum(not log.is_future_key for log in logs),
        sum(log.is_future_key for log in logs),
        None if is_online else found.offline_reason or "reason unknown",
    )


def _moves(broker_id: BrokerId, response: DescribeLogDirsResponse) -> list[MoveView]:
    logs = [
        (TopicPartition(topic.name, log.partition_index), result.log_dir, log)
        for result in response.results
        for topic in result.topics
        for log in topic.partitions
    ]
    current = {each: (path, log) for each, path, log in logs if not log.is_future_key}
    found = []
    for each, path, log in sorted(logs, key=lambda entry: entry[:2]):
        if log.is_future_key:
            source, replica = current.get(each, (None, None))
            size_bytes = log.partition_size if replica is None else replica.partition_size
            found.append(MoveView(broker_id, each, source, path, log.partition_size, size_bytes, log.offset_lag))
    return found


def as_text(view: DisksView) -> list[str]:
    rows = [
        (
            each.broker_id,
            each.path,
            "online" if each.offline_reason is None else "OFFLINE",
            size_text(each.size_bytes) if each.offline_reason is None else "-",
            "-" if each.free_bytes is None else size_text(each.free_bytes),
            f"{each.partitions:,}" if each.offline_reason is None else "-",
            f"{each.future_logs:,}" if each.offline_reason is None else "-",
        )
        for each in view.directories
    ]
    titles = ["BROKER", "DIRECTORY", "STATE", "SIZE", "FREE", "PARTITIONS", "FUTURE LOGS"]
    lines = table(titles, rows)
    lines += [
        f"broker {each.broker_id}: {each.path} is offline: {each.offline_reason}."
        f" {disk_remedy(each.offline_reason).capitalize()}, then restart the broker"
        for each in view.directories
        if each.offline_reason is not None
    ]
    lines += [f"broker {broker_id} does not answer: {reason}" for broker_id, reason in view.silent.items()]
    return [*lines, "", *_move_lines(view.moves)] if view.moves else lines


def _move_lines(moves: Sequence[MoveView]) -> list[str]:
    rows = [
        (
            each.broker_id,
            each.topic_partition,
            each.source or "?",
            each.target,
            size_text(each.copied_bytes),
            f"{each.lag:,}" if each.lag >= 0 else "?",
            f"{each.progress:.0%}",
        )
        for each in moves
    ]
    return table(["BROKER", "MOVING", "FROM", "TO", "COPIED", "LAG", "DONE"], rows)


def as_json(view: DisksView) -> dict[str, object]:
    return {
        "directories": [
            {
                "broker": each.broker_id,
                "path": each.path,
                "state": "online" if each.offline_reason is None else "offline",
                "reason": each.offline_reason,
                "size_bytes": each.size_bytes,
                "total_bytes": each.total_bytes,
                "free_bytes": each.free_bytes,
                "partitions": each.partitions,
                "future_logs": each.future_logs,
            }
            for each in view.directories
        ],
        "moves": [
            {
                "broker": each.broker_id,
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "from": each.source,
                "to": each.target,
                "copied_bytes": each.copied_bytes,
                "size_bytes": each.size_bytes,
                "lag": each.lag,
                "progress": round(each.progress, 4),
            }
            for each in view.moves
        ],
        "silent_brokers": {str(broker_id): reason for broker_id, reason in view.silent.items()},
    }

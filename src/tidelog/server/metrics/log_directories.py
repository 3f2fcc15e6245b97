"""Metrics of log directories, and of moves of replicas between them."""

from collections.abc import Callable, Iterator

from tidelog.replication.alter_log_dirs import AlterLogDirsManager
from tidelog.server.metrics.metric import Kind, Metric, Read, Sample
from tidelog.server.metrics.reading import Reading
from tidelog.storage.log_directory import LogDirectory

DIRECTORY = ("directory",)


def _each(figure: Callable[[LogDirectory], float]) -> Read:
    return lambda reading: [((each.path,), figure(each)) for each in reading.services.logs.directories]


def _of_moves(figure: Callable[[AlterLogDirsManager], float]) -> Read:
    return lambda reading: [((), figure(reading.services.alter_log_dirs))]


def _offline_count(reading: Reading) -> Iterator[Sample]:
    yield (), sum(not directory.is_online for directory in reading.services.logs.directories)


LOG_DIRECTORY_METRICS: tuple[Metric, ...] = (
    Metric(
        Kind.GAUGE,
        "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
        "Log directories that have failed.",
        _offline_count,
    ),
    Metric(
        Kind.GAUGE,
        "kafka.log:type=LogManager,name=LogDirectoryOffline",
        "1 if the log directory has failed, else 0.",
        _each(lambda directory: not directory.is_online),
        DIRECTORY,
    ),
    Metric(
        Kind.COUNTER,
        "tidelog_log_directory_shortages_total",
        "Operations on files that lacked a descriptor or memory, and are retried.",
        _each(lambda directory: directory.shortages),
        DIRECTORY,
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_log_directory_bytes",
        "Size of the logs in the log directory, future logs included.",
        _each(lambda directory: directory.size_bytes),
        DIRECTORY,
    ),
    Metric(
        Kind.GAUGE,
        "tidelog_log_directory_future_logs",
        "Replicas that are being moved to the log directory.",
        _each(lambda directory: sum(log.is_future for log in directory.logs.values())),
        DIRECTORY,
    ),
    Metric(
        Kind.GAUGE,
        "kafka.server:type=ReplicaAlterLogDirsManager,name=MaxLag",
        "Offsets that the slowest future log lacks.",
        _of_moves(lambda moves: max((each.lag for each in moves.progress()), default=0)),
    ),
    Metric(
        Kind.GAUGE,
        "kafka.server:type=ReplicaAlterLogDirsManager,name=FailedPartitionsCount",
        "Replicas whose move to another log directory fails and is retried.",
        _of_moves(lambda moves: moves.failing),
    ),
    Metric(
        Kind.COUNTER,
        "tidelog_alter_log_dirs_moves_total",
        "Replicas that have been moved from one log directory to another.",
        _of_moves(lambda moves: moves.swaps),
    ),
)

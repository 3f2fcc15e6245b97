"""Startup of one log directory: its checkpoints and all its logs."""

import errno
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tidelog.config.topic import TopicSettings
from tidelog.runtime.disk import DirectoryEntry
from tidelog.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    SEGMENT_SIZES,
    CorruptCheckpoint,
    read_offsets,
)
from tidelog.storage.loader import Checkpointed, load_log
from tidelog.storage.log import Log
from tidelog.storage.log_directory import CHECKPOINTED_OFFSETS, NO_BROKER_EPOCH, DuplicateLog, LogDirectory
from tidelog.storage.partition_metadata import PARTITION_METADATA, read_topic_id
from tidelog.storage.partition_names import (
    CLUSTER_METADATA_NAME,
    STRAY_SUFFIX,
    deletion_name,
    is_deletion_name,
    parse_future_name,
    parse_partition_name,
    stray_name,
)
from tidelog.storage.replaced_logs import ANY_DIRECTORY, read_replaced
from tidelog.storage.segment import LOG_SUFFIX
from tidelog.storage.segment_lists import mark_missing_segments
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

PROGRESS_EVERY = 1_000

_Found: TypeAlias = tuple[TopicPartition, str]


class LoadedDirectory(NamedTuple):
    directory: LogDirectory
    logs: list[Log]
    future_logs: list[Log]
    """Copies of logs that were being moved to this log dir (R30)."""
    paths_to_delete: list[str]
    """Directories of partitions whose deletion was interrupted by a shutdown."""
    stray_paths: list[str]
    """Stray logs, set aside earlier; only an operator removes them."""


class Leftover(NamedTuple):
    """Directory of a partition that another log dir has, too: the other one counts.

    Either its creation failed, so that it has no log file; or nothing was ever written to it, as to a log of an earlier
    topic whose deletion a power cut has undone; or it was replaced by a log in another log dir: the broker stopped
    before it was renamed (R30), or its log dir was away when the topic was created again.
    """

    directory: LogDirectory
    topic_partition: TopicPartition
    is_kept: bool
    """It may hold records of an earlier topic with the same name (R44)."""

    def rename(self) -> None:
        """Rename it: it is deleted with the directories of deleted partitions, or kept as a stray log."""
        context = self.directory.context
        path = self.directory.file(str(self.topic_partition))
        unique = context.randomness.bytes(16).hex()
        if self.is_kept:
            logger.warning("set aside log of an earlier topic; it is kept until you remove it path=%s", path)
            name = stray_name(self.topic_partition, unique)
        else:
            logger.info("removing directory of a replaced or unwritten log, or of a failed creation path=%s", path)
            name = deletion_name(self.topic_partition, unique)
        context.disk.rename(path, self.directory.file(name))
        context.disk.sync_directory(self.directory.path)  # before the marker of its replacement is removed


def check_for_duplicates(directories: Iterable[LogDirectory]) -> list[Leftover]:
    """Raise DuplicateLog if two log dirs have the same partition, before anything has changed.

    Returns directories of failed creations, unwritten logs and replaced logs, which may be removed.
    """
    found: dict[TopicPartition, list[LogDirectory]] = defaultdict(list)
    for directory in directories:
        for topic_partition in _partitions_in(directory):
            found[topic_partition].append(directory)
    leftovers: list[Leftover] = []
    for topic_partition, holders in found.items():
        if len(holders) > 1:
            leftovers += _leftovers_of(topic_partition, holders)
    return leftovers


def _leftovers_of(topic_partition: TopicPartition, holders: list[LogDirectory]) -> list[Leftover]:
    files = {directory: _log_files(directory, topic_partition) for directory in holders}
    logs = [directory for directory in holders if files[directory] != []]
    written = [directory for directory in logs if not _is_unwritten(files[directory])]
    replacement = _replacement(topic_partition, logs)
    if replacement is None and len(written) > 1:
        paths = " and ".join(directory.file(str(topic_partition)) for directory in written)
        raise DuplicateLog(f"partition {topic_partition} is in two log dirs: {paths}; move one of them away")
    kept = replacement or (written or logs or holders)[0]
    return [
        Leftover(
            directory, topic_partition, directory in written and not _is_same_topic(topic_partition, directory, kept)
        )
        for directory in holders
        if directory is not kept
    ]


def _is_same_topic(topic_partition: TopicPartition, one: LogDirectory, other: LogDirectory) -> bool:
    try:
        ids = {
            read_topic_id(each.context.disk, each.file(str(topic_partition)))
            for each in (one, other)
            if each.context.disk.exists(f"{each.file(str(topic_partition))}/{PARTITION_METADATA}")
        }
    except OSError:
        return False
    return len(ids) == 1 and None not in ids


def _replacement(topic_partition: TopicPartition, logs: list[LogDirectory]) -> LogDirectory | None:
    """The log dir whose log replaced those in all the others."""
    for directory in logs:
        try:
            replaced = read_replaced(directory.context.disk, directory.file(str(topic_partition)))
        except OSError as error:
            directory.fail_while_opening(error)
            continue
        if ANY_DIRECTORY in replaced or replaced.issuperset(
            each.directory_id for each in logs if each is not directory
        ):
            return directory
    return None


def _is_unwritten(files: list[DirectoryEntry] | None) -> bool:
    """True if no record was ever written: a log that retention emptied begins at a later offset."""
    return files is not None and len(files) == 1 and files[0].size == 0 and int(files[0].name.split(".")[0]) == 0


def _log_files(directory: LogDirectory, topic_partition: TopicPartition) -> list[DirectoryEntry] | None:
    """Log files of a partition. None if unknown; empty if its creation failed, since the log file is created last."""
    try:
        entries = directory.context.disk.list_directory(directory.file(str(topic_partition)))
    except OSError as error:
        directory.fail_while_opening(error)
        return None
    return [entry for entry in entries if entry.name.endswith(LOG_SUFFIX)]


def _partitions_in(directory: LogDirectory) -> list[TopicPartition]:
    if not directory.is_online:
        return []
    try:
        entries = directory.context.disk.list_directory(directory.path)
    except OSError as error:
        directory.fail_while_opening(error)
        return []
    names = [entry.name for entry in entries if entry.is_directory]
    return [partition for name in names if (partition := parse_partition_name(name))]


def load_directory(directory: LogDirectory, topic_settings: Callable[[str], TopicSettings]) -> LoadedDirectory:
    """Blocking, for a worker. An I/O error takes the directory offline; it then has no logs.

    Raises StorageSetupError if descriptors run out: an online directory without its logs would get new, empty ones.
    """
    try:
        return _load(directory, topic_settings)
    except OSError as error:
        directory.fail_while_opening(error)
        return LoadedDirectory(directory, [], [], [], [])


def _load(directory: LogDirectory, topic_settings: Callable[[str], TopicSettings]) -> LoadedDirectory:
    clock = directory.context.clock
    started = clock.monotonic()
    segment_lists = mark_missing_segments(directory)
    is_clean = directory.consume_clean_shutdown_marker()
    recovery_points = _offsets(directory, RECOVERY_POINTS)
    high_watermarks = _offsets(directory, HIGH_WATERMARKS)
    log_start_offsets = _offsets(directory, LOG_START_OFFSETS)
    segment_sizes = _offsets(directory, SEGMENT_SIZES)
    cleaned_until = _offsets(directory, CLEANER_OFFSETS)
    entries = directory.context.disk.list_directory(directory.path)
    partitions, futures, paths_to_delete, stray_paths = _sort_out(directory, entries)
    logger.info(
        "loading logs path=%s partitions=%d last_stop=%s",
        directory.path,
        len(partitions),
        "clean" if is_clean else "unclean" if partitions else "none",
    )
    logs: list[Log] = []
    future_logs: list[Log] = []
    for topic_partition, path in [*partitions, *futures]:
        checkpointed = Checkpointed(
            is_clean,
            recovery_points.get(topic_partition),
            high_watermarks.get(topic_partition),
            log_start_offsets.get(topic_partition),
            segment_sizes.get(topic_partition),
            cleaned_until.get(topic_partition, 0),
            segment_lists.get(topic_partition, [None])[-1],
        )
        settings = topic_settings(topic_partition.topic)
        log = load_log(directory, path, topic_partition, settings, checkpointed)
        (future_logs if log.is_future else logs).append(log)
        if len(logs) % PROGRESS_EVERY == 0:
            logger.info("loading logs path=%s loaded=%d of=%d", directory.path, len(logs), len(partitions))
    directory.lower_high_watermarks([*logs, *future_logs], high_watermarks)
    if is_clean:
        _check_is_complete(directory, recovery_points, [*logs, *future_logs])
    elapsed_ms = int((clock.monotonic() - started) * 1000)
    logger.info("loaded logs path=%s partitions=%d elapsed_ms=%d", directory.path, len(logs), elapsed_ms)
    return LoadedDirectory(directory, logs, future_logs, paths_to_delete, stray_paths)


def _check_is_complete(directory: LogDirectory, end_offsets: Mapping[TopicPartition, int], logs: Sequence[Log]) -> None:
    """Compare the logs with the recovery points of the clean shutdown, which were their ends.

    If a log is missing, shorter or lacks segments, the shutdown no longer counts as clean: as after a crash, other
    replicas are asked before this broker leads (R42). An election would take it for complete otherwise. The same if
    there are no recovery points: `rm -rf logs/*` leaves the marker of the shutdown, whose name begins with a dot.
    """
    if not end_offsets and not directory.context.disk.exists(directory.file(RECOVERY_POINTS)):
        logger.warning("log dir has lost its checkpoints since the clean shutdown path=%s", directory.path)
        directory.previous_broker_epoch = NO_BROKER_EPOCH
    found = {log.topic_partition: log.log_end_offset for log in logs}
    shorter = [each for each, end_offset in end_offsets.items() if found.get(each, 0) < end_offset]
    shorter += [log.topic_partition for log in logs if log.has_missing_segments]
    if shorter:
        logger.warning(
            "logs are missing, shorter or lack segments since the clean shutdown path=%s partitions=%d first=%s",
            directory.path,
            len(shorter),
            shorter[0],
        )
        directory.previous_broker_epoch = NO_BROKER_EPOCH


def _offsets(directory: LogDirectory, name: str) -> dict[TopicPartition, int]:
    try:
        offsets = read_offsets(directory.context.disk, directory.file(name))
    except CorruptCheckpoint as error:
        logger.warning("rebuilding corrupt checkpoint from the logs error=%s", error)
        return {}
    if offsets and name in CHECKPOINTED_OFFSETS:
        directory.record_found_checkpoint(name, offsets)
    return offsets


def _sort_out(
    directory: LogDirectory, entries: list[DirectoryEntry]
) -> tuple[list[_Found], list[_Found], list[str], list[str]]:
    """Partitions and future logs, and the paths of deleted and stray ones. Other entries are ignored."""
    partitions: list[_Found] = []
    futures: dict[TopicPartition, str] = {}
    paths_to_delete, stray_paths, useless = [], [], []
    for entry in entries:
        topic_partition, path = parse_partition_name(entry.name), directory.file(entry.name)
        if entry.is_dangling and topic_partition is not None:
            raise OSError(errno.ENOENT, "the link to a log leads nowhere", path)
        if not entry.is_directory:
            continue
        future_of = parse_future_name(entry.name)
        if is_deletion_name(entry.name):
            paths_to_delete.append(directory.file(entry.name))
        elif future_of is not None:
            if futures.setdefault(future_of, path) != path:
                useless.append(path)
        elif entry.name.endswith(STRAY_SUFFIX):
            stray_paths.append(directory.file(entry.name))
        elif entry.name == CLUSTER_METADATA_NAME:
            logger.info("ignored directory path=%s", directory.file(entry.name))
        elif topic_partition is None:
            logger.warning("ignored directory that is not a partition path=%s", directory.file(entry.name))
        else:
            partitions.append((topic_partition, path))
    # A copy beside its own log is of no use, and both would share one line of the checkpoints.
    useless += [futures.pop(each) for each, _ in partitions if each in futures]
    return sorted(partitions), sorted(futures.items()), [*paths_to_delete, *useless], sorted(stray_paths)

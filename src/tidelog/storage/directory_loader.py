"""Loading all logs of one log dir, by its checkpoints."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidelog.config.topic import TopicSettings
from tidelog.runtime.disk import DirectoryEntry
from tidelog.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    SEGMENT_SIZES,
    DamagedCheckpoint,
    read_offsets,
)
from tidelog.storage.loader import Checkpointed, load_log
from tidelog.storage.log import Log
from tidelog.storage.log_directory import CHECKPOINTED_OFFSETS, DuplicateLog, LogDirectory
from tidelog.storage.partition_names import (
    CLUSTER_METADATA_NAME,
    DELETION_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    deletion_name,
    parse_partition_name,
)
from tidelog.storage.segment import LOG_SUFFIX
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

PROGRESS_EVERY = 1_000


class LoadedDirectory(NamedTuple):
    directory: LogDirectory
    logs: list[Log]
    doomed_paths: list[str]
    """Partitions whose deletion a stop interrupted."""
    stray_paths: list[str]
    """Logs that were set aside earlier; nobody but an operator removes them."""


class Leftover(NamedTuple):
    """A partition's directory without any log file, while another log dir has the partition: its creation failed."""

    directory: LogDirectory
    topic_partition: TopicPartition

    def rename(self) -> None:
        """It is removed with the directories of deleted partitions."""
        context = self.directory.context
        path = self.directory.file(str(self.topic_partition))
        logger.info("removing what a failed creation of a log has left path=%s", path)
        name = deletion_name(self.topic_partition, context.randomness.bytes(16).hex())
        context.disk.rename(path, self.directory.file(name))


def check_for_duplicates(directories: Iterable[LogDirectory]) -> list[Leftover]:
    """Refuse two log dirs that hold the same partition, before anything is changed. Returns what may be removed."""
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
    logs = [directory for directory in holders if _has_log_files(directory, topic_partition)]
    if len(logs) > 1:
        paths = " and ".join(directory.file(str(topic_partition)) for directory in logs)
        raise DuplicateLog(f"partition {topic_partition} is in two log dirs: {paths}; move one of them away")
    kept = logs[0] if logs else holders[0]
    return [Leftover(directory, topic_partition) for directory in holders if directory is not kept]


def _has_log_files(directory: LogDirectory, topic_partition: TopicPartition) -> bool:
    """Whether its creation succeeded: the first log file is the last thing to be created."""
    try:
        entries = directory.context.disk.list_directory(directory.file(str(topic_partition)))
    except OSError as error:
        directory.fail_while_opening(error)
        return True  # nobody knows
    return any(entry.name.endswith(LOG_SUFFIX) for entry in entries)


def _partitions_in(directory: LogDirectory) -> list[TopicPartition]:
    if not directory.is_online:
        return []
    try:
        entries = directory.context.disk.list_directory(directory.path)
    except OSError as error:
        directory.fail_while_opening(error)
        return []
    names = [entry.name for entry in entries if entry.is_directory]
    return [partition for name in names if (partition := parse_partition_name(name)) and str(partition) == name]


def load_directory(directory: LogDirectory, topic_settings: Callable[[str], TopicSettings]) -> LoadedDirectory:
    """Blocking, for a worker. An I/O error takes the directory offline, and it has no logs then.

    StorageSetupError for want of descriptors: a directory that is online without its logs would get new, empty ones.
    """
    try:
        return _load(directory, topic_settings)
    except OSError as error:
        directory.fail_while_opening(error)
        return LoadedDirectory(directory, [], [], [])


def _load(directory: LogDirectory, topic_settings: Callable[[str], TopicSettings]) -> LoadedDirectory:
    clock = directory.context.clock
    started = clock.monotonic()
    is_clean = directory.take_clean_shutdown_marker()
    recovery_points = _offsets(directory, RECOVERY_POINTS)
    high_watermarks = _offsets(directory, HIGH_WATERMARKS)
    log_start_offsets = _offsets(directory, LOG_START_OFFSETS)
    segment_sizes = _offsets(directory, SEGMENT_SIZES)
    cleaned_until = _offsets(directory, CLEANER_OFFSETS)
    entries = directory.context.disk.list_directory(directory.path)
    partitions, doomed_paths, stray_paths = _sort_out(directory, entries)
    logger.info(
        "loading logs path=%s partitions=%d last_stop=%s",
        directory.path,
        len(partitions),
        "clean" if is_clean else "unclean" if partitions else "none",
    )
    logs = []
    for topic_partition in partitions:
        checkpointed = Checkpointed(
            is_clean,
            recovery_points.get(topic_partition),
            high_watermarks.get(topic_partition),
            log_start_offsets.get(topic_partition),
            segment_sizes.get(topic_partition),
            cleaned_until.get(topic_partition, 0),
        )
        settings = topic_settings(topic_partition.topic)
        logs.append(load_log(directory, directory.file(str(topic_partition)), topic_partition, settings, checkpointed))
        if len(logs) % PROGRESS_EVERY == 0:
            logger.info("loading logs path=%s loaded=%d of=%d", directory.path, len(logs), len(partitions))
    elapsed_ms = int((clock.monotonic() - started) * 1000)
    logger.info("loaded logs path=%s partitions=%d elapsed_ms=%d", directory.path, len(logs), elapsed_ms)
    return LoadedDirectory(directory, logs, doomed_paths, stray_paths)


def _offsets(directory: LogDirectory, name: str) -> dict[TopicPartition, int]:
    try:
        offsets = read_offsets(directory.context.disk, directory.file(name))
    except DamagedCheckpoint as error:
        logger.warning("damaged checkpoint is rebuilt from the logs error=%s", error)
        return {}
    if offsets and name in CHECKPOINTED_OFFSETS:
        directory.note_found_checkpoint(name, offsets)
    return offsets


def _sort_out(
    directory: LogDirectory, entries: list[DirectoryEntry]
) -> tuple[list[TopicPartition], list[str], list[str]]:
    """The partitions, and the paths of those deleted and of those set aside; everything else is left alone."""
    partitions, doomed_paths, stray_paths = [], [], []
    for entry in entries:
        if not entry.is_directory:
            continue
        topic_partition = parse_partition_name(entry.name)
        if entry.name.endswith(DELETION_SUFFIX):
            doomed_paths.append(directory.file(entry.name))
        elif entry.name.endswith(STRAY_SUFFIX):
            stray_paths.append(directory.file(entry.name))
        elif entry.name == CLUSTER_METADATA_NAME or entry.name.endswith(FUTURE_SUFFIX):
            logger.info("directory is left alone path=%s", directory.file(entry.name))
        elif topic_partition is None or str(topic_partition) != entry.name:
            logger.warning("not the directory of a partition, left alone path=%s", directory.file(entry.name))
        else:
            partitions.append(topic_partition)
    return sorted(partitions), doomed_paths, sorted(stray_paths)

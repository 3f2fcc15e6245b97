"""Segment lists: which segments each log had at a clean shutdown, so that segments that are gone are noticed (R6).

Nothing else tells a segment that somebody removed from one that retention deleted. A log that lacks segments before its
last one gets the marker file `missing-segments`, which stays until the log is copied again, or leads because no other
replica has more (R42).
"""

import logging
from collections.abc import Iterable, Sequence

from tidelog.runtime.disk import Disk
from tidelog.storage.checkpoints import (
    MISSING_SEGMENTS,
    OFFSET_GAPS,
    CorruptCheckpoint,
    read_segment_lists,
    write_segment_lists,
)
from tidelog.storage.log_directory import (
    CLEAN_SHUTDOWN_MARKER,
    NO_BROKER_EPOCH,
    CheckpointedLog,
    LogDirectory,
    read_marker,
)
from tidelog.storage.partition_names import partition_name
from tidelog.storage.segment import LOG_SUFFIX, segment_path
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


def record_segments(directory: LogDirectory, logs: Iterable[CheckpointedLog], broker_epoch: int) -> None:
    """Before the clean-shutdown marker is written. The broker epoch says to which marker the lists belong. Blocking."""
    lists = {log.topic_partition: log.base_offsets for log in logs if not log.is_future}
    write_segment_lists(directory.context.disk, directory.path, broker_epoch, lists)


def mark_missing_segments(directory: LogDirectory) -> dict[TopicPartition, list[int]]:
    """Mark logs that lack segments; returns the lists of the last shutdown, if it was clean. Blocking.

    Called before the clean-shutdown marker is removed: a crash from then on makes the lists useless.
    """
    disk, marker = directory.context.disk, directory.file(CLEAN_SHUTDOWN_MARKER)
    broker_epoch = read_marker(disk.read_file(marker))[0] if disk.exists(marker) else NO_BROKER_EPOCH
    if broker_epoch == NO_BROKER_EPOCH:
        return {}  # after a crash, or a shutdown of Apache Kafka: the lists are of an earlier shutdown
    try:
        lists = read_segment_lists(disk, directory.path, broker_epoch)
    except CorruptCheckpoint as error:
        logger.warning("ignored corrupt segment lists error=%s", error)
        return {}
    for topic_partition, listed in lists.items():
        path = directory.file(partition_name(topic_partition))
        if disk.exists(path):
            _mark_if_missing(disk, path, listed)
    return lists


def _mark_if_missing(disk: Disk, path: str, listed: Sequence[int]) -> None:
    """A log that lacks only its last segments is shorter than its recovery point, which is noticed anyway."""
    files = {f"{path}/{entry.name}" for entry in disk.list_directory(path)}
    present = [base_offset for base_offset in listed if segment_path(path, base_offset, LOG_SUFFIX) in files]
    missing = [base_offset for base_offset in listed if segment_path(path, base_offset, LOG_SUFFIX) not in files]
    if not present or not missing or missing[0] > present[-1]:
        return
    logger.error("segments are missing since the clean shutdown path=%s missing=%s", path, missing[:10])
    if present[0] < missing[0]:
        # A hole, which compaction leaves, too. The followers of this log may copy it, if it has to lead.
        disk.open(f"{path}/{OFFSET_GAPS}", "create").close()
    disk.open(f"{path}/{MISSING_SEGMENTS}", "create").close()
    disk.sync_directory(path)

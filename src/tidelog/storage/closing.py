"""Shutdown of all logs: flush, checkpoints and the clean-shutdown marker of each log dir (R6)."""

import asyncio
import logging
from collections.abc import Mapping

from tidelog.errors import KafkaStorageError
from tidelog.storage.checkpointing import CheckpointWriter
from tidelog.storage.log import Log
from tidelog.storage.log_directories import LogDirectories
from tidelog.storage.log_directory import CHECKPOINTED_OFFSETS, LogDirectory, StorageContext
from tidelog.storage.segment_lists import record_segments

logger = logging.getLogger(__name__)

CLOSED_TOGETHER = 64
"""Logs flushed in parallel at shutdown: simultaneous syncs share disk writes."""


async def close_directories(
    context: StorageContext,
    directories: LogDirectories,
    logs: list[Log],
    checkpoints: CheckpointWriter,
    broker_epoch: int,
) -> None:
    """Flush the logs, write all checkpoints and, where both succeeded, the clean-shutdown marker. Unlock the log dirs.

    `broker_epoch` is the epoch of the registration that ends.
    """
    if len(logs) > CLOSED_TOGETHER:
        # One sync of all files. The syncs that follow are then cheap, and they report errors.
        await context.workers.run(context.disk.sync_everything)
    unclosed = await _close_logs(logs)
    if unclosed:
        # Retry: it may have failed for lack of descriptors, and the other logs have released theirs.
        unclosed = await _close_logs(list(unclosed))
    for directory in directories:
        reasons = {log: reason for log, reason in unclosed.items() if log.directory is directory}
        is_written = [await checkpoints.write_in(directory, name) for name in CHECKPOINTED_OFFSETS]
        if directory.is_online:
            await _mark_clean(directory, reasons, all(is_written), broker_epoch, directories.companion_ids)
        directory.release()


async def _close_logs(logs: list[Log]) -> dict[Log, BaseException]:
    """Close the logs. Returns those that failed, with the error: no failure stops the others or counts as success."""
    unclosed: dict[Log, BaseException] = {}
    for start in range(0, len(logs), CLOSED_TOGETHER):
        together = logs[start : start + CLOSED_TOGETHER]
        outcomes = await asyncio.gather(*(log.close() for log in together), return_exceptions=True)
        for log, error in zip(together, outcomes, strict=True):
            if error is not None:
                unclosed[log] = error
                if not isinstance(error, KafkaStorageError):
                    logger.error("log close failed partition=%s", log.topic_partition, exc_info=error)
    return unclosed


async def _mark_clean(
    directory: LogDirectory,
    unclosed: Mapping[Log, BaseException],
    are_checkpoints_written: bool,
    broker_epoch: int,
    companion_ids: list[str],
) -> None:
    """Write the clean-shutdown marker, unless a log was not closed or a checkpoint not written."""
    for log, reason in unclosed.items():
        logger.warning(
            "log not closed cleanly, next start will recover it partition=%s error=%s",
            log.topic_partition,
            reason,
        )
    logs = list(directory.logs.values())
    if (
        not unclosed
        and are_checkpoints_written
        and await directory.run(record_segments, directory, logs, broker_epoch)
        and await directory.run(directory.write_clean_shutdown_marker, broker_epoch, companion_ids)
    ):
        logger.info("closed log dir path=%s partitions=%d", directory.path, len(directory.logs))
    else:
        logger.warning(
            "log dir not closed cleanly path=%s unclosed_logs=%d checkpoints_written=%s",
            directory.path,
            len(unclosed),
            are_checkpoints_written,
        )

"""Bringing what a log has written to the disk, in a worker, and moving its recovery point."""

import asyncio
from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from tidelog.runtime.disk import Disk
from tidelog.storage.checkpoints import LEADER_EPOCHS, write_epochs
from tidelog.storage.partition_metadata import sync_topic_id
from tidelog.storage.reading import BASE_OFFSET
from tidelog.storage.segment import Segment

if TYPE_CHECKING:
    from tidelog.storage.log import Log


async def flush_log(log: "Log") -> None:
    """Sync everything written so far; the recovery point then moves up to it. KafkaStorageError if that fails."""
    end_offset, truncations, renames = log.log_end_offset, log.truncations, log.renames
    try:
        await _sync_segments(log)
        await _write_leader_epochs(log)
    except FileNotFoundError as error:
        if log.renames == renames or log.is_deleted:
            raise log.failed(error) from error
        return  # a segment that was to be synced has been deleted or compacted meanwhile
    except OSError as error:
        raise log.failed(error) from error
    log.last_flush_ms = log.directory.context.clock.now_ms()
    if log.truncations == truncations:
        log.recovery_point = max(log.recovery_point, end_offset)


async def _sync_segments(log: "Log") -> None:
    unflushed = _unflushed_segments(log)
    for segment in unflushed:
        segment.write_indexes()
    if unflushed:
        directories, log.unsynced_directories = log.unsynced_directories, set()
        try:
            await log.directory.context.workers.run(_sync, log.directory.context.disk, unflushed, directories)
        except BaseException:
            log.unsynced_directories |= directories  # whoever asked is gone: the next flush does it
            raise


def _unflushed_segments(log: "Log") -> list[Segment]:
    first = max(bisect_right(log.segments, log.recovery_point, key=BASE_OFFSET) - 1, 0)
    has_unflushed_data = log.log_end_offset > log.recovery_point
    return [
        segment
        for number, segment in enumerate(log.segments)
        if segment.has_unsynced_indexes or (number >= first and has_unflushed_data)
    ]


def _sync(disk: Disk, segments: list[Segment], directories: set[str]) -> None:
    for segment in segments:
        segment.sync()
    for directory in directories:
        sync_topic_id(disk, directory)
        disk.sync_directory(directory)


async def _write_leader_epochs(log: "Log") -> None:
    """One after the other, each to its end, be whoever asked for it gone: of two at once the older might win."""
    while log.epochs_write is not None:
        await asyncio.wait([log.epochs_write])
    if log.leader_epochs.is_changed:
        log.leader_epochs.is_changed = False
        work = log.directory.context.workers.run(write_epochs_of, log)
        log.epochs_write = asyncio.get_running_loop().create_task(work)
        log.epochs_write.add_done_callback(partial(_on_epochs_written, log))
        await asyncio.shield(log.epochs_write)


def write_epochs_of(log: "Log", *, is_synced: bool = True) -> None:
    """Unless the log was deleted while this waited for a worker: the next one of its name may be in its place."""
    epochs = log.leader_epochs
    with log.epochs_lock:
        if not log.is_deleted:
            epochs.is_unwritten = False
            try:
                path = f"{log.path}/{LEADER_EPOCHS}"
                write_epochs(log.directory.context.disk, path, epochs.starts, is_synced=is_synced)
            except BaseException:
                epochs.is_unwritten = True
                raise


def _on_epochs_written(log: "Log", task: asyncio.Task[None]) -> None:
    log.epochs_write = None
    if task.cancelled() or task.exception() is not None:
        log.leader_epochs.is_changed = True

"""Flushes of one log in a worker, and its recovery point."""

import asyncio
import threading
from bisect import bisect_right
from typing import Protocol

from tidelog.runtime.disk import Disk
from tidelog.storage.checkpoints import EPOCH_JOURNAL, LEADER_EPOCHS, write_epoch_journal, write_epochs
from tidelog.storage.disk_errors import DiskGuard
from tidelog.storage.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.storage.local_log import LocalLog
from tidelog.storage.log_directory import LogDirectory
from tidelog.storage.partition_metadata import sync_topic_id
from tidelog.storage.reading import BASE_OFFSET
from tidelog.storage.segment import Segment


class FlushedLog(Protocol):
    """The part of a log that is flushed."""

    directory: LogDirectory
    local: LocalLog
    leader_epochs: LeaderEpochs
    log_end_offset: int
    is_deleted: bool
    guard: DiskGuard


class LogFlusher:
    """Owns the recovery point: all records before it are on disk."""

    __slots__ = (
        "_begun",
        "_completed",
        "_epochs_write",
        "_is_flushing",
        "_log",
        "_synced_epochs",
        "_waiters",
        "epochs_lock",
        "last_flush_ms",
        "recovery_point",
        "truncations",
        "unsynced_directories",
    )

    def __init__(self, log: FlushedLog, recovery_point: int, synced_epochs: tuple[EpochEntry, ...]) -> None:
        self._log = log
        self.recovery_point = recovery_point
        self.last_flush_ms = log.directory.context.monotonic_ms()
        self.unsynced_directories = {log.local.path}
        """Directories with changed names, to be synced.

        A synced file survives only if its directory entry does, and a removed one could come back.
        """
        self.truncations = 0
        self._is_flushing = False
        self._begun = self._completed = 0
        """Numbers of the flushes that began and succeeded last."""
        self._waiters: list[asyncio.Future[None]] = []
        """Of those who wait for the end of the flush in progress."""
        self._epochs_write: asyncio.Task[None] | None = None
        """The write of the leader epoch checkpoint in progress."""
        self._synced_epochs = synced_epochs
        """Epochs in that checkpoint. Later ones are in the journal."""
        self.epochs_lock = threading.Lock()
        """Guards both files: a worker writes the checkpoint, and the event loop the journal."""

    def on_name_changed(self, directory: str) -> None:
        """A file or directory was created, renamed or removed in `directory`."""
        self.unsynced_directories.add(directory)

    def on_directory_renamed(self, old: str, new: str) -> None:
        """The next flush also syncs the parent: records must not count as flushed in a directory that a power cut
        could rename back."""
        if old in self.unsynced_directories:
            self.unsynced_directories.remove(old)
            self.unsynced_directories.add(new)
        self.unsynced_directories.add(self._log.directory.path)

    def on_truncated(self, offset: int) -> None:
        """Lower the recovery point: records appended after `offset` are not the ones that were flushed."""
        self.truncations += 1
        self.recovery_point = min(self.recovery_point, offset)

    async def flush(self) -> None:
        """Sync all appended records, then advance the recovery point. Raises KafkaStorageError.

        One flush at a time: who comes during a flush shares the next one with all others who wait. Thousands of
        requests that each wait for the disk would otherwise take all workers.
        """
        number = self._begun + 1  # a flush that begins later has all records that are there now
        while self._is_flushing:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(ended)
            await ended
            if self._completed >= number:
                return
        self._begun = number = self._begun + 1
        self._is_flushing = True
        try:
            await self._flush_once()
            self._completed = number
        finally:
            self._is_flushing = False
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def _flush_once(self) -> None:
        log = self._log
        end_offset, truncations, renames = log.log_end_offset, self.truncations, log.local.renames
        with log.guard:
            try:
                await self._sync_segments()
                await self._write_leader_epochs()
            except FileNotFoundError:
                if log.local.renames == renames or log.is_deleted:
                    raise
                return  # the segment was deleted or compacted meanwhile
        self.last_flush_ms = log.directory.context.monotonic_ms()
        if self.truncations == truncations:
            self.recovery_point = max(self.recovery_point, end_offset)

    async def _sync_segments(self) -> None:
        unflushed = self._unflushed_segments()
        for segment in unflushed:
            segment.write_indexes()
        if unflushed:
            context = self._log.directory.context
            directories, self.unsynced_directories = self.unsynced_directories, set()
            try:
                await context.workers.run(_sync, context.disk, unflushed, directories)
            except BaseException:
                self.unsynced_directories |= directories  # the flush failed or was cancelled: the next flush retries
                raise

    def _unflushed_segments(self) -> list[Segment]:
        segments = self._log.local.segments
        first = max(bisect_right(segments, self.recovery_point, key=BASE_OFFSET) - 1, 0)
        has_unflushed_data = self._log.log_end_offset > self.recovery_point
        return [
            segment
            for number, segment in enumerate(segments)
            if segment.has_unsynced_changes or (number >= first and has_unflushed_data)
        ]

    async def _write_leader_epochs(self) -> None:
        """One write at a time, never cancelled: if two ran at once, the older could overwrite the newer."""
        while self._epochs_write is not None:
            await asyncio.wait([self._epochs_write])
        epochs = self._log.leader_epochs
        if epochs.is_unsynced:
            epochs.is_unsynced = False
            work = self._log.directory.context.workers.run(self.write_epochs)
            self._epochs_write = asyncio.get_running_loop().create_task(work)
            self._epochs_write.add_done_callback(self._on_epochs_written)
            await asyncio.shield(self._epochs_write)

    def write_epochs(self) -> None:
        """Write the checkpoint, synced, and remove the journal. Does nothing if the log was deleted meanwhile: a new
        log with the same name may have its path."""
        log, epochs, disk = self._log, self._log.leader_epochs, self._log.directory.context.disk
        with self.epochs_lock:
            if not log.is_deleted:
                epochs.is_unwritten = False
                starts = epochs.starts
                try:
                    write_epochs(disk, f"{log.local.path}/{LEADER_EPOCHS}", starts)
                except BaseException:
                    epochs.is_unwritten = True
                    raise
                self._synced_epochs = starts
                disk.remove(f"{log.local.path}/{EPOCH_JOURNAL}")

    def write_epoch_journal(self) -> None:
        """Before the first record of an epoch, without a sync. The checkpoint stays as it was synced."""
        log, epochs = self._log, self._log.leader_epochs
        with self.epochs_lock:
            if epochs.is_unwritten and not log.is_deleted:
                path = f"{log.local.path}/{EPOCH_JOURNAL}"
                write_epoch_journal(log.directory.context.disk, path, self._synced_epochs, epochs.starts)
                epochs.is_unwritten = False

    def _on_epochs_written(self, task: asyncio.Task[None]) -> None:
        self._epochs_write = None
        if task.cancelled() or task.exception() is not None:
            self._log.leader_epochs.is_unsynced = True


def _sync(disk: Disk, segments: list[Segment], directories: set[str]) -> None:
    for segment in segments:
        segment.sync()
    for directory in directories:
        sync_topic_id(disk, directory)
        disk.sync_directory(directory)

"""Future logs: copies in another log dir that replace the current logs when they have caught up (R30, KIP-113).

A future log holds nothing that the current one lacks: its records are copied from there, and a truncation of the
current log truncates it in the same step. It can therefore be dropped at any time.
"""

import logging
from collections.abc import Callable

from tidelog.errors import InvalidTopic, KafkaStorageError
from tidelog.storage.checkpointing import CheckpointWriter
from tidelog.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from tidelog.storage.cleaner import Cleaner
from tidelog.storage.deletions import Deletions
from tidelog.storage.loader import create_log
from tidelog.storage.log import Log
from tidelog.storage.log_directories import LogDirectories
from tidelog.storage.log_directory import LogDirectory, StorageContext
from tidelog.storage.partition_names import deletion_name, future_name, partition_name, stray_name
from tidelog.storage.replaced_logs import read_replaced, remove_marker, write_replaced
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

SWAPPED_OFFSETS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS)
"""Checkpoints that must have the future log before it becomes the current one."""


class FutureLogs:
    """The future logs of a broker, at most one for each partition. Call every method on the event loop."""

    def __init__(
        self,
        context: StorageContext,
        log_dirs: LogDirectories,
        current: dict[TopicPartition, Log],
        checkpoints: CheckpointWriter,
        deletions: Deletions,
        cleaner: Cleaner,
        stray_paths: list[str],
    ) -> None:
        self._context = context
        self._log_dirs = log_dirs
        self._current = current
        self._checkpoints = checkpoints
        self._deletions = deletions
        self._cleaner = cleaner
        self._stray_paths = stray_paths
        self.logs: dict[TopicPartition, Log] = {}
        self.on_roll: Callable[[Log], None] | None = None
        self.finishing: set[TopicPartition] = set()
        """Partitions whose replaced log is not renamed yet."""
        log_dirs.on_offline.append(lambda directory, _: self._forget_in(directory))

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def adopt(self, log: Log) -> str | None:
        """Take up a future log that an earlier run left. Returns the path to delete if it is of no use."""
        known, current = self.logs.get(log.topic_partition), self._current.get(log.topic_partition)
        if known is not None:
            logger.info("removing second future log partition=%s path=%s", log.topic_partition, log.path)
            log.mark_deleted()
            return log.path
        self._add(log)
        if current is None:
            logger.warning(
                "kept future log without its current log partition=%s path=%s", log.topic_partition, log.path
            )
        elif None not in (log.topic_id, current.topic_id) and log.topic_id != current.topic_id:
            self.set_aside(log.topic_partition)
        return None

    def _add(self, log: Log) -> None:
        self.logs[log.topic_partition] = log
        log.directory.logs[log.topic_partition] = log
        log.on_roll = self.on_roll
        self._cleaner.paused.add(log.topic_partition)
        current = self._current.get(log.topic_partition)
        if current is not None:
            self.attach(current)

    def attach(self, current: Log) -> None:
        """Truncations of this log reach the future log. A log that was created again has to be attached again."""
        if current.topic_partition in self.logs:
            current.on_truncated = lambda offset: self._on_truncated(current.topic_partition, offset)

    def create(self, current: Log, directory: LogDirectory) -> Log:
        """A new, empty future log. On any error nothing has changed, except that the directory may be offline."""
        topic_partition = current.topic_partition
        assert topic_partition not in self.logs, "one future log for each partition"
        name = future_name(topic_partition, self._context.randomness.bytes(16).hex())
        if name is None:
            raise InvalidTopic(f"the name of topic {topic_partition.topic} is too long for a move between log dirs")
        try:
            directory.check_present()
            directory.forget_checkpoints(topic_partition)
            log = create_log(directory, directory.file(name), topic_partition, current.topic_id, current.settings)
        except OSError as error:
            raise directory.fail(error) from error
        self._add(log)
        return log

    # ---- end without a swap

    def remove(self, topic_partition: TopicPartition) -> None:
        """Drop the future log: the move was cancelled, or the partition deleted."""
        log = self.logs.get(topic_partition)
        if log is not None:
            path = self._rename(log, deletion_name(topic_partition, self._context.randomness.bytes(16).hex()))
            if path is not None:
                self._deletions.schedule(log.directory, path)

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """Keep a future log that does not belong to the current log, for an operator (R44)."""
        log = self.logs.get(topic_partition)
        if log is not None:
            path = self._rename(log, stray_name(topic_partition, self._context.randomness.bytes(16).hex()))
            if path is not None:
                self._stray_paths.append(path)
                logger.warning("set aside future log of an earlier log partition=%s path=%s", topic_partition, path)

    def _rename(self, log: Log, name: str) -> str | None:
        """Rename the directory and forget the log. Returns the new path; None if the disk is offline."""
        path = log.directory.rename_log(log.path, name)
        self._forget(log)
        log.mark_deleted()
        return path

    def _forget(self, log: Log) -> None:
        del self.logs[log.topic_partition]
        log.directory.logs.pop(log.topic_partition, None)
        self._cleaner.paused.discard(log.topic_partition)
        current = self._current.get(log.topic_partition)
        if current is not None:
            current.on_truncated = None

    def _forget_in(self, directory: LogDirectory) -> None:
        """The log dir failed. Its future logs stay there: a restart takes them up again if the disk is back."""
        for log in [each for each in self.logs.values() if each.directory is directory]:
            logger.warning("move ended, log dir is offline partition=%s path=%s", log.topic_partition, log.path)
            self._forget(log)
            log.mark_deleted()

    def _on_truncated(self, topic_partition: TopicPartition, offset: int) -> None:
        log = self.logs.get(topic_partition)
        if log is None:
            return
        try:
            truncate_future(log, offset)
        except KafkaStorageError as error:
            # The current log is truncated and stays in use. A copy that has more would be swapped in: drop it.
            logger.warning("dropped future log that cannot be truncated partition=%s error=%s", topic_partition, error)
            self._drop(log)

    def _drop(self, log: Log) -> None:
        try:
            self.remove(log.topic_partition)
        except KafkaStorageError:
            if self.logs.get(log.topic_partition) is log:  # a shortage: forget it, and reconcile at the next start
                self._forget(log)
                log.mark_deleted()

    # ---- swap

    async def prepare_swap(self, log: Log) -> bool:
        """Make durable what the swap needs: records, epochs, producers, checkpoints, marker. Whether it is.

        Raises KafkaStorageError. More records may follow before the swap; they are as durable as in the current log.
        """
        current = self._current[log.topic_partition]
        await log.flush()
        if log.is_deleted or current.is_deleted:
            return False
        with current.guard:
            replaced = await self._context.workers.run(read_replaced, self._context.disk, current.path)
        source_id = current.directory.directory_id
        assert source_id is not None, "a log dir in use has an id"
        directory = log.directory
        if not await directory.run(write_replaced, self._context.disk, log.path, replaced | {source_id}):
            return False
        written = [await self._checkpoints.write_in(directory, name) for name in SWAPPED_OFFSETS]
        return await self._cleaner.checkpoints.write_in(directory) and all(written) and not log.is_deleted

    def swap(self, topic_partition: TopicPartition) -> Log:
        """Replace the current log by its future log in one step. Returns the replaced log, for `finish_swap`.

        The caller has copied everything and prepared the swap, and updates the partition. On KafkaStorageError nothing
        has changed, except that the target directory may be offline.
        """
        current, future = self._current[topic_partition], self.logs[topic_partition]
        assert future.log_end_offset == current.log_end_offset, "a future log is swapped in when it has caught up (R30)"
        assert future.log_start_offset == current.log_start_offset, "log starts are equal at the swap (R30)"
        path = future.directory.file(partition_name(topic_partition))
        with future.guard:
            future.snapshot_producers_of(current)
            future.rename_directory(path)
        # Only after the rename: two logs that may both be appended to must never share their states.
        future.take_over_state(current)
        del self.logs[topic_partition]
        self._cleaner.paused.discard(topic_partition)
        self._current[topic_partition] = future
        current.directory.logs.pop(topic_partition, None)
        current.on_replaced(future)
        self.finishing.add(topic_partition)
        return current

    async def finish_swap(self, replaced: Log) -> None:
        """Rename the directory of the replaced log, delete it later, and remove the marker of the new one.

        If a disk fails here, the marker stays: the next start that finds both logs keeps the new one.
        """
        log, topic_partition = replaced.replacement, replaced.topic_partition
        assert log is not None, "the log was replaced"
        try:
            # Before the old log loses its name: a power cut must not leave the partition without a log.
            if not await self._sync_directory(log.directory) or not replaced.directory.is_online:
                return
            name = deletion_name(topic_partition, self._context.randomness.bytes(16).hex())
            with replaced.guard:
                replaced.rename_directory(replaced.directory.file(name))
            self._deletions.schedule(replaced.directory, replaced.path)
            is_synced = await self._sync_directory(replaced.directory)
            replaced.release_resources()
            if is_synced and not log.is_deleted and len(self._log_dirs.online) == len(self._log_dirs.all):
                await log.directory.run(remove_marker, self._context.disk, log.path)
        except KafkaStorageError as error:
            logger.warning("replaced log kept until the next start path=%s error=%s", replaced.path, error)
        finally:
            self.finishing.discard(topic_partition)

    async def _sync_directory(self, directory: LogDirectory) -> bool:
        return await directory.run(self._context.disk.sync_directory, directory.path)


def truncate_future(log: Log, offset: int) -> None:
    """Truncate a future log to the end of the current one, or start over there if that is before its start."""
    if offset < log.log_start_offset:
        log.truncate_fully_and_start_at(offset)
    else:
        log.truncate_to(offset)

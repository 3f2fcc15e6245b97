"""Log manager: startup and shutdown of all logs of a broker, and background jobs (retention, flush, checkpoints)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Never, ParamSpec

from tidelog.config.broker import BrokerSettings
from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaStorageError
from tidelog.runtime.clock import Clock
from tidelog.runtime.disk import DirectoryEntry, Disk
from tidelog.runtime.randomness import Randomness, SystemRandomness
from tidelog.runtime.workers import Workers
from tidelog.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from tidelog.storage.cleaner import Cleaner
from tidelog.storage.descriptor_reclaiming_disk import DescriptorReclaimingDisk
from tidelog.storage.directory_loader import LoadedDirectory, check_for_duplicates, load_directory
from tidelog.storage.loader import create_log
from tidelog.storage.log import Log
from tidelog.storage.log_directory import (
    CHECKPOINTED_OFFSETS,
    NO_BROKER_EPOCH,
    LogDirectory,
    StorageContext,
    check_different_ids,
    check_one_cluster,
    check_one_is_online,
)
from tidelog.storage.partition_names import deletion_name, partition_name, stray_name
from tidelog.storage.retention import load_timestamps
from tidelog.storage.segment import LOG_SUFFIX
from tidelog.storage.segment_cache import SegmentCache
from tidelog.types import TopicPartition, Uuid, uuid_text

logger = logging.getLogger(__name__)

P = ParamSpec("P")

OfflineCallback = Callable[[LogDirectory, AbstractSet[TopicPartition]], None]

DELETION_INTERVAL_MS = 5_000

FLUSH_AGAIN_S = 1.0
"""Delay after a flush that failed for lack of descriptors."""

CLOSED_TOGETHER = 64
"""Logs flushed in parallel at shutdown: simultaneous syncs share disk writes."""
MOST_OPEN_FILES = 20_000
"""Upper bound of cached open files. Half of the process limit is left for connections."""

SHORTEST_SLEEP_MS = 10
"""Lower bound for settings that allow an interval of 0, which would occupy the event loop."""

LONGEST_SLEEP_MS = 24 * 60 * 60 * 1000
"""Upper bound for intervals that mean "never" and exceed what a timer can hold. A daily run does no harm."""


class _PendingDirectoryDeletion(NamedTuple):
    due_ms: int
    directory: LogDirectory
    path: str


class LogManager:
    """The logs in all log dirs. One object per broker; call every method on the event loop."""

    def __init__(self, settings: BrokerSettings, context: StorageContext, directories: list[LogDirectory]) -> None:
        self.settings = settings
        self.directories = directories
        self.on_directory_offline: list[OfflineCallback] = []
        self._context = context
        self._logs: dict[TopicPartition, Log] = {}
        self.cleaner = Cleaner(context, directories, self._logs, settings.log_cleaner_dedupe_buffer_size)
        self._pending_deletions: list[_PendingDirectoryDeletion] = []
        self.stray_paths: list[str] = []
        """Stray logs of this or an earlier run. Only an operator removes them."""
        self._rolled: dict[Log, None] = {}
        self._has_rolled = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        for directory in directories:
            directory.on_failure = self._on_directory_failure

    def reconfigure(self, settings: BrokerSettings) -> None:
        """Settings that may change while the broker runs act from here on; intervals of jobs may not."""
        self.settings = settings
        self.cleaner.dedupe_buffer_bytes = settings.log_cleaner_dedupe_buffer_size
        self.cleaner.backoff_ms = settings.log_cleaner_backoff_ms

    # ---- startup

    @classmethod
    async def open(
        cls,
        settings: BrokerSettings,
        topic_settings: Callable[[str], TopicSettings],
        disk: Disk,
        clock: Clock,
        workers: Workers,
        cluster_id: str | None,
        broker_id: int,
        *,
        randomness: Randomness | None = None,
        cache: SegmentCache | None = None,
    ) -> "LogManager":
        """Lock, check and load all log dirs. Raises StorageSetupError for a foreign one before anything has changed.

        An unreadable log dir is offline from the start; at least one must work. A shortage of descriptors is an
        error: logs that were not opened would look like missing logs.
        """
        cache = cache or SegmentCache(open_files=min(disk.open_files_limit() // 2, MOST_OPEN_FILES))
        thrifty = DescriptorReclaimingDisk(disk, cache)
        context = StorageContext(thrifty, clock, workers, randomness or SystemRandomness(), cache)
        directories = [LogDirectory(path, context) for path in settings.log_directories]
        try:
            for directory in directories:
                _guarded(directory, directory.acquire)
            for directory in directories:
                _guarded(directory, directory.check_identity, cluster_id, broker_id)
            check_one_cluster(directories)
            leftovers = await workers.run(check_for_duplicates, directories) if len(directories) > 1 else []
            check_different_ids(directories)
            check_one_is_online(directories)
            for directory in directories:
                _guarded(directory, directory.write_identity, cluster_id, broker_id)
            for leftover in leftovers:
                _guarded(leftover.directory, leftover.rename)
            loaded = [
                await workers.run(load_directory, directory, topic_settings)
                for directory in directories
                if directory.is_online
            ]
            manager = cls(settings, context, directories)
            manager._add_loaded(loaded)
            await manager.cleaner.load()
            check_one_is_online(directories)
        except BaseException:
            for directory in directories:
                directory.release()
            raise
        return manager

    def _add_loaded(self, loaded: Iterable[LoadedDirectory]) -> None:
        for directory in loaded:
            for log in directory.logs:
                self._add_log(log)
            self.stray_paths += directory.stray_paths
            for path in directory.paths_to_delete:
                self._schedule_deletion(directory.directory, path)

    def _schedule_deletion(self, directory: LogDirectory, path: str) -> None:
        """Delete the directory of a deleted partition after a delay, in which an operator can still save it."""
        delay_ms = self.settings.log_segment_delete_delay_ms
        self._pending_deletions.append(
            _PendingDirectoryDeletion(self._context.clock.now_ms() + delay_ms, directory, path)
        )
        logger.info("scheduled deletion of log path=%s after_ms=%d", path, delay_ms)

    def _add_log(self, log: Log) -> None:
        self._logs[log.topic_partition] = log
        log.directory.logs[log.topic_partition] = log
        log.on_roll = self._on_roll

    @property
    def cluster_id(self) -> str | None:
        """The cluster id in meta.properties; None if no log dir has one."""
        return next((directory.cluster_id for directory in self.directories if directory.cluster_id), None)

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch of the last clean shutdown. As in Kafka: only if all log dirs are present and agree.

        It includes log dirs that were removed from log.dirs since: their records are lost on this broker.
        """
        epochs = {each.previous_broker_epoch if each.is_online else NO_BROKER_EPOCH for each in self.directories}
        had = frozenset[str]().union(*(each.directories_before for each in self.directories))
        return epochs.pop() if len(epochs) == 1 and had.issubset(self.directory_ids) else NO_BROKER_EPOCH

    @property
    def directory_ids(self) -> tuple[str, ...]:
        """Ids of the online log dirs."""
        return tuple(each.directory_id for each in self.directories if each.is_online and each.directory_id)

    @property
    def _companion_ids(self) -> list[str]:
        """Ids of all log dirs, also of offline ones. Empty for a single one, which contains the marker itself."""
        return [each.directory_id for each in self.directories if each.directory_id] if self.directories[1:] else []

    # ---- logs

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        return self._logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def create(self, topic_partition: TopicPartition, topic_id: Uuid | None, settings: TopicSettings) -> Log:
        """The existing log, or a new one in the log dir with the fewest partitions.

        If an earlier creation failed, uses the log dir where it began, so that no partition is in two log dirs.
        """
        known = self._logs.get(topic_partition)
        if known is not None:
            return known
        online = [directory for directory in self.directories if directory.is_online]
        if not online:
            raise KafkaStorageError("all log dirs are offline")
        directory = self._place_for(partition_name(topic_partition), online)
        path = directory.file(partition_name(topic_partition))
        try:
            self._keep_what_stands_in(path, directory, topic_partition)
            directory.forget_checkpoints(topic_partition)
            log = create_log(directory, path, topic_partition, topic_id, settings)
        except OSError as error:
            raise directory.fail(error) from error
        self._add_log(log)
        return log

    def _place_for(self, name: str, online: list[LogDirectory]) -> LogDirectory:
        """The log dir where a failed creation began: a broker does not start with a partition in two log dirs."""
        for directory in online:
            try:
                if self._context.disk.exists(directory.file(name)):
                    return directory
            except OSError as error:
                raise directory.fail(error) from error
        return min(online, key=lambda candidate: len(candidate.logs))

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete the log of a deleted topic: rename its directory now, delete it after log.segment.delete.delay.ms."""
        log = self._logs.get(topic_partition)
        name = deletion_name(topic_partition, self._context.randomness.bytes(16).hex())
        if log is not None and (path := self._rename_away(log, name)) is not None:
            self._schedule_deletion(log.directory, path)

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """Keep a log of an earlier topic with the same name under a stray name, for an operator (R44)."""
        log = self._logs.get(topic_partition)
        if log is None:
            return
        owner = self._context.randomness.bytes(16).hex() if log.topic_id is None else uuid_text(log.topic_id)
        name = stray_name(topic_partition, owner)
        if self._context.disk.exists(log.directory.file(name)):
            name = stray_name(topic_partition, f"{owner}-{self._context.randomness.bytes(4).hex()}")
        path = self._rename_away(log, name)
        if path is not None:
            self.stray_paths.append(path)
            logger.warning(
                "set aside log of an earlier topic with this name; it is kept until you remove it"
                " partition=%s path=%s records_from=%d records_to=%d",
                topic_partition,
                path,
                log.log_start_offset,
                log.log_end_offset,
            )

    def _rename_away(self, log: Log, name: str) -> str | None:
        """Rename the directory and forget the log. Returns the new path; None if the disk is offline."""
        directory, path = log.directory, log.directory.file(name)
        is_renamed = directory.is_online
        if is_renamed:
            try:
                self._context.disk.rename(log.path, path)
            except OSError as error:
                raise directory.fail(error) from error
        # Only after the rename: otherwise a forgotten directory would block the next log with this name.
        del self._logs[log.topic_partition]
        directory.logs.pop(log.topic_partition, None)
        self._rolled.pop(log, None)
        log.mark_deleted()
        return path if is_renamed else None

    def _keep_what_stands_in(self, path: str, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """Set aside a directory that appeared at the path of a new log while the broker runs (R44)."""
        disk = self._context.disk
        if not disk.exists(path) or not any(map(_holds_records, disk.list_directory(path))):
            return
        kept = directory.file(stray_name(topic_partition, self._context.randomness.bytes(16).hex()))
        disk.rename(path, kept)
        self.stray_paths.append(kept)
        logger.warning("set aside log at the path of a new one; it is kept until you remove it path=%s", kept)

    def _online_logs(self) -> list[Log]:
        return [log for log in self._logs.values() if log.directory.is_online]

    # ---- failures

    def _on_directory_failure(self, directory: LogDirectory) -> None:
        """May be called in a worker; the callbacks run on the event loop."""
        self._loop.call_soon_threadsafe(self._notify_offline, directory)

    def _notify_offline(self, directory: LogDirectory) -> None:
        partitions = dict.fromkeys(directory.logs).keys()  # sorted, so that the order does not depend on string hashes
        for callback in self.on_directory_offline:
            callback(directory, partitions)

    @property
    def are_all_directories_offline(self) -> bool:
        return not any(directory.is_online for directory in self.directories)

    # ---- background jobs

    async def run(self) -> Never:
        """Run retention, flushes, checkpoints and deletions at their intervals until cancelled."""
        settings = self.settings
        jobs: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.checkpoint_high_watermarks, settings.replica_high_watermark_checkpoint_interval_ms),
            (self.checkpoint_recovery_points, settings.log_flush_offset_checkpoint_interval_ms),
            (self.checkpoint_log_start_offsets, settings.log_flush_start_offset_checkpoint_interval_ms),
            (self.flush_due_logs, settings.log_flush_scheduler_interval_ms),
            (self.enforce_retention, settings.log_retention_check_interval_ms),
            (self.expire_producers, settings.producer_id_expiration_check_interval_ms),
            (self.delete_pending_files, DELETION_INTERVAL_MS),
        ]
        async with asyncio.TaskGroup() as group:
            for job, interval_ms in jobs:
                group.create_task(_repeat(job, interval_ms))
            group.create_task(self._flush_rolled_logs())
            if settings.log_cleaner_enable:
                group.create_task(self.cleaner.run(settings.log_cleaner_backoff_ms))
        raise AssertionError("the background jobs end only by cancellation")

    def _on_roll(self, log: Log) -> None:
        self._rolled[log] = None
        self._has_rolled.set()

    async def _flush_rolled_logs(self) -> Never:
        while True:
            await self._has_rolled.wait()
            self._has_rolled.clear()
            while self._rolled:
                log, _ = self._rolled.popitem()
                if not await _flush_quietly(log) and log.directory.is_online and not log.is_deleted:
                    self._rolled[log] = None
                    await asyncio.sleep(FLUSH_AGAIN_S)

    async def flush_due_logs(self) -> None:
        """Flush logs whose flush.ms or flush.messages is reached."""
        now_ms = self._context.clock.now_ms()
        for log in self._online_logs():
            is_due = now_ms - log.flusher.last_flush_ms >= log.settings.flush_ms
            if log.log_end_offset > log.recovery_point and (is_due or log.is_flush_due):
                await _flush_quietly(log)

    async def enforce_retention(self) -> None:
        now_ms = self._context.clock.now_ms()
        for log in self._online_logs():
            if not log.directory.is_online or log.is_deleted:
                continue
            try:
                await self._context.workers.run(load_timestamps, log.segments, log.settings, now_ms)
                deletable = log.delete_old_segments(now_ms)
            except (KafkaStorageError, FileNotFoundError):
                continue  # its directory went offline, which was logged; or the log was deleted meanwhile
            except OSError as error:
                log.directory.fail(error)
                continue
            if deletable:
                logger.info(
                    "deleted old segments partition=%s segments=%d log_start=%d",
                    log.topic_partition,
                    len(deletable),
                    log.log_start_offset,
                )

    async def expire_producers(self) -> None:
        now_ms = self._context.clock.now_ms()
        for log in self._online_logs():
            log.producers.remove_expired(now_ms, self.settings.producer_id_expiration_ms)

    async def delete_pending_files(self) -> None:
        """Delete files of deleted segments and partitions after their delay."""
        now_ms = self._context.clock.now_ms()
        for log in self._online_logs():
            due = log.local.pop_due_deletions(now_ms)
            if due:
                paths = [path for pending in due for path in pending.paths]
                if not await self._in_directory(log.directory, _remove_files, self._context.disk, paths):
                    log.local.put_back_deletions(due)
        due_directories = [deletable for deletable in self._pending_deletions if deletable.due_ms <= now_ms]
        self._pending_deletions = [deletable for deletable in self._pending_deletions if deletable.due_ms > now_ms]
        for deletable in due_directories:
            if not await self._in_directory(deletable.directory, self._context.disk.remove_tree, deletable.path):
                self._pending_deletions.append(deletable)

    # ---- checkpoints

    async def checkpoint_high_watermarks(self) -> None:
        await self._checkpoint(HIGH_WATERMARKS)

    async def checkpoint_recovery_points(self) -> None:
        await self._checkpoint(RECOVERY_POINTS)

    async def checkpoint_log_start_offsets(self) -> None:
        await self._checkpoint(LOG_START_OFFSETS)

    async def _checkpoint(self, name: str) -> None:
        for directory in self.directories:
            await self._checkpoint_in(directory, name)

    async def _checkpoint_in(self, directory: LogDirectory, name: str) -> bool:
        """Write the checkpoint if it changed. Whether the current one is on disk."""
        checkpoint = directory.collect_checkpoint(name)
        return directory.is_written(checkpoint) or await self._in_directory(
            directory, directory.write_checkpoint, *checkpoint
        )

    async def _in_directory(
        self, directory: LogDirectory, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs
    ) -> bool:
        """Run blocking work in a worker. An I/O error takes the directory offline, unless it is transient. Whether the
        work succeeded."""
        if not directory.is_online:
            return False
        try:
            await self._context.workers.run(work, *args, **kwargs)
        except OSError as error:
            directory.fail(error)
            return False
        return True

    # ---- shutdown

    async def close(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Flush all logs, write all checkpoints and, if both succeeded, the clean-shutdown marker (R6).

        `broker_epoch` is the epoch of the registration that ends. Without one the logs have not changed.
        """
        epoch = self.previous_broker_epoch if broker_epoch == NO_BROKER_EPOCH else broker_epoch
        logs = self._online_logs()
        if len(logs) > CLOSED_TOGETHER:
            # One sync of all files. The syncs that follow are then cheap, and they report errors.
            await self._context.workers.run(self._context.disk.sync_everything)
        unclosed = await _close_logs(logs)
        if unclosed:
            # Retry: it may have failed for lack of descriptors, and the other logs have released theirs.
            unclosed = await _close_logs(list(unclosed))
        for directory in self.directories:
            reasons = {log: reason for log, reason in unclosed.items() if log.directory is directory}
            await self._close_directory(directory, reasons, epoch)
            directory.release()

    async def _close_directory(
        self, directory: LogDirectory, unclosed: Mapping[Log, BaseException], broker_epoch: int
    ) -> None:
        is_written = [await self._checkpoint_in(directory, name) for name in CHECKPOINTED_OFFSETS]
        if not directory.is_online:
            return  # which was logged
        for log, reason in unclosed.items():
            logger.warning(
                "log not closed cleanly, next start will recover it partition=%s error=%s",
                log.topic_partition,
                reason,
            )
        if (
            not unclosed
            and all(is_written)
            and await self._in_directory(
                directory,
                directory.write_clean_shutdown_marker,
                broker_epoch,
                self._companion_ids,
            )
        ):
            logger.info("closed log dir path=%s partitions=%d", directory.path, len(directory.logs))
        else:
            logger.warning(
                "log dir not closed cleanly path=%s unclosed_logs=%d checkpoints_written=%s",
                directory.path,
                len(unclosed),
                all(is_written),
            )


async def _repeat(job: Callable[[], Awaitable[None]], interval_ms: int) -> Never:
    while True:
        await asyncio.sleep(max(SHORTEST_SLEEP_MS, min(interval_ms, LONGEST_SLEEP_MS)) / 1000)
        await job()


async def _flush_quietly(log: Log) -> bool:
    """Whether the flush succeeded. A failure is logged and may take the directory offline."""
    if log.is_deleted:
        return True
    try:
        await log.flush()
    except KafkaStorageError as error:
        logger.debug("flush failed partition=%s error=%s", log.topic_partition, error)
        return False
    return True


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


def _holds_records(entry: DirectoryEntry) -> bool:
    return entry.name.endswith(LOG_SUFFIX) and entry.size > 0


def _remove_files(disk: Disk, paths: list[str]) -> None:
    for path in paths:
        disk.remove(path)


def _guarded(directory: LogDirectory, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """A directory that fails at startup goes offline; the others are used (R5)."""
    if directory.is_online:
        try:
            step(*args, **kwargs)
        except OSError as error:
            directory.fail_while_opening(error)

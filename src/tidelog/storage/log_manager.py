"""Log manager: the logs of a broker by partition, opened at startup, created, deleted, set aside and closed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Never

from tidelog.config.broker import BrokerSettings
from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaStorageError
from tidelog.runtime.clock import Clock
from tidelog.runtime.disk import DirectoryEntry, Disk
from tidelog.runtime.randomness import Randomness, SystemRandomness
from tidelog.runtime.workers import Workers
from tidelog.storage.background_jobs import BackgroundJobs
from tidelog.storage.checkpointing import CheckpointWriter
from tidelog.storage.cleaner import Cleaner
from tidelog.storage.closing import close_directories
from tidelog.storage.deletions import Deletions
from tidelog.storage.descriptor_reclaiming_disk import DescriptorReclaimingDisk
from tidelog.storage.directory_loader import LoadedDirectory, check_for_duplicates, load_directory
from tidelog.storage.disk_errors import ResourceShortage
from tidelog.storage.future_logs import FutureLogs
from tidelog.storage.loader import create_log
from tidelog.storage.log import Log
from tidelog.storage.log_directories import LogDirectories, OfflineCallback
from tidelog.storage.log_directory import NO_BROKER_EPOCH, Identity, LogDirectory, StorageContext
from tidelog.storage.partition_names import deletion_name, partition_name, stray_name
from tidelog.storage.replaced_logs import ANY_DIRECTORY, remove_markers, write_replaced
from tidelog.storage.segment import LOG_SUFFIX
from tidelog.storage.segment_cache import SegmentCache
from tidelog.types import TopicPartition, Uuid, uuid_text

logger = logging.getLogger(__name__)

MAX_PREFERRED = 10_000
"""Log dirs that can be chosen for partitions before they are here."""

MAX_OPEN_FILES = 20_000
"""Upper bound of cached open files. Half of the process limit is left for connections."""


class LogManager:
    """Owns the logs in all log dirs. One object per broker; call every method on the event loop.

    Its parts: `log_dirs` (which work, which failed), `jobs` (what runs in the background), `checkpoints`, `deletions`
    and `cleaner`.
    """

    def __init__(self, settings: BrokerSettings, context: StorageContext, log_dirs: LogDirectories) -> None:
        self.settings = settings
        self.log_dirs = log_dirs
        self._context = context
        self._logs: dict[TopicPartition, Log] = {}
        self.stray_paths: list[str] = []
        """Stray logs of this or an earlier run. Only an operator removes them."""
        self.checkpoints = CheckpointWriter(log_dirs)
        self.deletions = Deletions(context, settings.log_segment_delete_delay_ms)
        self.cleaner = Cleaner(context, log_dirs.all, self._logs, settings.log_cleaner_dedupe_buffer_size)
        self.cleaner.throttle.bytes_per_second = settings.log_cleaner_io_max_bytes_per_second
        self.future = FutureLogs(
            context, log_dirs, self._logs, self.checkpoints, self.deletions, self.cleaner, self.stray_paths
        )
        self.jobs = BackgroundJobs(
            settings,
            context,
            self._online_logs,
            self._online_future_logs,
            self.checkpoints,
            self.deletions,
            self.cleaner,
        )
        self.future.on_roll = self.jobs.on_roll
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        """Log dirs that an operator chose for partitions that are not here yet."""
        log_dirs.report_failures()

    def reconfigure(self, settings: BrokerSettings) -> None:
        """Settings that may change while the broker runs act from here on; intervals of jobs may not."""
        self.settings = self.jobs.settings = settings
        self.deletions.delay_ms = settings.log_segment_delete_delay_ms
        self.cleaner.dedupe_buffer_bytes = settings.log_cleaner_dedupe_buffer_size
        self.cleaner.backoff_ms = settings.log_cleaner_backoff_ms
        self.cleaner.throttle.bytes_per_second = settings.log_cleaner_io_max_bytes_per_second

    # ---- startup

    @classmethod
    async def open(
        cls,
        settings: BrokerSettings,
        topic_settings: Callable[[str], TopicSettings],
        disk: Disk,
        clock: Clock,
        workers: Workers,
        identity: Identity,
        *,
        randomness: Randomness | None = None,
        cache: SegmentCache | None = None,
    ) -> "LogManager":
        """Lock, check and load all log dirs. Raises StorageSetupError for a foreign one before anything has changed.

        An unreadable log dir is offline from the start; at least one must work. A shortage of descriptors is an
        error: logs that were not opened would look like missing logs.
        """
        cache = cache or SegmentCache(open_files=min(disk.open_files_limit() // 2, MAX_OPEN_FILES))
        thrifty = DescriptorReclaimingDisk(disk, cache)
        context = StorageContext(thrifty, clock, workers, randomness or SystemRandomness(), cache)
        log_dirs = LogDirectories(settings.log_directories, context)
        try:
            log_dirs.acquire(identity)
            leftovers = await workers.run(check_for_duplicates, log_dirs.all) if len(log_dirs.all) > 1 else []
            log_dirs.check_usable()
            log_dirs.write_identity(identity)
            for leftover in leftovers:
                leftover.directory.guarded(leftover.rename)
            loaded = [
                await workers.run(load_directory, directory, topic_settings)
                for directory in log_dirs
                if directory.is_online
            ]
            manager = cls(settings, context, log_dirs)
            manager._add_loaded(loaded)
            await manager.cleaner.checkpoints.load()
            await manager._remove_markers()
            log_dirs.check_one_is_online()
        except BaseException:
            log_dirs.release()
            raise
        return manager

    def _add_loaded(self, loaded: Sequence[LoadedDirectory]) -> None:
        """Current logs first: each decides on its future log."""
        for directory in loaded:
            for log in directory.logs:
                self._add_log(log)
            self.stray_paths += directory.stray_paths
            for path in directory.paths_to_delete:
                self.deletions.schedule(directory.directory, path)
        for directory in loaded:
            for log in directory.future_logs:
                if (path_to_delete := self.future.adopt(log)) is not None:
                    self.deletions.schedule(directory.directory, path_to_delete)

    async def _remove_markers(self) -> None:
        """Replaced logs have been renamed. One in a log dir that is offline may still be there."""
        if len(self.directories) > 1 and len(self.log_dirs.online) == len(self.directories):
            for directory in self.directories:
                paths = [log.path for log in self._logs.values() if log.directory is directory]
                await directory.run(remove_markers, self._context.disk, paths)

    def _add_log(self, log: Log) -> None:
        self._logs[log.topic_partition] = log
        log.directory.logs[log.topic_partition] = log
        log.on_roll = self.jobs.on_roll

    # ---- log dirs

    @property
    def directories(self) -> list[LogDirectory]:
        return self.log_dirs.all

    @property
    def on_directory_offline(self) -> list[OfflineCallback]:
        return self.log_dirs.on_offline

    @property
    def are_all_directories_offline(self) -> bool:
        return not self.log_dirs.online

    @property
    def cluster_id(self) -> str | None:
        return self.log_dirs.cluster_id

    @property
    def previous_broker_epoch(self) -> int:
        return self.log_dirs.previous_broker_epoch

    @property
    def directory_ids(self) -> tuple[str, ...]:
        """Ids of the online log dirs."""
        return self.log_dirs.online_ids

    # ---- logs

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        return self._logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def _online_logs(self) -> list[Log]:
        return [log for log in self._logs.values() if log.directory.is_online]

    def _online_future_logs(self) -> list[Log]:
        return [log for log in self.future.logs.values() if log.directory.is_online]

    def prefer_directory(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Create the log in this log dir, if it is online when the controller assigns the partition."""
        if len(self._preferred) < MAX_PREFERRED:
            self._preferred[topic_partition] = directory

    def create(self, topic_partition: TopicPartition, topic_id: Uuid | None, settings: TopicSettings) -> Log:
        """The existing log, or a new one in the preferred log dir, else in the one with the fewest partitions."""
        known = self._logs.get(topic_partition)
        if known is not None:
            return known
        self.log_dirs.sync_renames()
        preferred = self._preferred.pop(topic_partition, None)
        directory = self.log_dirs.choose_for(partition_name(topic_partition), preferred)
        self.future.set_aside(topic_partition)
        path = directory.file(partition_name(topic_partition))
        try:
            self._keep_what_stands_in(path, directory, topic_partition)
            directory.check_present()
            directory.forget_checkpoints(topic_partition)
            log = create_log(directory, path, topic_partition, topic_id, settings)
            if len(self.log_dirs.online) < len(self.directories):
                offline = [each.directory_id or ANY_DIRECTORY for each in self.directories if not each.is_online]
                write_replaced(self._context.disk, path, offline)
        except OSError as error:
            raise directory.fail(error) from error
        self._add_log(log)
        return log

    def _keep_what_stands_in(self, path: str, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """Set aside a directory that appeared at the path of a new log while the broker runs (R44)."""
        disk = self._context.disk
        if not disk.exists(path) or not any(map(_holds_records, disk.list_directory(path))):
            return
        kept = directory.file(stray_name(topic_partition, self._context.randomness.bytes(16).hex()))
        disk.rename(path, kept)
        self.stray_paths.append(kept)
        logger.warning("set aside log at the path of a new one; it is kept until you remove it path=%s", kept)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete the log of a deleted topic: rename its directory now, delete it after log.segment.delete.delay.ms."""
        self._preferred.pop(topic_partition, None)
        self._remove_future(topic_partition)
        log = self._logs.get(topic_partition)
        name = deletion_name(topic_partition, self._context.randomness.bytes(16).hex())
        if log is not None and (path := self._rename_away(log, name)) is not None:
            self.deletions.schedule(log.directory, path)

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """Keep a log of an earlier topic with the same name under a stray name, for an operator (R44)."""
        log = self._logs.get(topic_partition)
        if log is None:
            return
        self._remove_future(topic_partition)
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

    def _remove_future(self, topic_partition: TopicPartition) -> None:
        try:
            self.future.remove(topic_partition)
        except ResourceShortage:
            raise
        except KafkaStorageError:
            pass  # its disk failed, which was logged and took only the future log with it

    def _rename_away(self, log: Log, name: str) -> str | None:
        """Rename the directory and forget the log. Returns the new path; None if the disk is offline."""
        directory = log.directory
        path = directory.rename_log(log.path, name)
        if path is not None:
            directory.has_unsynced_renames = True
        # Only after the rename: otherwise a forgotten directory would block the next log with this name.
        del self._logs[log.topic_partition]
        directory.logs.pop(log.topic_partition, None)
        self.jobs.forget(log)
        log.mark_deleted()
        return path

    # ---- background jobs and shutdown

    async def run(self) -> Never:
        """Run retention, flushes, checkpoints and deletions at their intervals until cancelled."""
        await self.jobs.run()

    async def close(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Flush all logs, write all checkpoints and, if both succeeded, the clean-shutdown marker (R6).

        `broker_epoch` is the epoch of the registration that ends. Without one the logs have not changed.
        """
        epoch = self.previous_broker_epoch if broker_epoch == NO_BROKER_EPOCH else broker_epoch
        logs = [*self._online_logs(), *self._online_future_logs()]
        await close_directories(self._context, self.log_dirs, logs, self.checkpoints, epoch)


def _holds_records(entry: DirectoryEntry) -> bool:
    return entry.name.endswith(LOG_SUFFIX) and entry.size > 0

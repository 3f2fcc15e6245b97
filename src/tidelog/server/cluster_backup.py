"""cluster.backup: copy of metadata that only the coordination store has, kept in every log directory (R44).

A takeover reads it after the store was lost.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from tidelog.cluster.image import ClusterImage
from tidelog.cluster.inventory import Backup, backup_content, backup_of
from tidelog.cluster.znodes import DECODING_ERRORS
from tidelog.runtime.clock import Clock
from tidelog.runtime.disk import Disk
from tidelog.runtime.workers import Workers
from tidelog.server.cluster_state import ClusterState
from tidelog.server.store_marks import StoreMark
from tidelog.storage.disk_errors import is_transient
from tidelog.storage.log_directory import LogDirectory, StorageSetupError, shortage_at_start
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import StoreUnavailable
from tidelog.types import NO_LEADER_EPOCH, BrokerId

logger = logging.getLogger(__name__)

FILE_NAME = "cluster.backup"
PartitionVersion: TypeAlias = tuple[str, int, int, int]
"""Topic, partition, leader epoch, version of the partition state in the store."""
MIN_INTERVAL_S = 1.0
"""Minimum time between two writes."""


class ClusterBackup:
    """Written when its content changes. A crash loses at most the changes of the last moment."""

    def __init__(
        self,
        broker_id: BrokerId,
        logs: LogManager,
        cluster: ClusterState,
        disk: Disk,
        clock: Clock,
        workers: Workers,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._cluster = cluster
        self._disk = disk
        self._clock = clock
        self._workers = workers
        self._is_stale = asyncio.Event()
        self._writing = asyncio.Lock()
        self._recorded_states: list[PartitionVersion] = []
        self.controller_epoch: Callable[[], int] = lambda: 0
        self.is_store_in_use: Callable[[], bool] = lambda: True
        self.increment_change_counter: Callable[[], Awaitable[StoreMark | None]] = no_change_counter
        """Increments this broker's counter in the store; returns None while the store cannot be used."""
        self.security_nodes: Callable[[], Mapping[str, str]] = dict
        """Users, client quotas and ACLs: content by path in the store."""
        found = [(directory, self._read(directory)) for directory in logs.directories if directory.is_online]
        recorded = [backup for _, backup in found if backup is not None]
        self.latest = max(recorded, key=lambda backup: (backup.controller_epoch, backup.written_ms), default=None)
        self.directories_without_backup = [
            directory.path for directory, backup in found if backup is None and self._is_new(directory)
        ]
        """New log directories beside old ones, until they have a backup too.

        One of them may replace a directory whose logs are now missing.
        """
        cluster.on_image.append(lambda _: self.mark_stale())

    def mark_stale(self) -> None:
        self._is_stale.set()

    def _is_new(self, directory: LogDirectory) -> bool:
        """Whether no backup names the directory. If one does, the broker died before it wrote the backup there too."""
        return self.latest is not None and directory.directory_id not in self.latest.directory_ids

    def _read(self, directory: LogDirectory) -> Backup | None:
        """Raises StorageSetupError for lack of descriptors: a backup that is there must not be taken for missing."""
        path = directory.file(FILE_NAME)
        try:
            return backup_of(json.loads(self._disk.read_file(path)))
        except FileNotFoundError:
            return None
        except OSError as error:
            if is_transient(error):
                raise StorageSetupError(shortage_at_start(directory.path, error)) from error
            directory.fail(error)
            return None
        except DECODING_ERRORS as error:
            logger.warning("ignored damaged file, rewriting it path=%s error=%r", path, error)
            return None

    async def run(self) -> None:
        while True:
            await self._is_stale.wait()
            await self.flush()
            await asyncio.sleep(MIN_INTERVAL_S)

    async def flush(self) -> None:
        """Write the backup if its content changed."""
        # Take the lock before the checks, so that a stop waits for a write in progress: `run` is cancelled after it.
        async with self._writing:
            if not self._is_stale.is_set() or not self.is_store_in_use():
                return
            self._is_stale.clear()
            backup = self._collect()
            if backup is not None and not await self._record_change(backup):
                self._is_stale.set()

    async def _record_change(self, backup: Backup) -> bool:
        """Count changed partition states and configs in the store first, then write.

        Copies of the store that were made before have a lower count.
        """
        states = _states_held(self._cluster.image, self._broker_id)
        has_new_configs = self.latest is None or _configs(backup) != _configs(self.latest)
        if states == self._recorded_states and not has_new_configs:
            return await self._write_all(backup)
        mark = await self.increment_change_counter()
        if mark is not None:
            backup = backup._replace(store_id=mark.store_id, store_changes=mark.changes)
        if not await self._write_all(backup) or mark is None:
            return False
        self._recorded_states = states
        return True

    async def persist_last_producer_id(self, last_producer_id: int) -> None:
        """Called before an id is handed out, so that no id is handed out twice, even after the store was lost."""
        async with self._writing:
            recorded = self.latest or Backup()
            backup = recorded._replace(last_producer_id=max(recorded.last_producer_id, last_producer_id))
            if not await self._write_all(backup):
                raise StoreUnavailable(reason=f"cannot write {FILE_NAME}")

    def _collect(self) -> Backup | None:
        """The backup to write; None if there is nothing to back up, or the image may be incomplete.

        A new controller sends several UpdateMetadata requests, the first of them without topics.
        """
        image = self._cluster.image
        if not image.topics and (self._logs.logs or self.latest is None):
            return None
        recorded = self.latest or Backup()
        return Backup(
            members=_members(image),
            controller_epoch=max(recorded.controller_epoch, self.controller_epoch()),
            leader_epoch=max(recorded.leader_epoch, _highest_epoch(image)),
            last_producer_id=recorded.last_producer_id,
            topic_configs={topic.name: dict(topic.configs) for topic in image.topics.values()},
            store_id=recorded.store_id,
            store_changes=recorded.store_changes,
            directory_ids=self._directory_ids(recorded),
            broker_configs={name: dict(found) for name, found in image.broker_configs.items() if found},
            group_configs={name: dict(found) for name, found in image.group_configs.items()},
            security_nodes=self.security_nodes(),
        )

    def _directory_ids(self, recorded: Backup) -> frozenset[str]:
        """Ids of the log directories. The id of an offline directory may be unreadable: recorded ids are kept."""
        directories = self._logs.directories
        found = frozenset(each.directory_id for each in directories if each.directory_id)
        return found if all(each.is_online for each in directories) else found | recorded.directory_ids

    @property
    def missing_directories(self) -> list[str]:
        """Ids of log directories that are in the last backup and no longer configured."""
        recorded = self.latest or Backup()
        return sorted(recorded.directory_ids - self._directory_ids(recorded))

    async def _write_all(self, backup: Backup) -> bool:
        """Write to all online directories; True if at least one of them has it now.

        A failed directory keeps an older backup, as old as its logs.
        """
        if self.latest is not None and backup._replace(written_ms=0) == self.latest._replace(written_ms=0):
            return True
        backup = backup._replace(written_ms=self._clock.now_ms())
        data = json.dumps(backup_content(backup), separators=(",", ":")).encode()
        written = [await self._write(directory, data) for directory in self._logs.directories]
        if any(written):
            self.latest = backup
        return any(written)

    async def _write(self, directory: LogDirectory, data: bytes) -> bool:
        if not directory.is_online:
            return False
        try:
            await self._workers.run(self._disk.write_file_atomically, directory.file(FILE_NAME), data)
        except OSError as error:
            directory.fail(error)
            return False
        if directory.path in self.directories_without_backup:
            self.directories_without_backup.remove(directory.path)
        return True


async def no_change_counter() -> StoreMark | None:
    return None


def _states_held(image: ClusterImage, broker_id: BrokerId) -> list[PartitionVersion]:
    return [
        (topic.name, partition.index, partition.leader_epoch, partition.version)
        for topic in image.topics.values()
        for partition in topic.partitions
        if broker_id in partition.replicas
    ]


def _configs(backup: Backup) -> tuple[Mapping[str, object], ...]:
    """Parts of a backup that decide, for example, which records retention deletes: an older copy must be noticed."""
    return backup.topic_configs, backup.broker_configs, backup.group_configs, backup.security_nodes


def _members(image: ClusterImage) -> frozenset[int]:
    """Brokers that host replicas. A takeover need not wait for a broker that hosts none."""
    found: set[BrokerId] = set()
    for topic in image.topics.values():
        found.update(*[partition.replicas for partition in topic.partitions])
    return frozenset(found)


def _highest_epoch(image: ClusterImage) -> int:
    epochs = [partition.leader_epoch for topic in image.topics.values() for partition in topic.partitions]
    return max(epochs, default=NO_LEADER_EPOCH)

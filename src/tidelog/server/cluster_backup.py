"""cluster.backup: a copy of what only the coordination store knows, in every log directory, for its loss (R44)."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tidelog.cluster.image import ClusterImage
from tidelog.cluster.inventory import Backup, backup_content, backup_of
from tidelog.cluster.znodes import NONSENSE
from tidelog.runtime.clock import Clock
from tidelog.runtime.disk import Disk
from tidelog.runtime.workers import Workers
from tidelog.server.cluster_state import ClusterState
from tidelog.server.store_marks import StoreMark
from tidelog.storage.log_directory import LogDirectory
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import StoreUnavailable
from tidelog.types import NO_LEADER_EPOCH, BrokerId

logger = logging.getLogger(__name__)

FILE_NAME = "cluster.backup"
PartitionVersion: TypeAlias = tuple[str, int, int, int]
"""Topic, partition, leader epoch, version of the state in the store."""
SHORTEST_INTERVAL_S = 1.0
"""Between two writes, however often the cluster changes."""


class ClusterBackup:
    """Written when something in it changes. What it lacks after a crash is at most what changed a moment before."""

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
        self._noted_states: list[PartitionVersion] = []
        self.controller_epoch: Callable[[], int] = lambda: 0
        self.is_store_in_use: Callable[[], bool] = lambda: True
        self.count_change: Callable[[], Awaitable[StoreMark | None]] = nobody_counts
        """In the store, once more; None while that is not possible."""
        found = {directory.path: self._read(directory) for directory in logs.directories if directory.is_online}
        known = [backup for backup in found.values() if backup is not None]
        self.latest = max(known, key=lambda backup: (backup.controller_epoch, backup.written_ms), default=None)
        self.directories_without = [path for path, backup in found.items() if backup is None] if known else []
        """New log directories beside others that are not: the logs of an earlier one may be missing."""
        cluster.on_image.append(lambda _: self._is_stale.set())

    def _read(self, directory: LogDirectory) -> Backup | None:
        path = directory.file(FILE_NAME)
        try:
            return backup_of(json.loads(self._disk.read_file(path)))
        except FileNotFoundError:
            return None
        except (*NONSENSE, OSError) as error:
            logger.warning("damaged file is ignored and will be rewritten path=%s error=%r", path, error)
            return None

    async def run(self) -> None:
        while True:
            await self._is_stale.wait()
            await self.flush()
            await asyncio.sleep(SHORTEST_INTERVAL_S)

    async def flush(self) -> None:
        """Write what changed since the last time, if anything did."""
        if not self._is_stale.is_set() or not self.is_store_in_use():
            return
        self._is_stale.clear()
        async with self._writing:
            wanted = self._collect()
            if wanted is not None and not await self._is_noted(wanted):
                self._is_stale.set()

    async def _is_noted(self, wanted: Backup) -> bool:
        """A change of a partition held here is counted in the store first: a copy made before that is an older one."""
        states = _states_held(self._cluster.image, self._broker_id)
        if states == self._noted_states:
            return await self._is_written(wanted)
        mark = await self.count_change()
        if mark is not None:
            wanted = wanted._replace(store_id=mark.store_id, store_changes=mark.changes)
        if not await self._is_written(wanted) or mark is None:
            return False
        self._noted_states = states
        return True

    async def note_producer_ids(self, last_producer_id: int) -> None:
        """Before one of them is handed out: nobody gets it again, even if the store is lost with all its traces."""
        async with self._writing:
            known = self.latest or Backup()
            wanted = known._replace(last_producer_id=max(known.last_producer_id, last_producer_id))
            if not await self._is_written(wanted):
                raise StoreUnavailable(reason=f"{FILE_NAME} cannot be written")

    def _collect(self) -> Backup | None:
        """None while there is nothing to note, or the image may not have everything yet.

        It comes in several requests of a new controller, the first of them without topics.
        """
        image = self._cluster.image
        if not image.topics and (self._logs.logs or self.latest is None):
            return None
        known = self.latest or Backup()
        return Backup(
            members=_members(image),
            controller_epoch=max(known.controller_epoch, self.controller_epoch()),
            leader_epoch=max(known.leader_epoch, _highest_epoch(image)),
            last_producer_id=known.last_producer_id,
            topic_configs={topic.name: dict(topic.configs) for topic in image.topics.values()},
            store_id=known.store_id,
            store_changes=known.store_changes,
            directory_ids=self._directory_ids(known),
            broker_configs={name: dict(found) for name, found in image.broker_configs.items() if found},
            group_configs={name: dict(found) for name, found in image.group_configs.items()},
        )

    def _directory_ids(self, known: Backup) -> frozenset[str]:
        """One that is offline is still there; what its id is may not be readable."""
        directories = self._logs.directories
        found = frozenset(each.directory_id for each in directories if each.directory_id)
        return found if all(each.is_online for each in directories) else found | known.directory_ids

    @property
    def missing_directories(self) -> list[str]:
        """The ids of log directories that the broker had when it last noted them, and has no longer."""
        known = self.latest or Backup()
        return sorted(known.directory_ids - self._directory_ids(known))

    async def _is_written(self, wanted: Backup) -> bool:
        """Whether at least one log directory has it now; in the others it is as old as their logs will be."""
        if self.latest is not None and wanted._replace(written_ms=0) == self.latest._replace(written_ms=0):
            return True
        wanted = wanted._replace(written_ms=self._clock.now_ms())
        data = json.dumps(backup_content(wanted), separators=(",", ":")).encode()
        written = [await self._write(directory, data) for directory in self._logs.directories]
        if any(written):
            self.latest = wanted
        return any(written)

    async def _write(self, directory: LogDirectory, data: bytes) -> bool:
        if not directory.is_online:
            return False
        try:
            await self._workers.run(self._disk.write_file_atomically, directory.file(FILE_NAME), data)
        except OSError as error:
            directory.fail(error)
            return False
        return True


async def nobody_counts() -> StoreMark | None:
    return None


def _states_held(image: ClusterImage, broker_id: BrokerId) -> list[PartitionVersion]:
    return [
        (topic.name, partition.index, partition.leader_epoch, partition.version)
        for topic in image.topics.values()
        for partition in topic.partitions
        if broker_id in partition.replicas
    ]


def _members(image: ClusterImage) -> frozenset[int]:
    """Only brokers with replicas: one that holds nothing need not be waited for."""
    return frozenset(
        broker_id
        for topic in image.topics.values()
        for partition in topic.partitions
        for broker_id in partition.replicas
    )


def _highest_epoch(image: ClusterImage) -> int:
    epochs = (partition.leader_epoch for topic in image.topics.values() for partition in topic.partitions)
    return max(epochs, default=NO_LEADER_EPOCH)

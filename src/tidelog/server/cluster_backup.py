"""cluster.backup: a copy of what only the coordination store knows, in every log directory, for its loss (R44)."""

import asyncio
import json
import logging
from collections.abc import Callable

from tidelog.cluster.image import ClusterImage
from tidelog.cluster.inventory import Backup, backup_content, backup_of
from tidelog.cluster.znodes import NONSENSE
from tidelog.runtime.clock import Clock
from tidelog.runtime.disk import Disk
from tidelog.runtime.workers import Workers
from tidelog.server.cluster_state import ClusterState
from tidelog.storage.log_directory import LogDirectory
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import StoreUnavailable
from tidelog.types import NO_LEADER_EPOCH

logger = logging.getLogger(__name__)

FILE_NAME = "cluster.backup"
SHORTEST_INTERVAL_S = 1.0
"""Between two writes, however often the cluster changes."""


class ClusterBackup:
    """Written when something in it changes. What it lacks after a crash is at most what changed a moment before."""

    def __init__(self, logs: LogManager, cluster: ClusterState, disk: Disk, clock: Clock, workers: Workers) -> None:
        self._logs = logs
        self._cluster = cluster
        self._disk = disk
        self._clock = clock
        self._workers = workers
        self._is_stale = asyncio.Event()
        self._writing = asyncio.Lock()
        self.controller_epoch: Callable[[], int] = lambda: 0
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
        if not self._is_stale.is_set():
            return
        self._is_stale.clear()
        async with self._writing:
            wanted = self._collect()
            if wanted is not None and not await self._is_written(wanted):
                self._is_stale.set()

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
        )

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

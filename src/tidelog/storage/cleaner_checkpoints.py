"""Checkpoints of the log cleaner: how far the logs of each log dir are clean."""

import asyncio
import logging
from collections.abc import Sequence

from tidelog.runtime.disk import Disk
from tidelog.storage.checkpoints import CLEANER_OFFSETS, CorruptCheckpoint, read_offsets, write_offsets
from tidelog.storage.log_directory import LogDirectory, StorageContext
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


class CleanerCheckpoints:
    """One file for each log dir, with the current and the future logs in it."""

    def __init__(self, context: StorageContext, directories: Sequence[LogDirectory]) -> None:
        self._context = context
        self._directories = directories
        self._written: dict[LogDirectory, dict[TopicPartition, int]] = {}
        self._lock = asyncio.Lock()
        """One write at a time: if two ran at once, the older could overwrite the newer."""

    async def load(self) -> None:
        """Read the checkpoints, once, after the logs were loaded."""
        for directory in self._directories:
            if directory.is_online:
                await self._load(directory)

    async def _load(self, directory: LogDirectory) -> None:
        try:
            offsets = await self._context.workers.run(_read, self._context.disk, directory)
        except OSError as error:
            directory.fail_while_opening(error)
            return
        self._written[directory] = offsets
        for log in directory.logs.values():
            log.cleaned_until = offsets.get(log.topic_partition)

    async def write(self) -> None:
        """Also after a truncation or deletion: a new log with the same name must not count as clean."""
        for directory in self._written:
            await self.write_in(directory)

    async def write_in(self, directory: LogDirectory) -> bool:
        """Whether the current end offsets of the clean sections are on disk."""
        async with self._lock:
            offsets = {
                log.topic_partition: log.cleaned_until
                for log in directory.logs.values()
                if log.cleaned_until is not None
            }
            if offsets == self._written.get(directory, {}):
                return True
            path = directory.file(CLEANER_OFFSETS)
            if not await directory.run(write_offsets, self._context.disk, path, offsets):
                return False
            self._written[directory] = offsets
            return True


def _read(disk: Disk, directory: LogDirectory) -> dict[TopicPartition, int]:
    try:
        return read_offsets(disk, directory.file(CLEANER_OFFSETS))
    except CorruptCheckpoint as error:
        logger.warning("cleaner checkpoint is corrupt, all logs count as dirty error=%s", error)
        return {}

"""Delayed deletions: directories of deleted partitions, and files of deleted segments.

Both are renamed at once and deleted after a delay, because readers may still send from them and an operator may still
save them.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.runtime.disk import Disk
from tidelog.storage.log import Log
from tidelog.storage.log_directory import LogDirectory, StorageContext

logger = logging.getLogger(__name__)


class _PendingDirectory(NamedTuple):
    due_ms: int
    """By the monotonic clock."""
    directory: LogDirectory
    path: str


class Deletions:
    """Deletes what is due. A deletion that fails is retried; a disk failure takes its log dir offline."""

    def __init__(self, context: StorageContext, delay_ms: int) -> None:
        self._context = context
        self.delay_ms = delay_ms
        """log.segment.delete.delay.ms: how long the directory of a deleted partition is kept."""
        self._pending: list[_PendingDirectory] = []

    def schedule(self, directory: LogDirectory, path: str) -> None:
        """Delete the directory of a deleted partition after the delay."""
        self._pending.append(_PendingDirectory(self._context.monotonic_ms() + self.delay_ms, directory, path))
        logger.info("scheduled deletion of log path=%s after_ms=%d", path, self.delay_ms)

    async def delete_due(self, logs: Iterable[Log]) -> None:
        """Delete files of the logs' deleted segments, then directories of deleted partitions."""
        now_ms = self._context.monotonic_ms()
        for log in logs:
            due = log.local.pop_due_deletions(now_ms)
            if due:
                paths = [path for pending in due for path in pending.paths]
                if not await log.directory.run(_remove_files, self._context.disk, paths):
                    log.local.put_back_deletions(due)
        due_directories = [pending for pending in self._pending if pending.due_ms <= now_ms]
        self._pending = [pending for pending in self._pending if pending.due_ms > now_ms]
        for pending in due_directories:
            if not await pending.directory.run(self._context.disk.remove_tree, pending.path):
                self._pending.append(pending)


def _remove_files(disk: Disk, paths: list[str]) -> None:
    for path in paths:
        disk.remove(path)

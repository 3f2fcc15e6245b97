"""Disks of the brokers of a test cluster, in memory or in files, that can be full or slow."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeAlias, TypeVar

from tidelog.runtime.clock import Clock
from tidelog.runtime.disk import Lock, OpenMode, SystemDisk, SystemFile
from tidelog.runtime.memory_disk import PLENTY_BYTES, MemoryDisk
from tidelog.runtime.workers import Workers
from tidelog.types import Buffer

P = ParamSpec("P")
T = TypeVar("T")


class MachineFile(SystemFile):
    """A file on a disk that may be full."""

    __slots__ = ("disk",)
    disk: "MachineDisk"

    def append(self, data: Buffer) -> None:
        self.disk.check_room(self.path)
        super().append(data)


class MachineDisk(SystemDisk):
    """The file system, for one broker."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self._locks: list[Lock] = []

    def check_room(self, path: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def open(self, path: str, mode: OpenMode) -> MachineFile:
        if mode != "read" and not self.exists(path):
            self.check_room(path)
        opened = super().open(path, mode)
        file = MachineFile(path, os.dup(opened.fileno()))
        opened.close()
        file.disk = self
        return file

    def write_file_atomically(self, path: str, data: bytes) -> None:
        self.check_room(path)
        super().write_file_atomically(path, data)

    def make_directory(self, path: str) -> None:
        if not self.exists(path):
            self.check_room(path)
        super().make_directory(path)

    def lock(self, path: str) -> Lock:  # type: ignore[override]
        self._locks.append(super().lock(path))
        return self._locks[-1]

    def release_locks(self) -> None:
        """As the operating system does for a killed process."""
        for lock in self._locks:
            lock.release()
        self._locks.clear()


TestDisk: TypeAlias = MemoryDisk | MachineDisk


def new_disk(directory: Path | None, clock: Clock) -> TestDisk:
    return MachineDisk() if directory is not None else MemoryDisk(clock)


def set_full(disk: TestDisk, *, is_full: bool) -> None:
    if isinstance(disk, MachineDisk):
        disk.is_full = is_full
    else:
        disk.capacity_bytes = disk.used_bytes if is_full else PLENTY_BYTES


def release_locks(disk: TestDisk) -> None:
    if isinstance(disk, MachineDisk):
        disk.release_locks()
    else:
        disk.locked_paths.clear()


class SlowableWorkers:
    """Workers whose results come `delay_s` later, as those of a slow disk."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.delay_s = 0.0

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return await self._workers.run(work, *args, **kwargs)

    def close(self) -> None:
        self._workers.close()

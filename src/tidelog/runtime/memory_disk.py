"""The disk seam in memory, for tests and the simulator: with crashes that lose what was not synced, and with faults.

Names (create, rename, remove) and truncations are durable at once; appended bytes are when they were synced.
"""

import errno
import os
import posixpath
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tidelog.runtime.clock import Clock, ManualClock
from tidelog.runtime.disk import DirectoryEntry, DirectoryInUse, OpenMode
from tidelog.types import Buffer

PLENTY_BYTES = 1 << 40
PLENTY_FILES = 10_000


class _Inode:
    """What a file is, whatever it is called; a removed file lives on while somebody has it open."""

    __slots__ = ("data", "modified_ms", "synced_bytes")

    def __init__(self, modified_ms: int, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced_bytes = len(data)
        self.modified_ms = modified_ms


@dataclass(slots=True)
class Fault:
    """From now on (or after some more calls) these operations fail on every path that starts with `path`."""

    error_number: int
    path: str
    operations: Collection[str]
    calls_before: int = 0

    def strikes(self, operation: str, path: str) -> bool:
        if (self.operations and operation not in self.operations) or not path.startswith(self.path):
            return False
        if self.calls_before > 0:
            self.calls_before -= 1
            return False
        return True


class MemoryFile:
    __slots__ = ("_disk", "_inode", "_is_writable", "path")

    def __init__(self, disk: "MemoryDisk", path: str, inode: _Inode, is_writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._is_writable = is_writable

    def append(self, data: Buffer) -> None:
        self._check("append", writes=True)
        written = self._disk.take_space(len(data))
        self._inode.data += memoryview(data)[:written]
        self._inode.modified_ms = self._disk.clock.now_ms()
        if written < len(data):
            raise _error(errno.ENOSPC, self.path)

    def read(self, position: int, length: int) -> bytes:
        self._check("read")
        return bytes(self._inode.data[position : position + length])

    def is_cached(self, position: int, length: int) -> bool:
        self._check("is_cached")
        return self.path not in self._disk.uncached_paths

    def size(self) -> int:
        self._check("size")
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._check("truncate", writes=True)
        data = self._inode.data
        self._disk.take_space(size - len(data))
        data.extend(bytes(max(size - len(data), 0)))
        del data[size:]
        self._inode.synced_bytes = min(self._inode.synced_bytes, size)
        self._inode.modified_ms = self._disk.clock.now_ms()

    def sync(self) -> None:
        self._check("sync")
        self._inode.synced_bytes = len(self._inode.data)

    def fileno(self) -> None:
        return None

    def close(self) -> None:
        return None

    def _check(self, operation: str, *, writes: bool = False) -> None:
        self._disk.check(operation, self.path)
        if writes and not self._is_writable:
            raise _error(errno.EBADF, self.path)


class MemoryLock:
    def __init__(self, disk: "MemoryDisk", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked_paths.discard(self._path)


class MemoryDisk:
    def __init__(self, clock: Clock | None = None, capacity_bytes: int = PLENTY_BYTES) -> None:
        self.clock = clock or ManualClock()
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.faults: list[Fault] = []
        self.locked_paths: set[str] = set()
        self.uncached_paths: set[str] = set()
        """Files that a reader would have to wait for."""
        self._files: dict[str, _Inode] = {}
        self._directories: set[str] = {"/"}

    # ---- what only a test or a simulation does

    def inject(
        self, error_number: int, path: str = "", operations: Collection[str] = (), calls_before: int = 0
    ) -> Fault:
        """Let operations (all, if none are named) fail below `path`, after so many more calls."""
        fault = Fault(error_number, path, operations, calls_before)
        self.faults.append(fault)
        return fault

    def vanish(self, path: str) -> None:
        """Somebody removed the directory, or unmounted it."""
        self._forget(path)

    def crash(self, kept_bytes: Callable[[str, int], int] | None = None) -> None:
        """The machine stops: locks are gone, and of each file's unsynced bytes all but the first `kept_bytes`."""
        self.locked_paths.clear()
        for path, inode in self._files.items():
            unsynced_bytes = len(inode.data) - inode.synced_bytes
            kept = kept_bytes(path, unsynced_bytes) if kept_bytes is not None and unsynced_bytes else 0
            del inode.data[inode.synced_bytes + kept :]
            inode.synced_bytes = len(inode.data)

    def unsynced_bytes(self, path: str) -> int:
        inode = self._file(path)
        return len(inode.data) - inode.synced_bytes

    def check(self, operation: str, path: str) -> None:
        for fault in self.faults:
            if fault.strikes(operation, path):
                raise _error(fault.error_number, path)

    def take_space(self, size_bytes: int) -> int:
        """How much of it there was room for."""
        taken = min(size_bytes, self.capacity_bytes - self.used_bytes)
        self.used_bytes += taken
        return taken

    # ---- the seam

    def open(self, path: str, mode: OpenMode) -> MemoryFile:
        path = self._enter("open", path)
        if path in self._directories:
            raise _error(errno.EISDIR, path)
        inode = self._files.get(path)
        if inode is None:
            if mode in ("read", "update"):
                raise _error(errno.ENOENT, path)
            self._check_parent(path)
            inode = self._files[path] = _Inode(self.clock.now_ms())
        elif mode == "create":
            self.take_space(-len(inode.data))
            inode.data = bytearray()
            inode.synced_bytes = 0
        return MemoryFile(self, path, inode, is_writable=mode != "read")

    def read_file(self, path: str) -> bytes:
        return bytes(self._file(self._enter("read_file", path)).data)

    def write_file_atomically(self, path: str, data: bytes) -> None:
        path = self._enter("write_file_atomically", path)
        self._check_parent(path)
        if self.take_space(len(data)) < len(data):
            raise _error(errno.ENOSPC, path)
        if path in self._files:
            self.take_space(-len(self._files[path].data))
        self._files[path] = _Inode(self.clock.now_ms(), data)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        path = self._enter("list_directory", path)
        self._check_directory(path)
        prefix = path.rstrip("/") + "/"
        entries = [
            DirectoryEntry(posixpath.basename(name), False, len(inode.data), inode.modified_ms)
            for name, inode in self._files.items()
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        ]
        entries += [
            DirectoryEntry(posixpath.basename(name), True, 0, 0)
            for name in self._directories
            if name.startswith(prefix) and name != prefix and "/" not in name[len(prefix) :]
        ]
        return entries

    def exists(self, path: str) -> bool:
        path = self._enter("exists", path)
        return path in self._files or path in self._directories

    def size(self, path: str) -> int:
        return len(self._file(self._enter("size", path)).data)

    def identity(self, path: str) -> object:
        return id(self._file(self._enter("identity", path)))

    def make_directory(self, path: str) -> None:
        path = self._enter("make_directory", path)
        while path not in self._directories:
            if path in self._files:
                raise _error(errno.EEXIST, path)
            self._directories.add(path)
            path = posixpath.dirname(path)

    def rename(self, old: str, new: str) -> None:
        old, new = self._enter("rename", old), _normal(new)
        self._check_parent(new)
        if old in self._files:
            if new in self._directories:
                raise _error(errno.EISDIR, new)
            self._drop_file(new)
            self._files[new] = self._files.pop(old)
            return
        self._check_directory(old)
        self._rename_directory(old, new)

    def _rename_directory(self, old: str, new: str) -> None:
        if new in self._files:
            raise _error(errno.ENOTDIR, new)
        if any(name.startswith(new + "/") for name in (*self._files, *self._directories)):
            raise _error(errno.ENOTEMPTY, new)
        prefix = old + "/"
        self._files = {_moved(name, prefix, new): inode for name, inode in self._files.items()}
        self._directories = {_moved(name, prefix, new) for name in self._directories if name != old} | {new}

    def remove(self, path: str) -> None:
        path = self._enter("remove", path)
        if path in self._directories:
            raise _error(errno.EISDIR, path)
        self._drop_file(path)

    def remove_tree(self, path: str) -> None:
        self._forget(self._enter("remove_tree", path))

    def sync_directory(self, path: str) -> None:
        self._check_directory(self._enter("sync_directory", path))

    def open_files_limit(self) -> int:
        return PLENTY_FILES

    def sync_everything(self) -> None:
        for inode in self._files.values():
            inode.synced_bytes = len(inode.data)

    def space(self, path: str) -> tuple[int, int]:
        self._check_directory(self._enter("space", path))
        return self.capacity_bytes, self.capacity_bytes - self.used_bytes

    def lock(self, path: str) -> MemoryLock:
        path = self._enter("lock", path)
        if path in self.locked_paths:
            raise DirectoryInUse(errno.EWOULDBLOCK, "held by another process", path)
        self._check_parent(path)
        self._files.setdefault(path, _Inode(self.clock.now_ms()))
        self.locked_paths.add(path)
        return MemoryLock(self, path)

    # ---- inside

    def _enter(self, operation: str, path: str) -> str:
        path = _normal(path)
        self.check(operation, path)
        return path

    def _file(self, path: str) -> _Inode:
        inode = self._files.get(_normal(path))
        if inode is None:
            raise _error(errno.EISDIR if path in self._directories else errno.ENOENT, path)
        return inode

    def _drop_file(self, path: str) -> None:
        inode = self._files.pop(path, None)
        if inode is not None:
            self.take_space(-len(inode.data))

    def _forget(self, path: str) -> None:
        for name in [name for name in self._files if name == path or name.startswith(path + "/")]:
            self._drop_file(name)
        self._directories = {name for name in self._directories if name != path and not name.startswith(path + "/")}

    def _check_parent(self, path: str) -> None:
        self._check_directory(posixpath.dirname(path))

    def _check_directory(self, path: str) -> None:
        if path not in self._directories:
            raise _error(errno.ENOTDIR if path in self._files else errno.ENOENT, path)


def _normal(path: str) -> str:
    return posixpath.normpath(posixpath.join("/", path))


def _moved(name: str, old_prefix: str, new: str) -> str:
    return f"{new}/{name.removeprefix(old_prefix)}" if name.startswith(old_prefix) else name


def _error(error_number: int, path: str) -> OSError:
    return OSError(error_number, os.strerror(error_number), path)

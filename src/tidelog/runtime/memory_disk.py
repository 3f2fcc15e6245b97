"""In-memory disk for tests and the simulator, with injected faults and crashes that lose unsynced data.

`crash` keeps names (create, rename, remove) and truncations, and loses unsynced appended bytes. `crash_badly` is a
power cut: torn writes, lost names, undone truncations, flipped bits.
"""

import errno
import os
import posixpath
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from tidelog.runtime.clock import Clock, ManualClock
from tidelog.runtime.disk import DirectoryEntry, DirectoryInUse, OpenMode
from tidelog.runtime.randomness import SeededRandomness
from tidelog.types import Buffer

PLENTY_BYTES = 1 << 40
PLENTY_FILES = 10_000
PAGE_BYTES = 4096
NEEDS_DESCRIPTOR = ("open", "read_file", "write_file_atomically", "list_directory", "sync_directory", "lock")
"""Operations that fail while no descriptor is left (EMFILE)."""


ObserveChange: TypeAlias = Callable[[str, str, Buffer], None]
"""Called with the operation, the path and the written bytes."""


class CrashDamage(NamedTuple):
    """Damage of a power cut to unsynced data, besides losing it."""

    tears_writes: bool = False
    """A prefix of each unsynced write survives; an unsynced truncation may be undone."""
    loses_names: bool = False
    """Creations, renames and removals since the last sync of their directory may be undone."""
    flips_bits: bool = False
    """One bit of surviving unsynced data may be flipped."""
    spares_byte: Callable[[bytes | bytearray, int], bool] | None = None
    """Whether the byte at this position of a file must not be flipped."""


class _Inode:
    """Content of a file, independent of its name. A removed file lives on while it is open."""

    __slots__ = ("cut_tail", "data", "modified_ms", "synced_bytes", "unsynced_writes")

    def __init__(self, modified_ms: int, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.modified_ms = modified_ms
        self.mark_synced()

    def mark_synced(self) -> None:
        self.synced_bytes = len(self.data)
        self.unsynced_writes: list[int] = []
        """Start position of each write since the last sync."""
        self.cut_tail: tuple[int, bytes] | None = None
        """Position and bytes that the device still holds behind an unsynced truncation."""

    def append(self, data: Buffer) -> None:
        self.unsynced_writes.append(len(self.data))
        self.data += data

    def truncate(self, size: int) -> None:
        if size < self.synced_bytes:
            tail = bytes(self.data[size : self.synced_bytes])
            if self.cut_tail is not None and self.cut_tail[0] >= size:
                tail += self.cut_tail[1][max(self.synced_bytes - self.cut_tail[0], 0) :]
            self.cut_tail = (size, tail)
        if size > len(self.data):
            self.unsynced_writes.append(len(self.data))
            self.data.extend(bytes(size - len(self.data)))
        del self.data[size:]
        self.unsynced_writes = [start for start in self.unsynced_writes if start < size]
        self.synced_bytes = min(self.synced_bytes, size)

    def lose_unsynced(self, kept_bytes: int = 0) -> None:
        del self.data[self.synced_bytes + kept_bytes :]
        self.mark_synced()

    def tear(self, randomness: SeededRandomness) -> None:
        """Either a prefix of all unsynced data survives, or a prefix of each write, with zeros in between."""
        if self.cut_tail is not None and randomness.below(2):
            position, tail = self.cut_tail
            self.data[position:] = tail
            self.mark_synced()
            return
        ends = [*self.unsynced_writes[1:], len(self.data)]
        unsynced = len(self.data) - self.synced_bytes
        if randomness.below(2) or not unsynced:
            self.lose_unsynced(_cut_at(randomness, unsynced))
            return
        kept_end = self.synced_bytes
        for start, end in zip(self.unsynced_writes, ends, strict=True):
            start = max(start, self.synced_bytes)
            kept = start + _cut_at(randomness, max(end - start, 0))
            self.data[kept:end] = bytes(max(end - kept, 0))
            kept_end = kept if kept > start else kept_end
        del self.data[kept_end:]

    def flip_bit(
        self, randomness: SeededRandomness, start: int, spares_byte: Callable[[bytes | bytearray, int], bool] | None
    ) -> None:
        if start < len(self.data):
            position, bit = start + randomness.below(len(self.data) - start), 1 << randomness.below(8)
            if spares_byte is None or not spares_byte(self.data, position):
                self.data[position] ^= bit


def _cut_at(randomness: SeededRandomness, size: int) -> int:
    """Number of bytes that survive: none, all, whole pages, or any number."""
    match randomness.below(4):
        case 0:
            return 0
        case 1:
            return size
        case 2:
            return min(PAGE_BYTES * randomness.below(size // PAGE_BYTES + 1), size)
        case _:
            return randomness.below(size + 1)


class _Directory:
    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, _Inode | _Directory] = {}

    def files(self) -> Iterator[_Inode]:
        """All files in this directory and below it."""
        for node in self.entries.values():
            if isinstance(node, _Directory):
                yield from node.files()
            else:
                yield node


_Node: TypeAlias = _Inode | _Directory


class _NameChange(NamedTuple):
    """One change of names, with the entries that undo it."""

    directory: _Directory
    """The directory whose sync makes it durable."""
    before: list[tuple[_Directory, str, _Node | None]]

    def undo(self) -> None:
        for directory, name, node in self.before:
            if node is None:
                directory.entries.pop(name, None)
            else:
                directory.entries[name] = node


@dataclass(slots=True, eq=False)
class Fault:
    """These operations fail on every path that starts with `path`, now or after `calls_before` more calls."""

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
        self._disk.changed("append", self.path, memoryview(data)[:written])
        self._inode.append(memoryview(data)[:written])
        self._inode.modified_ms = self._disk.clock.now_ms()
        if written < len(data):
            raise _error(errno.ENOSPC, self.path)

    def read(self, position: int, length: int) -> bytes:
        self._check("read")
        return bytes(self._inode.data[position : position + length])

    def is_cached(self, position: int, length: int) -> bool:
        self._check("is_cached")
        return self.path not in self._disk.uncached_paths

    def read_cached(self, position: int, length: int) -> bytes | None:
        if self.path in self._disk.uncached_paths:
            return None
        data = self.read(position, length)
        return data if len(data) == length else None

    def size(self) -> int:
        self._check("size")
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._check("truncate", writes=True)
        self._disk.take_space(size - len(self._inode.data))
        self._disk.changed(f"truncate to {size}", self.path)
        self._inode.truncate(size)
        self._inode.modified_ms = self._disk.clock.now_ms()

    def sync(self) -> None:
        self._check("sync")
        self._disk.changed("sync", self.path)
        self._inode.mark_synced()

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
        """Files that are not in the page cache."""
        self.on_changed: list[ObserveChange] = []
        self._root = _Directory()
        self._unsynced_names: list[_NameChange] = []

    # ---- for tests and the simulation

    def copy_for_another_machine(self) -> "MemoryDisk":
        """The same files without locks, as if the disk moved to another machine."""
        other = MemoryDisk(self.clock, self.capacity_bytes)
        other._root = self._root
        return other

    def inject(
        self, error_number: int, path: str = "", operations: Collection[str] = (), calls_before: int = 0
    ) -> Fault:
        """Let operations (default: all) fail below `path`, after `calls_before` more calls."""
        fault = Fault(error_number, path, operations, calls_before)
        self.faults.append(fault)
        return fault

    @contextmanager
    def observed(self) -> Iterator[None]:
        """No faults within the block: for inspection from outside, which must not change the run."""
        faults, self.faults = self.faults, []
        try:
            yield
        finally:
            self.faults = faults

    def vanish(self, path: str) -> None:
        """The directory was removed or unmounted from outside."""
        self._drop(path)

    def crash(self, kept_bytes: Callable[[str, int], int] | None = None) -> None:
        """The machine crashes: locks and unsynced bytes are lost, except the first `kept_bytes` of each file."""
        self.locked_paths.clear()
        self._unsynced_names.clear()
        for path, inode in self._walk("", self._root):
            unsynced_bytes = len(inode.data) - inode.synced_bytes
            kept = kept_bytes(path, unsynced_bytes) if kept_bytes is not None and unsynced_bytes else 0
            inode.lose_unsynced(kept)
        self._count_used_bytes()

    def crash_badly(self, randomness: SeededRandomness, damage: CrashDamage) -> None:
        """Power cut: each kind of damage is drawn for each file and directory separately."""
        self.locked_paths.clear()
        if damage.loses_names:
            self._lose_names(randomness)
        self._unsynced_names.clear()
        for inode in self._root.files():
            synced_bytes = inode.synced_bytes
            if damage.tears_writes:
                inode.tear(randomness)
            else:
                inode.lose_unsynced()
            if damage.flips_bits and randomness.below(4) == 0:
                inode.flip_bit(randomness, synced_bytes, damage.spares_byte)
            inode.mark_synced()
        self._count_used_bytes()

    def _lose_names(self, randomness: SeededRandomness) -> None:
        """A prefix of the changes in each directory survives, as with a journal."""
        counts: dict[_Directory, int] = {}
        for change in self._unsynced_names:
            counts[change.directory] = counts.get(change.directory, 0) + 1
        kept = {directory: randomness.below(count + 1) for directory, count in counts.items()}
        lost = []
        for change in self._unsynced_names:
            kept[change.directory] -= 1
            if kept[change.directory] < 0:
                lost.append(change)
        for change in reversed(lost):
            change.undo()

    def unsynced_bytes(self, path: str) -> int:
        inode = self._file(path)
        return len(inode.data) - inode.synced_bytes

    def check(self, operation: str, path: str) -> None:
        for fault in self.faults:
            if fault.strikes(operation, path):
                raise _error(fault.error_number, path)

    def changed(self, what: str, path: str, data: Buffer = b"") -> None:
        for observe in self.on_changed:
            observe(what, path, data)

    def take_space(self, size_bytes: int) -> int:
        """Reserve space; returns the bytes that fit."""
        taken = min(size_bytes, max(self.capacity_bytes - self.used_bytes, 0))
        self.used_bytes += taken
        return taken

    # ---- Disk

    def open(self, path: str, mode: OpenMode) -> MemoryFile:
        path = self._enter("open", path)
        node = self._find(path)
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        if node is None:
            if mode in ("read", "update"):
                raise _error(errno.ENOENT, path)
            node = self._make_file(path)
        elif mode == "create":
            self.take_space(-len(node.data))
            node.truncate(0)
        return MemoryFile(self, path, node, is_writable=mode != "read")

    def read_file(self, path: str) -> bytes:
        return bytes(self._file(self._enter("read_file", path)).data)

    def write_file_atomically(self, path: str, data: bytes) -> None:
        path = self._enter("write_file_atomically", path)
        directory = self._parent(path)
        if self.take_space(len(data)) < len(data):
            raise _error(errno.ENOSPC, path)
        known = directory.entries.get(_base_name(path))
        if isinstance(known, _Inode):
            self.take_space(-len(known.data))
        self.changed("write", path, data)
        directory.entries[_base_name(path)] = _Inode(self.clock.now_ms(), data)
        self._sync_names(directory)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        path = self._enter("list_directory", path)
        return [
            DirectoryEntry(name, True, 0, 0)
            if isinstance(node, _Directory)
            else DirectoryEntry(name, False, len(node.data), node.modified_ms)
            for name, node in self._directory(path).entries.items()
        ]

    def exists(self, path: str) -> bool:
        return self._find(self._enter("exists", path)) is not None

    def size(self, path: str) -> int:
        return len(self._file(self._enter("size", path)).data)

    def identity(self, path: str) -> object:
        return id(self._file(self._enter("identity", path)))

    def make_directory(self, path: str) -> None:
        path = self._enter("make_directory", path)
        directory = self._root
        for name in path.strip("/").split("/"):
            if not name:
                continue
            node = directory.entries.get(name)
            if isinstance(node, _Inode):
                raise _error(errno.EEXIST, path)
            if node is None:
                node = _Directory()
                self._change(directory, (directory, name, node))
            directory = node

    def rename(self, old: str, new: str) -> None:
        old, new = self._enter("rename", old), _normal(new)
        target, name = self._parent(new), _base_name(new)
        node, replaced = self._find(old), target.entries.get(name)
        if node is None:
            raise _error(errno.ENOENT, old)
        if isinstance(replaced, _Directory):
            if isinstance(node, _Inode):
                raise _error(errno.EISDIR, new)
            if replaced.entries:
                raise _error(errno.ENOTEMPTY, new)
        elif replaced is not None:
            if isinstance(node, _Directory):
                raise _error(errno.ENOTDIR, new)
            self.take_space(-len(replaced.data))
        self.changed(f"rename to {new}", old)
        self._change(target, (self._parent(old), _base_name(old), None), (target, name, node))

    def remove(self, path: str) -> None:
        path = self._enter("remove", path)
        if isinstance(self._find(path), _Directory):
            raise _error(errno.EISDIR, path)
        self._drop(path)

    def remove_tree(self, path: str) -> None:
        self._drop(self._enter("remove_tree", path))

    def sync_directory(self, path: str) -> None:
        self._sync_names(self._directory(self._enter("sync_directory", path)))

    def open_files_limit(self) -> int:
        return PLENTY_FILES

    def sync_everything(self) -> None:
        self._unsynced_names.clear()
        for inode in self._root.files():
            inode.mark_synced()

    def space(self, path: str) -> tuple[int, int]:
        self._directory(self._enter("space", path))
        return self.capacity_bytes, max(self.capacity_bytes - self.used_bytes, 0)

    def lock(self, path: str) -> MemoryLock:
        path = self._enter("lock", path)
        if path in self.locked_paths:
            raise DirectoryInUse(errno.EWOULDBLOCK, "held by another process", path)
        if self._find(path) is None:
            self._make_file(path)
        self.locked_paths.add(path)
        return MemoryLock(self, path)

    # ---- internals

    def _enter(self, operation: str, path: str) -> str:
        path = _normal(path)
        self.check(operation, path)
        return path

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for name in _names(path):
            node = node.entries.get(name) if isinstance(node, _Directory) else None
        return node

    def _file(self, path: str) -> _Inode:
        node = self._find(_normal(path))
        if not isinstance(node, _Inode):
            raise _error(errno.ENOENT if node is None else errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> _Directory:
        return self._directory(path.rpartition("/")[0])

    def _make_file(self, path: str) -> _Inode:
        directory, inode = self._parent(path), _Inode(self.clock.now_ms())
        self._change(directory, (directory, _base_name(path), inode))
        return inode

    def _change(self, synced_by: _Directory, *entries: tuple[_Directory, str, _Node | None]) -> None:
        """Set names, or remove them (None), in one step that is durable once `synced_by` is synced."""
        before = [(directory, name, directory.entries.get(name)) for directory, name, _ in entries]
        self._unsynced_names.append(_NameChange(synced_by, before))
        for directory, name, node in entries:
            if node is None:
                directory.entries.pop(name, None)
            else:
                directory.entries[name] = node

    def _sync_names(self, directory: _Directory) -> None:
        self._unsynced_names = [change for change in self._unsynced_names if change.directory is not directory]

    def _drop(self, path: str) -> None:
        """No error if it does not exist."""
        node = self._find(path)
        if node is None:
            return
        self.changed("remove", path)
        self.take_space(-sum(len(inode.data) for inode in _files_of(node)))
        self._change(self._parent(path), (self._parent(path), _base_name(path), None))

    def _walk(self, prefix: str, directory: _Directory) -> Iterator[tuple[str, _Inode]]:
        for name, node in directory.entries.items():
            if isinstance(node, _Directory):
                yield from self._walk(f"{prefix}/{name}", node)
            else:
                yield f"{prefix}/{name}", node

    def _count_used_bytes(self) -> None:
        self.used_bytes = sum(len(inode.data) for inode in self._root.files())


def _files_of(node: _Node) -> Iterator[_Inode]:
    return node.files() if isinstance(node, _Directory) else iter([node])


@lru_cache(maxsize=4096)
def _names(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/")))


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


@lru_cache(maxsize=4096)
def _normal(path: str) -> str:
    """Cached: brokers name the same few files again and again."""
    return posixpath.normpath(posixpath.join("/", path))


def _error(error_number: int, path: str) -> OSError:
    return OSError(error_number, os.strerror(error_number), path)

"""Disk seam: the operations on files and directories that logs need.

Every call may raise OSError. Only `append`, `read` of cached bytes and cheap metadata calls run on
the event loop. Everything that may wait for the device runs in `runtime.workers`.
"""

import contextlib
import errno
import fcntl
import os
import resource
import shutil
import stat
from typing import Literal, NamedTuple, Protocol

from tidelog.runtime.linux_calls import RWF_NOWAIT, preadv
from tidelog.types import Buffer

OpenMode = Literal["read", "update", "append", "create"]
"""read: must exist; update: must exist, written at its end; append: like update, created if missing;
create: created, or emptied if it exists."""

CACHE_PROBE_BYTES = 128 * 1024
"""Distance of page cache probes: read-ahead loads at least this much at once."""


class DirectoryEntry(NamedTuple):
    name: str
    is_directory: bool
    size: int
    modified_ms: int
    is_dangling: bool = False
    """A symbolic link that leads nowhere."""


class DirectoryInUse(OSError):
    """Another process holds the lock of the directory."""


class File(Protocol):
    path: str

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end of the file."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """Whether the range is in the page cache, so that reading does not wait for the device."""
        ...

    def read_cached(self, position: int, length: int) -> bytes | bytearray | None:
        """All of these bytes if they are in the page cache, else None: never waits for the device."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def fileno(self) -> int | None:
        """The descriptor for sendfile; None where there is none."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, mode: OpenMode) -> File: ...

    def read_file(self, path: str) -> bytes: ...

    def write_file_atomically(self, path: str, data: bytes) -> None:
        """`path.tmp`, fsync, rename, fsync of the directory: after a crash the old or the new content, whole."""
        ...

    def list_directory(self, path: str) -> list[DirectoryEntry]: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def identity(self, path: str) -> object:
        """Equal for the same file. Raises FileNotFoundError."""
        ...

    def make_directory(self, path: str) -> None:
        """With its parents; no error if it exists."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Replaces `new` if it is a file."""
        ...

    def remove(self, path: str) -> None:
        """No error if the file is gone."""
        ...

    def remove_tree(self, path: str) -> None:
        """Of a symbolic link, the link alone."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def sync_everything(self) -> None:
        """Write all dirty pages of all files. Errors are reported by `sync` of each file."""
        ...

    def open_files_limit(self) -> int:
        """Maximum open files, connections included."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the volume."""
        ...

    def lock(self, path: str) -> Lock:
        """Hold the lock until release or the end of the process. Raises DirectoryInUse if another process holds it."""
        ...


class FileSlice:
    """Bytes that stay in their file until a connection sends them."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return self.file.read(self.position, self.length)

    def read_cached(self) -> bytes | bytearray | None:
        """The bytes if reading them does not wait. None also if they cannot be read: `read` raises the error."""
        try:
            return self.file.read_cached(self.position, self.length)
        except OSError:
            return None


class SystemFile:
    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def append(self, data: Buffer) -> None:
        written = os.write(self._fd, data)
        if written != len(data):
            self._append_rest(memoryview(data)[written:])

    def _append_rest(self, rest: memoryview) -> None:
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def read(self, position: int, length: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        return data + self.read(position + len(data), length - len(data))

    def is_cached(self, position: int, length: int) -> bool:
        probe = [bytearray(1)]
        end = position + length
        try:
            for place in range(position, end, CACHE_PROBE_BYTES):
                preadv(self._fd, probe, place, RWF_NOWAIT)
            preadv(self._fd, probe, end - 1, RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # a file system without non-blocking reads (tmpfs) is in memory
                return True
            raise
        return True

    def read_cached(self, position: int, length: int) -> bytes | bytearray | None:
        buffer = bytearray(length)
        data: bytes | bytearray = buffer
        try:
            count = preadv(self._fd, [buffer], position, RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            data = self.read(position, length)  # a file system without non-blocking reads (tmpfs) is in memory
            count = len(data)
        return data if count == length else None

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # A response may still hold a slice of a file that its log has closed. The last reference closes it.
        self.close()


class SystemLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_OPEN_FLAGS: dict[OpenMode, int] = {
    "read": os.O_RDONLY,
    "update": os.O_RDWR | os.O_APPEND,
    "append": os.O_RDWR | os.O_CREAT | os.O_APPEND,
    "create": os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND,
}


class SystemDisk:
    def open(self, path: str, mode: OpenMode) -> SystemFile:
        return SystemFile(path, os.open(path, _OPEN_FLAGS[mode] | os.O_CLOEXEC, 0o644))

    def read_file(self, path: str) -> bytes:
        file = self.open(path, "read")
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def write_file_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self.sync_directory(os.path.dirname(path) or ".")

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        entries = []
        with os.scandir(path) as found:
            for entry in found:
                try:
                    status = entry.stat()
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.ELOOP):
                        raise
                    if entry.is_symlink():  # otherwise it was removed meanwhile
                        entries.append(DirectoryEntry(entry.name, False, 0, 0, is_dangling=True))
                    continue
                is_directory = stat.S_ISDIR(status.st_mode)
                entries.append(
                    DirectoryEntry(entry.name, is_directory, status.st_size, status.st_mtime_ns // 1_000_000)
                )
        return entries

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def identity(self, path: str) -> object:
        found = os.stat(path)
        return found.st_dev, found.st_ino

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if os.path.islink(path):
                os.remove(path)
            else:
                shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_everything(self) -> None:
        os.sync()

    def open_files_limit(self) -> int:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def space(self, path: str) -> tuple[int, int]:
        usage = os.statvfs(path)
        return usage.f_frsize * usage.f_blocks, usage.f_frsize * usage.f_bavail

    def lock(self, path: str) -> SystemLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Java's locks are POSIX locks, which flock does not see: this one is for Apache Kafka.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            os.close(fd)
            raise DirectoryInUse(errno.EWOULDBLOCK, "held by another process", path) from error
        return SystemLock(fd)

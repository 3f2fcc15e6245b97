"""Process seam: the id of this process, the end of another one, and another one that is stopped with a lock."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from tidelog.runtime.linux_calls import pidfd_open

KERNEL_LOCKS = "/proc/locks"


class ProcessWatch(Protocol):
    def close(self) -> None: ...


class Processes(Protocol):
    def own_id(self) -> int: ...

    def watch(self, process_id: int, on_end: Callable[[], None]) -> ProcessWatch | None:
        """Call back on the event loop when the process has ended. None if it cannot be watched or has ended."""
        ...

    def lock_holder(self, path: str, offset: int) -> int | None:
        """The process with a POSIX write lock on this byte of the file; None if there is none, or if it is unknown."""
        ...

    def resume(self, process_id: int) -> bool:
        """Continue a process that was stopped (SIGSTOP); False if it is not stopped or belongs to somebody else."""
        ...


class SystemProcesses:
    def own_id(self) -> int:
        return os.getpid()

    def watch(self, process_id: int, on_end: Callable[[], None]) -> "PidfdWatch | None":
        try:
            return PidfdWatch(pidfd_open(process_id), on_end)
        except OSError:
            return None

    def lock_holder(self, path: str, offset: int) -> int | None:
        """Read from the kernel's table: to open and close the file would release this process's own locks on it."""
        try:
            inode = os.stat(path).st_ino
            with open(KERNEL_LOCKS) as locks:
                return next(filter(None, (_writer_in(line, inode, offset) for line in locks)), None)
        except OSError:
            return None

    def resume(self, process_id: int) -> bool:
        from tidelog.runtime.process_identity import identity_of, is_stopped, send  # rarely needed, and takes long

        identity = identity_of(process_id)
        with suppress(PermissionError):
            return identity is not None and is_stopped(identity) and send(identity, signal.SIGCONT)
        return False


def _writer_in(line: str, inode: int, offset: int) -> int | None:
    """The process of a line like `1: POSIX  ADVISORY  WRITE 10429 fe:00:11937381 120 120`."""
    _, kind, *_, access, process_id, file, start, end = line.split()
    if (kind, access) != ("POSIX", "WRITE") or int(file.rpartition(":")[2]) != inode:
        return None
    is_covered = int(start) <= offset and (end == "EOF" or offset <= int(end))
    return int(process_id) if is_covered and int(process_id) > 0 else None


class PidfdWatch:
    def __init__(self, fd: int, on_end: Callable[[], None]) -> None:
        self._fd = fd
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._ended)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _ended(self) -> None:
        self.close()
        self._on_end()

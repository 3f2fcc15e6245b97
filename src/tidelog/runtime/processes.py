"""Process seam: the id of this process, and notification when another process ends."""

import asyncio
import os
from collections.abc import Callable
from typing import Protocol


class ProcessWatch(Protocol):
    def close(self) -> None: ...


class Processes(Protocol):
    def own_id(self) -> int: ...

    def watch(self, process_id: int, on_end: Callable[[], None]) -> ProcessWatch | None:
        """Call back on the event loop when the process has ended. None if it cannot be watched or has ended."""
        ...


class SystemProcesses:
    def own_id(self) -> int:
        return os.getpid()

    def watch(self, process_id: int, on_end: Callable[[], None]) -> "PidfdWatch | None":
        try:
            return PidfdWatch(os.pidfd_open(process_id), on_end)
        except OSError:
            return None


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

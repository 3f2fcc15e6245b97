"""Keeps the memory of the machine full of cached pages, as it is on one that has been up for a while.

A virtual machine that gives free memory back to its host pays for every page that it takes again: ten times the cost
of the write itself, and it is the broker that writes who pays. Memory that a clean cached page occupied is cheap.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

STEP_BYTES = 256 * 1024 * 1024
READ_BYTES = 1024 * 1024
ENOUGH_FREE_BYTES = 512 * 1024 * 1024
HOLE_BYTES = 8 * 1024**4
"""A file of this size that holds nothing: reading it fills memory with clean pages and takes no disk."""


def free_bytes() -> int:
    return parse_free_bytes(Path("/proc/meminfo").read_text())


def parse_free_bytes(meminfo: str) -> int:
    line = next(line for line in meminfo.splitlines() if line.startswith("MemFree:"))
    return int(line.split()[1]) * 1024


def fill(read_step: Callable[[], None], free: Callable[[], int] = free_bytes) -> int:
    """Reads until there is little free memory, or reading takes no more of it (a limit on this group of processes).

    How many steps that took.
    """
    steps, before = 0, free()
    while before > ENOUGH_FREE_BYTES:
        read_step()
        steps += 1
        after = free()
        if before - after < STEP_BYTES // 4:
            break
        before = after
    return steps


class PageCache:
    def __init__(self) -> None:
        self._file: int | None = None
        self._position = 0
        self._target = bytearray(READ_BYTES)

    def fill(self) -> None:
        if self._file is None:
            self._file, path = tempfile.mkstemp(prefix="bench-hole-")
            os.unlink(path)
            os.ftruncate(self._file, HOLE_BYTES)
        fill(self._read_step)

    def _read_step(self) -> None:
        assert self._file is not None
        end = self._position + STEP_BYTES
        for position in range(self._position, end, READ_BYTES):
            os.preadv(self._file, [self._target], position)
        self._position = end

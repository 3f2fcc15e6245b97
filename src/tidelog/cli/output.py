"""Output to a pipe without blocking the event loop when its reader is slow, as a pager is."""

import asyncio
import os
import select

CHUNK_BYTES = select.PIPE_BUF
"""Bytes that a writable pipe accepts without blocking."""


class Output:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.written_bytes = 0
        """Counted as they are written: `write` may be cancelled halfway."""

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            if not select.select([], [self._fd], [], 0)[1]:
                await _until_writable(self._fd)
            written = os.write(self._fd, rest[:CHUNK_BYTES])
            self.written_bytes += written
            rest = rest[written:]


async def _until_writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(fd, writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(fd)

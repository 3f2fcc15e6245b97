"""Output to a pipe without blocking the event loop when its reader is slow, as a pager is."""

import asyncio
import os
import select

CHUNK_BYTES = select.PIPE_BUF
"""Bytes that a writable pipe accepts without blocking."""


async def write_output(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        if not select.select([], [fd], [], 0)[1]:
            await _until_writable(fd)
        rest = rest[os.write(fd, rest[:CHUNK_BYTES]) :]


async def _until_writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(fd, writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(fd)

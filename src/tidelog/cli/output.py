"""Writing to standard output without standing still: whoever reads it may take its time, as a pager does."""

import asyncio
import os
import select

CHUNK_BYTES = select.PIPE_BUF
"""So much can be written to a pipe that takes anything, without waiting."""


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

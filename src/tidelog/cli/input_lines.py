"""Lines of standard input, read without a thread: a blocked thread would keep the process alive after Ctrl-C."""

import asyncio
import os
from collections.abc import AsyncIterator

CHUNK_BYTES = 64 * 1024


async def input_lines(fd: int) -> AsyncIterator[bytes]:
    """Each line without its line break; the last line may have none."""
    rest = b""
    while chunk := await _read_chunk(fd):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


async def _read_chunk(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(fd, readable.set)
    except PermissionError:
        await asyncio.sleep(0)
        return os.read(fd, CHUNK_BYTES)  # a regular file: the event loop cannot watch it, but it is always readable
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, CHUNK_BYTES)

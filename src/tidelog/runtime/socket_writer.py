"""Sending side of a TCP connection: the queue of responses, and as few system calls as possible to send it.

Records are sent from their files (sendfile). What the socket does not take at once follows when it is writable, in
slices of time like all work for clients.
"""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.runtime.disk import FileSlice
from tidelog.runtime.network import LENGTH, LENGTH_BYTES, FramePart
from tidelog.runtime.turns import Turns
from tidelog.types import Buffer

if TYPE_CHECKING:
    from tidelog.runtime.socket_channel import SocketChannel

MAX_BYTES_PER_WRITE = 2 * 1024 * 1024
"""Bytes written to one connection before others are served."""

SENDFILE_FROM_BYTES = 16 * 1024
"""Below this, a read and a joint write are cheaper than a separate sendfile call."""

JOIN_BELOW_BYTES = 64 * 1024
"""Smaller buffers are joined into one; larger ones are passed to the kernel as they are."""

MAX_BUFFERS_PER_WRITE = 512

pack_length = LENGTH.pack


class SocketWriter:
    """Queues frames of a channel and writes them to its socket. Keeps the channel's backlog figures."""

    _SENDS_PLAIN_BYTES = True  # `send` of the socket takes them as they are

    def __init__(
        self, channel: "SocketChannel", connection: socket.socket, loop: asyncio.AbstractEventLoop, turns: Turns
    ) -> None:
        self._channel = channel
        self._socket = connection
        self._fd = connection.fileno()
        self._loop = loop
        self._turns = turns
        self._outgoing: deque[FramePart] = deque()
        self._is_writing = False  # the rest is sent when the socket is writable
        self._is_queued = False  # the socket is writable, and waits for a turn
        self._has_writer = False

    def send(self, parts: Sequence[FramePart]) -> None:
        channel = self._channel
        if channel.is_closed:
            return
        size = file_bytes = 0
        for part in parts:
            if isinstance(part, FileSlice):
                file_bytes += part.length  # not `len`, which would call a function in Python
            else:
                size += len(part)
        length = pack_length(size + file_bytes)
        channel.backlog_bytes += LENGTH_BYTES + size + file_bytes
        if file_bytes:
            channel.file_backlog_bytes += file_bytes
        elif size < JOIN_BELOW_BYTES:
            self._outgoing.append(length + (parts[0] if len(parts) == 1 else b"".join(parts)))  # type: ignore[arg-type,operator]
            return
        self._outgoing.append(length)
        self._outgoing.extend(parts)

    def flush(self) -> None:
        outgoing = self._outgoing
        if outgoing and not self._is_writing and not self._channel.is_closed:
            if self._SENDS_PLAIN_BYTES and len(outgoing) == 1 and isinstance(outgoing[0], bytes):
                self._send_alone(outgoing[0])
            else:
                self._write()

    def release(self) -> None:
        """The channel was closed: drop the queue."""
        self._is_writing = False
        self._update_writer()
        self._outgoing.clear()
        self._channel.backlog_bytes = self._channel.file_backlog_bytes = 0

    # ---- writing

    def _send_alone(self, data: bytes) -> None:
        """The usual response: one buffer, which the socket takes whole."""
        channel = self._channel
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            channel.close(error.strerror or type(error).__name__)
            return
        channel.backlog_bytes -= sent
        if sent == len(data):
            self._outgoing.clear()
        else:
            self._outgoing[0] = memoryview(data)[sent:]
            self._update_writing()

    def _write(self) -> None:
        channel = self._channel
        least_backlog = channel.backlog_bytes - MAX_BYTES_PER_WRITE
        try:
            while self._outgoing and channel.backlog_bytes > least_backlog:
                first = self._outgoing[0]
                if isinstance(first, FileSlice) and first.length >= SENDFILE_FROM_BYTES:
                    left = self._send_file(first)
                else:
                    left = self._send_buffers()
                if not left:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            channel.close(error.strerror or type(error).__name__)
            return
        if self._outgoing or self._is_writing:
            self._update_writing()

    def _send_file(self, slice_: FileSlice) -> bool:
        """True if all of it was sent."""
        source = slice_.file.fileno()
        if source is None:
            self._outgoing[0] = read_whole(slice_)
            self._channel.file_backlog_bytes -= slice_.length
            return True
        sent = os.sendfile(self._fd, source, slice_.position, slice_.length)
        if sent == 0:
            raise _cut_short(slice_)
        self._channel.backlog_bytes -= sent
        self._channel.file_backlog_bytes -= sent
        if sent == slice_.length:
            self._outgoing.popleft()
            return True
        self._outgoing[0] = FileSlice(slice_.file, slice_.position + sent, slice_.length - sent)
        return False

    def _send_buffers(self) -> bool:
        """Send the buffers up to the next large file slice in one call; True if all were sent."""
        buffers = self._gather()
        # More follows at once: let the kernel fill its packets.
        flags = socket.MSG_MORE if self._outgoing else 0
        total = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        sent = 0
        try:
            sent = (
                self._socket.sendmsg(buffers, (), flags) if len(buffers) > 1 else self._socket.send(buffers[0], flags)
            )
        finally:
            self._channel.backlog_bytes -= sent
            if sent < total:
                self._put_back(buffers, sent)
        return sent == total

    def _gather(self) -> list[Buffer]:
        """Take parts off the queue and join small ones."""
        outgoing = self._outgoing
        buffers: list[Buffer] = []
        small: list[Buffer] = []
        while outgoing and len(buffers) < MAX_BUFFERS_PER_WRITE:
            part = outgoing[0]
            if isinstance(part, FileSlice):
                if part.length >= SENDFILE_FROM_BYTES:
                    break
                self._channel.file_backlog_bytes -= part.length
                part = read_whole(part)
            outgoing.popleft()
            if len(part) < JOIN_BELOW_BYTES:
                small.append(part)
                continue
            if small:
                buffers.append(b"".join(small))
                small = []
            buffers.append(part)
        if small:
            buffers.append(b"".join(small))
        return buffers

    def _put_back(self, buffers: list[Buffer], sent: int) -> None:
        for index, buffer in enumerate(buffers):
            if sent < len(buffer):
                rest = [memoryview(buffer)[sent:], *buffers[index + 1 :]]
                self._outgoing.extendleft(reversed(rest))
                return
            sent -= len(buffer)

    # ---- when to write

    def _update_writing(self) -> None:
        was_writing, self._is_writing = self._is_writing, bool(self._outgoing)
        self._update_writer()
        if was_writing and not self._is_writing:
            self._channel.receiver.on_drained()

    def _update_writer(self) -> None:
        is_wanted = self._is_writing and not self._is_queued
        if is_wanted == self._has_writer:
            return
        self._has_writer = is_wanted
        if is_wanted:
            self._loop.add_writer(self._fd, self._on_writable)
        else:
            self._loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        if not self._has_writer:
            return
        channel = self._channel
        channel.last_activity = self._loop.time()
        if channel.is_privileged:
            self._write()
        elif self._turns.begin():
            self._write()
            self._turns.end()
        else:
            self._is_queued = True
            self._update_writer()
            self._turns.queue(self._take_turn)

    def _take_turn(self) -> None:
        self._is_queued = False
        if not self._channel.is_closed:
            self._write()


def read_whole(slice_: FileSlice) -> bytes:
    data = slice_.read()
    if len(data) != slice_.length:
        raise _cut_short(slice_)
    return data


def _cut_short(slice_: FileSlice) -> OSError:
    """The length of the response is already sent: only closing the connection can report the error."""
    return OSError(errno.EIO, f"{slice_.file.path} ends before position {slice_.position + slice_.length}")

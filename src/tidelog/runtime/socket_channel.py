"""One TCP connection: a reader and a writer over one socket, and what both of them and the owner need to know."""

import asyncio
import socket
from typing import Any

from tidelog.runtime.network import FrameReceiver
from tidelog.runtime.receive_buffers import ReceiveBuffers
from tidelog.runtime.socket_reader import SocketReader
from tidelog.runtime.socket_writer import SocketWriter
from tidelog.runtime.turns import Turns

IPV4_MAPPED = "::ffff:"
"""Addresses of IPv4 clients begin with this on an IPv6 listener. Permissions and limits are given to their own form."""


class SocketChannel:
    """A `Channel` over a socket. `close` is the only place where a connection ends, for both sides."""

    receiver: FrameReceiver

    def __init__(
        self,
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop,
        buffers: ReceiveBuffers,
        turns: Turns,
        max_frame_bytes: int,
    ) -> None:
        self._socket = connection
        host, self.peer_port = connection.getpeername()[:2]
        self.peer_host: str = host.removeprefix(IPV4_MAPPED) if "." in host else host
        self.last_activity = loop.time()
        self.is_privileged = False
        self.is_closed = False
        self.backlog_bytes = 0
        self.file_backlog_bytes = 0
        """The part of the backlog that is sent from files."""
        self.peer_subject: str | None = None
        self.reader, self.writer = self._make_halves(connection, loop, buffers, turns, max_frame_bytes)
        # Attributes instead of methods that only call on: `send` runs once for each response.
        self.send = self.writer.send
        self.flush = self.writer.flush
        self.pause_reading = self.reader.pause
        self.resume_reading = self.reader.resume
        self.limit_frames = self.reader.limit_frames

    def _make_halves(
        self,
        connection: Any,
        loop: asyncio.AbstractEventLoop,
        buffers: ReceiveBuffers,
        turns: Turns,
        max_frame_bytes: int,
    ) -> tuple[SocketReader, SocketWriter]:
        return (
            SocketReader(self, connection, loop, buffers, turns, max_frame_bytes),
            SocketWriter(self, connection, loop, turns),
        )

    @property
    def backlog_memory_bytes(self) -> int:
        return self.backlog_bytes - self.file_backlog_bytes

    @property
    def local_port(self) -> int:
        """Port of this end."""
        port: int = self._socket.getsockname()[1]
        return port

    def close(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.reader.release()
        self.writer.release()
        self._socket.close()
        self.receiver.on_closed(reason)

"""TCP network with non-blocking sockets (SocketServer): listeners, and connections to other brokers.

asyncio's transports copy received bytes and cannot mix buffers with sendfile. Channels therefore
register their sockets with the event loop themselves.
"""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

from tidelog.runtime.network import AcceptChannel, Channel, FrameReceiver, Tls
from tidelog.runtime.open_handshakes import OpenHandshakes
from tidelog.runtime.receive_buffers import ReceiveBuffers
from tidelog.runtime.socket_channel import SocketChannel
from tidelog.runtime.tls_channel import TlsChannel
from tidelog.runtime.turns import Turns

MAX_ACCEPTS_PER_WAKE_UP = 16
ACCEPT_PAUSE_S = 0.1


class SocketListener:
    """A bound socket that accepts connections: a few per wake-up, and none for a while if descriptors run out."""

    def __init__(
        self,
        listening: socket.socket,
        loop: asyncio.AbstractEventLoop,
        make_channel: Callable[[socket.socket], SocketChannel],
        accept: AcceptChannel,
    ) -> None:
        self._socket = listening
        self._loop = loop
        self._make_channel = make_channel
        self._accept = accept
        self.host, self.port = listening.getsockname()[:2]

    def start(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def _on_acceptable(self) -> None:
        for _ in range(MAX_ACCEPTS_PER_WAKE_UP):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of descriptors: clients wait in the backlog until a connection closes.
                self._pause_briefly()
                return
            with contextlib.suppress(OSError):  # the peer has disconnected already
                start_channel(self._make_channel(connection), self._accept)

    def _pause_briefly(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(ACCEPT_PAUSE_S, self.start)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


class _RejectedReceiver:
    """Receiver of a refused connection, which is closed before it reads."""

    def on_frame(self, frame: memoryview) -> None: ...

    def on_frames_done(self) -> None: ...

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None: ...


def start_channel(channel: SocketChannel, accept: AcceptChannel) -> None:
    receiver = accept(channel)
    if receiver is None:
        channel.receiver = _RejectedReceiver()
        channel.close("refused")
        return
    channel.receiver = receiver
    channel.resume_reading()


def _reject_self_connection(connection: socket.socket) -> None:
    """If nobody listens on a local port, TCP may connect a socket to itself, and block the port for the listener."""
    if connection.getsockname() == connection.getpeername():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "no listener on this port")


class SocketNetwork:
    """TCP network of one broker or client. Its channels share their receive buffers."""

    def __init__(
        self,
        max_frame_bytes: int,
        *,
        max_buffered_bytes: int = -1,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        accept_backlog: int = 50,
        turns: Turns | None = None,
        tls: Tls | None = None,
    ) -> None:
        """`tls`: connections to others use it; listeners have their own."""
        self._accept_backlog = accept_backlog
        self._max_frame_bytes = max_frame_bytes
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._buffers = ReceiveBuffers(max_buffered_bytes)
        self._turns = turns
        self._tls = tls

    def host_name(self) -> str:
        return socket.gethostname()

    @property
    def held_bytes(self) -> int:
        """Memory held by partial frames."""
        return self._buffers.held_bytes

    async def listen(self, host: str, port: int, accept: AcceptChannel, tls: Tls | None = None) -> SocketListener:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name such as localhost may have both families: like Java, and so like Kafka, prefer IPv4.
        family, kind, protocol, _, address = min(found, key=lambda address: address[0] != socket.AF_INET)
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._receive_buffer_bytes > 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(self._accept_backlog)
        except OSError:
            listening.close()
            raise
        if tls is None:
            return SocketListener(listening, loop, self._make_channel, accept)

        handshakes = OpenHandshakes()

        def make_channel(connection: socket.socket) -> SocketChannel:
            return self._make_tls_channel(connection, tls.server_context, handshakes)

        return SocketListener(listening, loop, make_channel, accept)

    async def connect(self, host: str, port: int, attach: Callable[[Channel], FrameReceiver]) -> SocketChannel:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        connection = await self._connect_to_any(addresses, loop)
        if self._tls is None:
            channel = self._make_channel(connection)
        else:
            channel = self._make_tls_channel(connection, self._tls.client_context, server_hostname=host)
        channel.is_privileged = True  # this process chose the peer: a broker
        start_channel(channel, attach)
        if isinstance(channel, TlsChannel):
            await channel.connect()
        return channel

    async def _connect_to_any(self, addresses: list[Any], loop: asyncio.AbstractEventLoop) -> socket.socket:
        """Connect to the first address that accepts: localhost may have two, and a server may listen on one."""
        failure: OSError | None = None
        for family, kind, protocol, _, address in addresses:
            connection = socket.socket(family, kind, protocol)
            try:
                connection.setblocking(False)
                await loop.sock_connect(connection, address)
                _reject_self_connection(connection)
                return connection
            except OSError as error:
                connection.close()
                failure = failure or OSError(error.errno, os.strerror(error.errno or errno.EIO))  # a readable message
            except BaseException:
                connection.close()
                raise
        raise failure or OSError(errno.EADDRNOTAVAIL, "the host name has no address")

    @property
    def turns(self) -> Turns:
        """Scheduler of client work, created with the first connection."""
        if self._turns is None:
            self._turns = Turns(asyncio.get_running_loop().time)
        return self._turns

    def _make_channel(self, connection: socket.socket) -> SocketChannel:
        try:
            self._set_options(connection)
            loop = asyncio.get_running_loop()
            return SocketChannel(connection, loop, self._buffers, self.turns, self._max_frame_bytes)
        except OSError:
            connection.close()
            raise

    def _make_tls_channel(
        self,
        connection: socket.socket,
        context: ssl.SSLContext,
        handshakes: OpenHandshakes | None = None,
        *,
        server_hostname: str | None = None,
    ) -> TlsChannel:
        try:
            self._set_options(connection)
            secured = context.wrap_socket(
                connection,
                server_side=handshakes is not None,
                server_hostname=server_hostname,
                do_handshake_on_connect=False,
            )
        except (OSError, ValueError):
            connection.close()
            raise
        loop = asyncio.get_running_loop()
        return TlsChannel(secured, loop, self._buffers, self.turns, self._max_frame_bytes, handshakes)

    def _set_options(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer_bytes > 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)

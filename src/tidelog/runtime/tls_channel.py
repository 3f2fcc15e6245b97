"""TLS over one TCP connection: handshake, and the reader and writer of an encrypted socket.

OpenSSL decrypts into the receive buffer and encrypts out of the queued buffers: there is no copy in between. A
handshake is part of reading, so that it takes its turn like requests of clients and counts for the limits of
connections.
"""

import asyncio
import contextlib
import errno
import ssl

from tidelog.runtime.disk import FileSlice
from tidelog.runtime.distinguished_names import distinguished_name
from tidelog.runtime.network import HandshakeFailed
from tidelog.runtime.open_handshakes import OpenHandshakes
from tidelog.runtime.receive_buffers import ReceiveBuffers
from tidelog.runtime.socket_channel import SocketChannel
from tidelog.runtime.socket_reader import SocketReader
from tidelog.runtime.socket_writer import SocketWriter, read_whole
from tidelog.runtime.turns import Turns

HANDSHAKE_TIMEOUT_S = 10.0
"""A connection whose handshake takes longer is closed."""

RETRY_S = 0.01
"""Pause before a handshake goes on whose messages the socket did not take."""

BYTES_PER_WRITE = 64 * 1024
"""Bytes that are encrypted at a time: four records."""


class TlsReader(SocketReader):
    """Reads decrypted bytes. OpenSSL may hold some that the event loop does not know of."""

    _BLOCKED = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
    _READS_UNTIL_BLOCKED = True
    _MAX_READS = 64  # of one record, at most 16 KiB, each

    _channel: "TlsChannel"

    @property
    def _has_unread_bytes(self) -> bool:
        return self.frames.has_bytes or self._channel.decrypted_bytes > 0

    def unmute(self) -> None:
        super().unmute()
        self._read_on()

    def _read_frames(self) -> None:
        if not self._channel.is_secured and not self._channel.shake_hands():
            return
        super()._read_frames()
        self._read_on()

    def _read_on(self) -> None:
        """The event loop does not report bytes that are decrypted already."""
        if self._is_reading and not self._is_muted and self._channel.decrypted_bytes:
            self._queue_up(is_continued=True)

    def retry_later(self) -> None:
        self._loop.call_later(RETRY_S, self._queue_up)


class TlsWriter(SocketWriter):
    """Encrypts what is sent. Nothing is sent before the handshake is complete."""

    _SENDS_PLAIN_BYTES = False

    def __init__(
        self, channel: "TlsChannel", connection: ssl.SSLSocket, loop: asyncio.AbstractEventLoop, turns: Turns
    ) -> None:
        super().__init__(channel, connection, loop, turns)
        self._is_writing = True  # until `start`

    def start(self) -> None:
        self._is_writing = False
        self.flush()

    def _send_file(self, slice_: FileSlice) -> bool:
        """Read a part of the file, which `_send_buffers` encrypts."""
        length = min(slice_.length, BYTES_PER_WRITE)
        self._outgoing[0] = read_whole(FileSlice(slice_.file, slice_.position, length))
        self._channel.file_backlog_bytes -= length
        if length < slice_.length:
            rest = FileSlice(slice_.file, slice_.position + length, slice_.length - length)
            self._outgoing.insert(1, rest)
        return True

    def _send_buffers(self) -> bool:
        buffers = self._gather()
        for index, buffer in enumerate(buffers):
            left = memoryview(buffer)
            while left:
                try:
                    sent = self._socket.send(left[:BYTES_PER_WRITE])
                except (ssl.SSLWantWriteError, BlockingIOError):
                    # OpenSSL keeps an encrypted record and expects the same bytes again: they stay first in the queue.
                    self._outgoing.extendleft(reversed([left, *buffers[index + 1 :]]))
                    return False
                self._channel.backlog_bytes -= sent
                left = left[sent:]
        return True


class TlsChannel(SocketChannel):
    """A connection with TLS. `peer_subject` is known before the first frame is delivered."""

    _socket: ssl.SSLSocket
    reader: TlsReader
    writer: TlsWriter

    def __init__(
        self,
        connection: ssl.SSLSocket,
        loop: asyncio.AbstractEventLoop,
        buffers: ReceiveBuffers,
        turns: Turns,
        max_frame_bytes: int,
        handshakes: OpenHandshakes | None = None,
    ) -> None:
        """`handshakes`: those of the same listener."""
        self.is_secured = False
        self._handshakes = handshakes
        self._on_secured: asyncio.Future[None] | None = None
        super().__init__(connection, loop, buffers, turns, max_frame_bytes)
        self._loop = loop
        self._timeout = loop.call_later(
            HANDSHAKE_TIMEOUT_S, self.close, f"not complete after {HANDSHAKE_TIMEOUT_S:g} s"
        )
        if handshakes is not None:
            handshakes.add(self)

    def _make_halves(
        self,
        connection: ssl.SSLSocket,
        loop: asyncio.AbstractEventLoop,
        buffers: ReceiveBuffers,
        turns: Turns,
        max_frame_bytes: int,
    ) -> tuple[TlsReader, TlsWriter]:
        return (
            TlsReader(self, connection, loop, buffers, turns, max_frame_bytes),
            TlsWriter(self, connection, loop, turns),
        )

    @property
    def decrypted_bytes(self) -> int:
        """Bytes that OpenSSL has decrypted and nobody has read."""
        return 0 if self.is_closed or not self.is_secured else self._socket.pending()

    def shake_hands(self) -> bool:
        """Go on with the handshake; True if it is complete. Raises SSLError."""
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            self.reader.retry_later()
            return False
        self.peer_subject = self._subject()
        self.is_secured = True
        self._end_handshake()
        if self._on_secured is not None and not self._on_secured.done():
            self._on_secured.set_result(None)
        self.writer.start()
        return True

    def _subject(self) -> str | None:
        """Name in the certificate of the peer. Raises SSLError."""
        try:
            certificate = self._socket.getpeercert()
        except ValueError as error:  # of a text that is none
            raise ssl.SSLError(errno.EPROTO, f"the certificate cannot be read: {error}") from error
        return distinguished_name(certificate) if certificate else None

    def _end_handshake(self) -> None:
        self._timeout.cancel()
        if self._handshakes is not None:
            self._handshakes.discard(self)

    async def connect(self) -> None:
        """The client's side of the handshake. Raises OSError with the reason if it fails."""
        try:
            if self.shake_hands():
                return
        except OSError as error:
            self.close(error.strerror or type(error).__name__)
            raise
        self._on_secured = self._loop.create_future()
        await self._on_secured

    def close(self, reason: str) -> None:
        if self.is_closed:
            return
        self._end_handshake()
        if not self.is_secured:
            reason = HandshakeFailed(f"TLS handshake failed: {reason}")
        if self._on_secured is not None and not self._on_secured.done():
            self._on_secured.set_exception(ConnectionError(reason))
        if self.is_secured:
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()  # the peer learns that nothing is missing; its answer is not awaited
        super().close(reason)

"""TCP network with non-blocking sockets (SocketServer).

asyncio's transports copy received bytes and cannot mix buffers with sendfile. Channels therefore
register their sockets with the event loop themselves.
"""

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tidelog.runtime.disk import FileSlice
from tidelog.runtime.network import AcceptChannel, Channel, FramePart, FrameReceiver
from tidelog.runtime.receive_buffers import BUFFER_BYTES, ReceiveBuffers
from tidelog.runtime.turns import Turns
from tidelog.types import Buffer

LENGTH = struct.Struct(">i")
LENGTH_BYTES = 4

MAX_READS_PER_WAKE_UP = 16
"""Reads of one connection before others are served."""

KEEP_BUFFER_ABOVE_BYTES = 16 * 1024
"""A smaller partial frame is copied and the buffer returned, so that a thousand stalled connections
hold kilobytes, not megabytes."""

MAX_BYTES_PER_WRITE = 2 * 1024 * 1024
"""Bytes written to one connection before others are served."""

SENDFILE_FROM_BYTES = 16 * 1024
"""Below this, a read and a joint write are cheaper than a separate sendfile call."""

JOIN_BELOW_BYTES = 64 * 1024
"""Smaller buffers are joined into one; larger ones are passed to the kernel as they are."""

MAX_BUFFERS_PER_WRITE = 512
MAX_ACCEPTS_PER_WAKE_UP = 16
ACCEPT_PAUSE_S = 0.1


class FrameTooLarge(Exception):
    """The frame length is above the limit or negative."""


class SocketChannel:
    """One TCP connection: reading, framing and writing."""

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
        self._fd = connection.fileno()
        self._loop = loop
        self._buffers = buffers
        self._turns = turns
        self._max_frame_bytes = max_frame_bytes
        self.peer_host, self.peer_port = connection.getpeername()[:2]
        self.last_activity = loop.time()
        self.is_privileged = False
        self.backlog_bytes = 0
        self._file_backlog_bytes = 0
        self._buffer: bytearray | None = None  # borrowed while a frame is incomplete
        self._start = 0  # first byte that is not delivered yet
        self._filled = 0
        self._frame_end = 0  # end of the current frame, if known and within the buffer
        self._partial_frame = b""  # a short partial frame, kept without a buffer
        self.held_bytes = 0
        self._progress_bytes = 0
        self._outgoing: deque[FramePart] = deque()
        self._is_reading = False  # requested by the receiver
        self._is_queued = False  # frames, or readable bytes, wait for a turn
        self._was_notified = False  # the loop reported readable bytes while queued
        self._is_ignored = False  # so the reader is removed until its turn
        self._is_muted = False  # memory for partial frames is exhausted
        self._has_reader = False
        self._is_writing = False  # the rest is sent when the socket is writable
        self._is_write_queued = False
        self._has_writer = False
        self.is_closed = False

    # ---- receiving

    def resume_reading(self) -> None:
        if not self._is_reading and not self.is_closed:
            self._is_reading = True
            if self._partial_frame or self._buffer is not None:
                self._queue_up(is_continued=True)  # complete frames may have been left when reading paused
            else:
                self._update_reader()

    def pause_reading(self) -> None:
        self._is_reading = False
        self._update_reader()

    def _update_reader(self) -> None:
        """Add or remove the reader callback in the event loop, as the state requires."""
        is_wanted = self._is_reading and not self._is_muted and not self._is_ignored
        if is_wanted == self._has_reader:
            return
        self._has_reader = is_wanted
        if is_wanted:
            self._loop.add_reader(self._fd, self._on_readable)
        else:
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        if not self._has_reader:
            return
        turns = self._turns
        if self._is_queued:
            if self._was_notified:
                self._ignore()
            self._was_notified = True
        elif self.is_privileged:
            turns.begin_privileged()
            self._receive()
        elif turns.begin():
            self._receive()
            turns.end()
        else:
            # A thousand connections that send single bytes must not delay those that send whole requests.
            self._queue_up(is_continued=self.held_bytes > 0)
            self._ignore()

    def _ignore(self) -> None:
        """Remove the reader until its turn. Only after a second notification: often the turn comes first, and two
        system calls are saved."""
        self._is_ignored = True
        self._update_reader()

    def _queue_up(self, *, is_continued: bool = False) -> None:
        if not self._is_queued:
            self._is_queued = True
            if self.is_privileged:
                self._loop.call_soon(self._take_turn)
            else:
                self._turns.queue(self._take_turn, is_continued=is_continued)

    def _take_turn(self) -> None:
        self._is_queued = False
        self._was_notified = self._is_ignored = False
        if self._is_reading and not self._is_muted:
            if self.is_privileged:
                self._turns.begin_privileged()
            self._receive()
        if not self._is_queued:
            self._update_reader()

    def _receive(self) -> None:
        try:
            self._read_frames()
        except FrameTooLarge as error:
            self.close(str(error))
        except OSError as error:
            self.close(error.strerror or type(error).__name__)
        if not self.is_closed:
            self.receiver.on_frames_done()

    def _read_frames(self) -> None:
        self.last_activity = self._loop.time()
        buffer = self._buffer
        if buffer is None:
            buffer = self._borrow_buffer()
        try:
            if self._filled:
                buffer = self._deliver_frames(buffer)
            for _ in range(MAX_READS_PER_WAKE_UP):
                if not self._is_reading or self._is_queued:
                    return
                room = self._room(buffer)
                received = self._socket.recv_into(room)
                if received == 0:
                    self.close("closed by the peer")
                    return
                self._filled += received
                self._progress_bytes += received
                if self._filled >= self._frame_end:
                    buffer = self._deliver_frames(buffer)
                if received < len(room) and self._filled - self._start < KEEP_BUFFER_ABOVE_BYTES:
                    return  # the socket is empty; within a large frame more may have arrived meanwhile
        except (BlockingIOError, InterruptedError):
            return
        finally:
            self._keep_rest(buffer)

    def _borrow_buffer(self) -> bytearray:
        buffer = self._buffers.take()
        self._start, self._filled = 0, len(self._partial_frame)
        buffer[: self._filled] = self._partial_frame
        self._partial_frame = b""
        return buffer

    def _room(self, buffer: bytearray) -> memoryview:
        """Memory to receive into: up to the end of the current frame, so that the next frame starts at 0."""
        filled = self._filled
        end = filled + self._buffers.receive_bytes
        if self._frame_end:
            return memoryview(buffer)[filled : min(end, self._frame_end)]
        end = min(len(buffer), end)
        if filled - self._start >= LENGTH_BYTES:
            end = min(end, self._start + LENGTH_BYTES + LENGTH.unpack_from(buffer, self._start)[0])
        return memoryview(buffer)[filled:end]

    def _deliver_frames(self, buffer: bytearray) -> bytearray:
        """Deliver all complete frames, and make room for the rest of a partial one."""
        start, filled = self._start, self._filled
        self._frame_end = 0
        view = memoryview(buffer)
        turns, on_frame = self._turns, self.receiver.on_frame
        now = turns.now
        while filled - start >= LENGTH_BYTES:
            length = LENGTH.unpack_from(buffer, start)[0]
            if not 0 <= length <= self._max_frame_bytes:
                raise FrameTooLarge(f"frame of {length} bytes, the limit is {self._max_frame_bytes}")
            end = start + LENGTH_BYTES + length
            if end > filled:
                break
            on_frame(view[start + LENGTH_BYTES : end])
            start = end
            if not self._is_reading:
                break
            if now() >= turns.slice_end:
                self._queue_up(is_continued=True)
                break
        if start == filled or self.is_closed:
            self._start = self._filled = 0
            return buffer
        self._start = start
        return self._make_room(buffer) if self._is_reading and not self._is_queued else buffer

    def _make_room(self, buffer: bytearray) -> bytearray:
        """Make room for the current frame. Memory grows with received bytes, not with the announced length."""
        pending = self._filled - self._start
        needed = LENGTH_BYTES
        if pending >= LENGTH_BYTES:
            needed += LENGTH.unpack_from(buffer, self._start)[0]
        if self._start + needed <= len(buffer):
            self._frame_end = self._start + needed if pending >= LENGTH_BYTES else 0
            return buffer
        target = buffer if needed <= len(buffer) else self._larger(buffer, needed, pending)
        if target is buffer and self._start == 0:
            return buffer
        target[:pending] = memoryview(buffer)[self._start : self._filled]
        self._start, self._filled = 0, pending
        if target is not buffer:
            self._buffers.give_back(buffer)
        return target

    def _larger(self, buffer: bytearray, needed: int, pending: int) -> bytearray:
        """A buffer for a large frame: a spare one or, when this one is full, one twice as large."""
        spare = self._buffers.take_large(needed)
        if spare is not None:
            return spare
        return buffer if pending < len(buffer) else bytearray(min(_in_whole_buffers(needed), 2 * len(buffer)))

    def _keep_rest(self, buffer: bytearray) -> None:
        """Keep the partial frame: a short one as a copy, a long one in its buffer while memory is ample."""
        pending = 0 if self.is_closed else self._filled - self._start
        if pending < KEEP_BUFFER_ABOVE_BYTES:
            self._partial_frame = bytes(memoryview(buffer)[self._start : self._filled]) if pending else b""
            self._buffer = None
            self._buffers.give_back(buffer)
            if not pending and not self.held_bytes:
                return  # the usual case
        else:
            self._buffer = buffer if self._buffers.is_memory_ample else self._shrunk(buffer)
        self._report_held()
        if self.held_bytes and not self.is_closed and not self._is_queued:
            self._buffers.mute_if_exhausted(self)

    def _shrunk(self, buffer: bytearray) -> bytearray:
        """Copy the partial frame to a buffer of about its size, which grows with received bytes."""
        pending = self._filled - self._start
        if len(buffer) <= 2 * pending + KEEP_BUFFER_ABOVE_BYTES:
            return buffer
        smaller = bytearray(pending + pending // 2)
        smaller[:pending] = memoryview(buffer)[self._start : self._filled]
        self._start, self._filled = 0, pending
        self._buffers.give_back(buffer)
        return smaller

    def _report_held(self) -> None:
        """Connections of brokers do not count: they are never muted for clients."""
        held_bytes = 0
        if not self.is_privileged:
            held_bytes = len(self._partial_frame) if self._buffer is None else len(self._buffer)
        change, self.held_bytes = held_bytes - self.held_bytes, held_bytes
        self._buffers.report_held(self, change)

    def _release_buffer(self) -> None:
        self._buffer, self._partial_frame = None, b""
        if self.held_bytes:
            self._report_held()

    # ---- Holder

    @property
    def missing_bytes(self) -> int:
        data: Buffer = (
            self._partial_frame if self._buffer is None else memoryview(self._buffer)[self._start : self._filled]
        )
        if len(data) < LENGTH_BYTES:
            return 0
        announced: int = LENGTH.unpack_from(data)[0]
        return max(0, announced + LENGTH_BYTES - len(data))

    def mute(self) -> None:
        self._is_muted = True
        self._update_reader()

    def unmute(self) -> None:
        if self._is_muted and not self.is_closed:
            self._is_muted = False
            self._update_reader()

    def take_progress(self) -> int | None:
        progress, self._progress_bytes = self._progress_bytes, 0
        is_expected = self._is_reading and not self._is_queued
        return progress if is_expected else None

    # ---- sending

    def send(self, parts: Sequence[FramePart]) -> None:
        if self.is_closed:
            return
        size = sum(map(len, parts))
        self.backlog_bytes += LENGTH_BYTES + size
        length = LENGTH.pack(size)
        if size < JOIN_BELOW_BYTES:
            try:
                self._outgoing.append(length + b"".join(parts))  # type: ignore[arg-type]
                return
            except TypeError:
                pass  # one part is a file slice
        self._outgoing.append(length)
        self._outgoing.extend(parts)
        for part in parts:
            if isinstance(part, FileSlice):
                self._file_backlog_bytes += len(part)

    @property
    def backlog_memory_bytes(self) -> int:
        return self.backlog_bytes - self._file_backlog_bytes

    def flush(self) -> None:
        if self._outgoing and not self._is_writing and not self.is_closed:
            self._write()

    def _write(self) -> None:
        least_backlog = self.backlog_bytes - MAX_BYTES_PER_WRITE
        try:
            while self._outgoing and self.backlog_bytes > least_backlog:
                first = self._outgoing[0]
                if isinstance(first, FileSlice) and len(first) >= SENDFILE_FROM_BYTES:
                    left = self._send_file(first)
                else:
                    left = self._send_buffers()
                if not left:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(error.strerror or type(error).__name__)
            return
        self._update_writing()

    def _send_file(self, slice_: FileSlice) -> bool:
        """True if all of it was sent."""
        source = slice_.file.fileno()
        if source is None:
            self._outgoing[0] = _read_whole(slice_)
            self._file_backlog_bytes -= len(slice_)
            return True
        sent = os.sendfile(self._fd, source, slice_.position, slice_.length)
        if sent == 0:
            raise _cut_short(slice_)
        self.backlog_bytes -= sent
        self._file_backlog_bytes -= sent
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
        total = sum(map(len, buffers))
        sent = 0
        try:
            sent = (
                self._socket.sendmsg(buffers, (), flags) if len(buffers) > 1 else self._socket.send(buffers[0], flags)
            )
        finally:
            self.backlog_bytes -= sent
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
                if len(part) >= SENDFILE_FROM_BYTES:
                    break
                self._file_backlog_bytes -= len(part)
                part = _read_whole(part)
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

    def _update_writing(self) -> None:
        was_writing, self._is_writing = self._is_writing, bool(self._outgoing)
        self._update_writer()
        if was_writing and not self._is_writing:
            self.receiver.on_drained()

    def _update_writer(self) -> None:
        is_wanted = self._is_writing and not self._is_write_queued
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
        self.last_activity = self._loop.time()
        if self.is_privileged:
            self._write()
        elif self._turns.begin():
            self._write()
            self._turns.end()
        else:
            self._is_write_queued = True
            self._update_writer()
            self._turns.queue(self._take_turn_to_write)

    def _take_turn_to_write(self) -> None:
        self._is_write_queued = False
        if not self.is_closed:
            self._write()

    def close(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.pause_reading()
        self._is_writing = False
        self._update_writer()
        self._outgoing.clear()
        self.backlog_bytes = self._file_backlog_bytes = 0
        self._release_buffer()
        self._socket.close()
        self.receiver.on_closed(reason)


def _in_whole_buffers(size_bytes: int) -> int:
    """Round up, so that the buffer also fits a next frame that is a little larger."""
    return -(-size_bytes // BUFFER_BYTES) * BUFFER_BYTES


def _read_whole(slice_: FileSlice) -> bytes:
    data = slice_.read()
    if len(data) != slice_.length:
        raise _cut_short(slice_)
    return data


def _cut_short(slice_: FileSlice) -> OSError:
    """The length of the response is already sent: only closing the connection can report the error."""
    return OSError(errno.EIO, f"{slice_.file.path} ends before position {slice_.position + slice_.length}")


class SocketListener:
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


class _RefusedReceiver:
    """Receiver of a refused connection, which is closed before it reads."""

    def on_frame(self, frame: memoryview) -> None: ...

    def on_frames_done(self) -> None: ...

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None: ...


def start_channel(channel: SocketChannel, accept: AcceptChannel) -> None:
    receiver = accept(channel)
    if receiver is None:
        channel.receiver = _RefusedReceiver()
        channel.close("refused")
        return
    channel.receiver = receiver
    channel.resume_reading()


def _refuse_self_connection(connection: socket.socket) -> None:
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
    ) -> None:
        self._accept_backlog = accept_backlog
        self._max_frame_bytes = max_frame_bytes
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._buffers = ReceiveBuffers(max_buffered_bytes)
        self._turns = turns

    def host_name(self) -> str:
        return socket.gethostname()

    @property
    def held_bytes(self) -> int:
        """Memory held by partial frames."""
        return self._buffers.held_bytes

    async def listen(self, host: str, port: int, accept: AcceptChannel) -> SocketListener:
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
        return SocketListener(listening, loop, self._make_channel, accept)

    async def connect(self, host: str, port: int, attach: Callable[[Channel], FrameReceiver]) -> SocketChannel:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        connection = await self._connect_to_any(addresses, loop)
        channel = self._make_channel(connection)
        channel.is_privileged = True  # this process chose the peer: a broker
        start_channel(channel, attach)
        return channel

    async def _connect_to_any(self, addresses: list[Any], loop: asyncio.AbstractEventLoop) -> socket.socket:
        """Connect to the first address that accepts: localhost may have two, and a server may listen on one."""
        failure: OSError | None = None
        for family, kind, protocol, _, address in addresses:
            connection = socket.socket(family, kind, protocol)
            try:
                connection.setblocking(False)
                await loop.sock_connect(connection, address)
                _refuse_self_connection(connection)
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
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._send_buffer_bytes > 0:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            loop = asyncio.get_running_loop()
            return SocketChannel(connection, loop, self._buffers, self.turns, self._max_frame_bytes)
        except OSError:
            connection.close()
            raise

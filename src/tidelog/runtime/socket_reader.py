"""Receiving side of a TCP connection: when it reads, how much at a time, and the delivery of whole frames.

A connection reads when the event loop reports bytes and a slice of time is free (`runtime/turns.py`). It stops while
its receiver has paused it, and while the memory for partial frames is exhausted (`runtime/receive_buffers.py`).
"""

import asyncio
import socket
from typing import TYPE_CHECKING

from tidelog.runtime.frame_buffer import KEEP_BUFFER_ABOVE_BYTES, FrameBuffer
from tidelog.runtime.network import LENGTH, LENGTH_BYTES, FrameTooLarge
from tidelog.runtime.receive_buffers import ReceiveBuffers
from tidelog.runtime.turns import Turns

if TYPE_CHECKING:
    from tidelog.runtime.socket_channel import SocketChannel

unpack_length = LENGTH.unpack_from

MAX_READS_PER_WAKE_UP = 16
"""Reads of one connection before others are served."""

MAX_REPORTS_IN_QUEUE = 8
"""Reports of the event loop about a connection that waits for its turn. After these its reader is removed: two system
calls, which cost as much as ten reports, and which most turns come too early for."""


class _BadFrame(Exception):
    def __init__(self, reason: FrameTooLarge) -> None:
        super().__init__(reason)
        self.reason = reason


class SocketReader:
    """Reads the socket of a channel and delivers frames to its receiver. A `Holder` of receive buffers."""

    _BLOCKED: tuple[type[OSError], ...] = (BlockingIOError, InterruptedError)
    _READS_UNTIL_BLOCKED = False  # a short read means that the socket is empty
    _MAX_READS = MAX_READS_PER_WAKE_UP

    def __init__(
        self,
        channel: "SocketChannel",
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop,
        buffers: ReceiveBuffers,
        turns: Turns,
        max_frame_bytes: int,
    ) -> None:
        self._channel = channel
        self._socket = connection
        self._fd = connection.fileno()
        self._loop = loop
        self._buffers = buffers
        self._turns = turns
        self._max_frame_bytes = max_frame_bytes
        self.frames = FrameBuffer(buffers)
        self.held_bytes = 0
        self._progress_bytes = 0
        self._is_reading = False  # requested by the receiver
        self._is_queued = False  # frames, or readable bytes, wait for a turn
        self._reports_in_queue = 0  # how often the loop reported readable bytes while queued
        self._is_report_stale = False  # the loop may have polled before the turn that has read the bytes
        self._is_ignored = False  # so the reader is removed until its turn
        self._is_muted = False  # memory for partial frames is exhausted
        self._has_reader = False

    def resume(self) -> None:
        if not self._is_reading and not self._channel.is_closed:
            self._is_reading = True
            if self._has_unread_bytes:
                self._queue_up(is_continued=True)  # complete frames may have been left when reading paused
            else:
                self._update_reader()

    @property
    def _has_unread_bytes(self) -> bool:
        return self.frames.has_bytes

    def pause(self) -> None:
        self._is_reading = False
        self._update_reader()

    def limit_frames(self, max_bytes: int) -> None:
        self._max_frame_bytes = max_bytes

    def close(self, reason: str) -> None:
        """Close the connection: its incomplete request held too much memory."""
        self._channel.close(reason)

    def release(self) -> None:
        """The channel was closed: stop reading, and free the memory."""
        self.pause()
        self.frames.discard()
        if self.held_bytes:
            self._report_held()

    # ---- when to read

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
            self._reports_in_queue += 1
            if self._reports_in_queue > MAX_REPORTS_IN_QUEUE:
                self._is_ignored = True
                self._update_reader()
        elif self._is_report_stale:
            self._is_report_stale = False  # if there are bytes after all, the next poll reports them again
        elif self._channel.is_privileged:
            turns.begin_privileged()
            self._receive()
        elif turns.begin():
            self._receive()
            turns.end()
        else:
            # A thousand connections that send single bytes must not delay those that send whole requests.
            self._queue_up(is_continued=self.held_bytes > 0)

    def _queue_up(self, *, is_continued: bool = False) -> None:
        if not self._is_queued:
            self._is_queued = True
            if self._channel.is_privileged:
                self._loop.call_soon(self._take_turn)
            else:
                self._turns.queue(self._take_turn, is_continued=is_continued)

    def _take_turn(self) -> None:
        self._is_queued = False
        self._is_report_stale = self._has_reader
        self._is_ignored = False
        self._reports_in_queue = 0
        if self._is_reading and not self._is_muted:
            if self._channel.is_privileged:
                self._turns.begin_privileged()
            self._receive()
        if not self._is_queued:
            self._update_reader()

    # ---- reading

    def _receive(self) -> None:
        channel = self._channel
        try:
            self._read_frames()
        except _BadFrame as error:
            channel.close(error.reason)
        except OSError as error:
            channel.close(error.strerror or type(error).__name__)
        if not channel.is_closed:
            channel.receiver.on_frames_done()

    def _read_frames(self) -> None:
        self._channel.last_activity = self._turns.slice_start
        frames = self.frames
        buffer = frames.borrow()
        try:
            if frames.filled:
                buffer = self._deliver_frames(buffer)
            for _ in range(self._MAX_READS):
                if not self._is_reading or self._is_queued:
                    return
                room = frames.room(buffer)
                received = self._socket.recv_into(room)
                if received == 0:
                    self._channel.close("closed by the peer")
                    return
                frames.filled += received
                self._progress_bytes += received
                if frames.filled >= frames.frame_end:
                    is_drained = received < len(room) and not self._READS_UNTIL_BLOCKED
                    buffer = self._deliver_frames(buffer, is_drained=is_drained)
                if not (self._buffers.is_memory_ample or self._has_room()):
                    return  # `_report_held` counts what was received, and mutes this connection if memory is exhausted
                if self._READS_UNTIL_BLOCKED:
                    continue
                if received < len(room) and frames.filled - frames.start < KEEP_BUFFER_ABOVE_BYTES:
                    return  # the socket is empty; within a large frame more may have arrived meanwhile
        except self._BLOCKED:
            return
        finally:
            frames.keep_rest(buffer)
            if self.held_bytes or frames.filled != frames.start:
                self._report_held()

    def _deliver_frames(self, buffer: bytearray, *, is_drained: bool = False) -> bytearray:
        """Deliver all complete frames, and make room for the rest of a partial one.

        `is_drained`: the socket is empty, so that after the last frame it does not matter whether the slice is over.
        """
        frames, channel = self.frames, self._channel
        start, filled = frames.start, frames.filled
        frames.frame_end = 0
        view = memoryview(buffer)
        turns, on_frame = self._turns, channel.receiver.on_frame
        now = turns.now
        while filled - start >= LENGTH_BYTES:
            (length,) = unpack_length(buffer, start)
            if length > self._max_frame_bytes or length < 0:
                raise _BadFrame(FrameTooLarge.of(length, self._max_frame_bytes))
            body = start + LENGTH_BYTES
            end = body + length
            if end > filled:
                break
            on_frame(view[body:end])
            start = end
            if not self._is_reading or (start == filled and is_drained):
                break
            if now() >= turns.slice_end and turns.is_slice_over():
                self._queue_up(is_continued=True)
                break
        if start == filled or channel.is_closed:
            frames.start = frames.filled = 0
            return buffer
        frames.start = start
        return frames.make_room(buffer) if self._is_reading and not self._is_queued else buffer

    # Memory of partial frames (Holder)

    def _has_room(self) -> bool:
        """Whether this connection may receive more before its memory is counted again."""
        more_bytes = self.frames.filled - self.frames.start - self.held_bytes
        return self._channel.is_privileged or self._buffers.has_room_for(more_bytes)

    def _report_held(self) -> None:
        """Connections of brokers do not count: they are never muted for clients."""
        channel = self._channel
        held_bytes = 0 if channel.is_privileged else self.frames.memory_bytes
        change, self.held_bytes = held_bytes - self.held_bytes, held_bytes
        self._buffers.report_held(self, change)
        if held_bytes and not channel.is_closed and not self._is_queued:
            self._buffers.mute_if_exhausted(self)

    @property
    def missing_bytes(self) -> int:
        return self.frames.missing_bytes

    def mute(self) -> None:
        self._is_muted = True
        self._update_reader()

    def unmute(self) -> None:
        if self._is_muted and not self._channel.is_closed:
            self._is_muted = False
            self._update_reader()

    def take_progress(self) -> int | None:
        progress, self._progress_bytes = self._progress_bytes, 0
        is_expected = self._is_reading and not self._is_queued
        return progress if is_expected else None

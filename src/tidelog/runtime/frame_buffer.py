"""Memory of the frame that a connection is receiving.

A connection borrows a buffer while it receives, and keeps it only for a long partial frame. Memory grows with the bytes
that arrived, never with the length that the peer announced.
"""

from tidelog.runtime.network import LENGTH, LENGTH_BYTES
from tidelog.runtime.receive_buffers import BUFFER_BYTES, ReceiveBuffers
from tidelog.types import Buffer

KEEP_BUFFER_ABOVE_BYTES = 16 * 1024
"""A smaller partial frame is copied and the buffer returned, so that a thousand stalled connections
hold kilobytes, not megabytes."""


class FrameBuffer:
    """Received bytes of one connection that are not delivered yet: `start` to `filled` of the current buffer.

    While a connection receives, it holds the buffer that `borrow` returned and passes it to the other methods. In
    between, the rest of a partial frame is kept here.
    """

    __slots__ = ("_buffers", "_kept", "_partial_frame", "filled", "frame_end", "start")

    def __init__(self, buffers: ReceiveBuffers) -> None:
        self._buffers = buffers
        self._kept: bytearray | None = None  # holds a long partial frame
        self._partial_frame = b""  # a short partial frame, kept without a buffer
        self.start = 0  # first byte that is not delivered yet
        self.filled = 0
        self.frame_end = 0  # end of the current frame, if known and within the buffer

    @property
    def has_bytes(self) -> bool:
        """Whether bytes are kept between two wake-ups: a partial frame, or frames that are not delivered yet."""
        return self._kept is not None or len(self._partial_frame) > 0

    @property
    def memory_bytes(self) -> int:
        """Memory that is kept between two wake-ups."""
        return len(self._partial_frame) if self._kept is None else len(self._kept)

    @property
    def missing_bytes(self) -> int:
        """Missing bytes of the current frame, as far as its length is known."""
        data: Buffer = self._partial_frame if self._kept is None else memoryview(self._kept)[self.start : self.filled]
        if len(data) < LENGTH_BYTES:
            return 0
        announced: int = LENGTH.unpack_from(data)[0]
        return max(0, announced + LENGTH_BYTES - len(data))

    def borrow(self) -> bytearray:
        """The buffer to receive into, with the partial frame in it."""
        if self._kept is not None:
            return self._kept
        buffer = self._buffers.take()
        self.start = self.filled = 0
        if self._partial_frame:
            self.filled = len(self._partial_frame)
            buffer[: self.filled] = self._partial_frame
            self._partial_frame = b""
        return buffer

    def room(self, buffer: bytearray) -> bytearray | memoryview:
        """Memory to receive into: up to the end of the current frame, so that the next frame starts at 0."""
        filled = self.filled
        if not filled and len(buffer) == BUFFER_BYTES and self._buffers.is_memory_ample:
            return buffer  # the usual case
        end = filled + self._buffers.receive_bytes
        if self.frame_end:
            return memoryview(buffer)[filled : min(end, self.frame_end)]
        end = min(len(buffer), end)
        if filled - self.start >= LENGTH_BYTES:
            end = min(end, self.start + LENGTH_BYTES + LENGTH.unpack_from(buffer, self.start)[0])
        return memoryview(buffer)[filled:end]

    def make_room(self, buffer: bytearray) -> bytearray:
        """Make room for the rest of the current frame: in this buffer or, with its bytes moved, in a larger one."""
        pending = self.filled - self.start
        needed = LENGTH_BYTES
        if pending >= LENGTH_BYTES:
            needed += LENGTH.unpack_from(buffer, self.start)[0]
        if self.start + needed <= len(buffer):
            self.frame_end = self.start + needed if pending >= LENGTH_BYTES else 0
            return buffer
        target = buffer if needed <= len(buffer) else self._larger_buffer(buffer, needed, pending)
        if target is buffer and self.start == 0:
            return buffer
        target[:pending] = memoryview(buffer)[self.start : self.filled]
        self.start, self.filled = 0, pending
        if target is not buffer:
            self._buffers.give_back(buffer)
        return target

    def _larger_buffer(self, buffer: bytearray, needed: int, pending: int) -> bytearray:
        """A buffer for a large frame: a spare one or, when this one is full, one twice as large."""
        spare = self._buffers.take_large(needed)
        if spare is not None:
            return spare
        return buffer if pending < len(buffer) else bytearray(min(_rounded_up_to_buffers(needed), 2 * len(buffer)))

    def keep_rest(self, buffer: bytearray) -> None:
        """Keep the partial frame: a short one as a copy, a long one in its buffer while memory is ample."""
        pending = self.filled - self.start
        if pending < KEEP_BUFFER_ABOVE_BYTES:
            self._partial_frame = bytes(memoryview(buffer)[self.start : self.filled]) if pending else b""
            self._kept = None
            self._buffers.give_back(buffer)
        else:
            self._kept = buffer if self._buffers.is_memory_ample else self._shrunk(buffer)

    def _shrunk(self, buffer: bytearray) -> bytearray:
        """Copy the partial frame to a buffer of about its size, which grows with received bytes."""
        pending = self.filled - self.start
        if len(buffer) <= 2 * pending + KEEP_BUFFER_ABOVE_BYTES:
            return buffer
        smaller = bytearray(pending + pending // 2)
        smaller[:pending] = memoryview(buffer)[self.start : self.filled]
        self.start, self.filled = 0, pending
        self._buffers.give_back(buffer)
        return smaller

    def discard(self) -> None:
        """The connection is closed: drop the bytes that were not delivered."""
        self._kept, self._partial_frame = None, b""
        self.start = self.filled = 0


def _rounded_up_to_buffers(size_bytes: int) -> int:
    """Round up, so that the buffer also fits a next frame that is a little larger."""
    return -(-size_bytes // BUFFER_BYTES) * BUFFER_BYTES

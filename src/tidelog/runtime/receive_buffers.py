"""Receive buffers that connections borrow: an idle connection holds none."""

from bisect import insort
from collections import deque
from typing import Protocol

BUFFER_BYTES = 1024 * 1024
"""Fits the batches that producers send by default (1 MB) with their frame around them."""

MAX_SPARE_BUFFERS = 4

MAX_SPARE_LARGE_BYTES = 24 * 1024 * 1024
"""Two answers of the size that followers ask for (`replica.fetch.response.max.bytes`, 10 MiB), from two leaders."""


class Reader(Protocol):
    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class ReceiveBuffers:
    """A few buffers kept warm, since fresh memory costs a page fault every 4 KiB.

    Connections in the middle of a frame hold theirs. When those reach the limit
    (`queued.max.request.bytes`), connections that would start a new frame wait.
    """

    def __init__(self, max_held_bytes: int = -1) -> None:
        self._spare: list[bytearray] = []
        self._spare_large: list[bytearray] = []  # the smallest first
        self._max_held_bytes = max_held_bytes
        self.held_bytes = 0
        self._waiting: deque[Reader] = deque()

    @property
    def is_exhausted(self) -> bool:
        return 0 < self._max_held_bytes <= self.held_bytes

    def take(self) -> bytearray:
        return self._spare.pop() if self._spare else bytearray(BUFFER_BYTES)

    def take_large(self, size_bytes: int) -> bytearray | None:
        """A spare one that holds so much. None where there is none: new memory is spent as bytes arrive."""
        for index, buffer in enumerate(self._spare_large):
            if len(buffer) >= size_bytes:
                return self._spare_large.pop(index)
        return None

    def give_back(self, buffer: bytearray) -> None:
        if len(buffer) == BUFFER_BYTES:
            if len(self._spare) < MAX_SPARE_BUFFERS:
                self._spare.append(buffer)
        elif BUFFER_BYTES < len(buffer) <= MAX_SPARE_LARGE_BYTES:
            insort(self._spare_large, buffer, key=len)
            while sum(map(len, self._spare_large)) > MAX_SPARE_LARGE_BYTES:
                del self._spare_large[0]

    def note_held(self, change_bytes: int) -> None:
        self.held_bytes += change_bytes
        if change_bytes < 0:
            while self._waiting and not self.is_exhausted:
                self._waiting.popleft().resume_reading()

    def wait(self, reader: Reader) -> None:
        """Stop the reader until somebody finished a frame."""
        reader.pause_reading()
        self._waiting.append(reader)

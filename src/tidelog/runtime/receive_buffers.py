"""Receive buffers, and the memory limit of incomplete requests (queued.max.request.bytes, Kafka's MemoryPool)."""

import asyncio
import logging
from bisect import insort
from collections.abc import Sequence
from typing import Protocol

logger = logging.getLogger(__name__)

BUFFER_BYTES = 1024 * 1024
"""Fits a request with the default maximum batch of producers (1 MB)."""

MAX_SPARE_BUFFERS = 4

MAX_SPARE_LARGE_BYTES = 24 * 1024 * 1024
"""Two responses of `replica.fetch.response.max.bytes` (10 MiB), from two leaders."""

AMPLE_BELOW_BYTES = 16 * 1024 * 1024
"""Above this, partial frames are copied to memory of their size, and connections receive less at a time."""

REDUCED_RECEIVE_BYTES = 64 * 1024
MIN_RECEIVE_BYTES = 8 * 1024
"""Bytes that a connection may receive while memory is exhausted: every new one may add as much."""

CHECK_S = 1.0
MIN_PROGRESS_BYTES = 1024
"""While memory is exhausted, a connection that sent less between two checks counts as stalled."""

MAX_CHECKS_WITHOUT_PROGRESS = 2
"""After this many checks without a completed frame, connections with the most missing bytes are closed."""

SHARED_PART = 0.6
TARGET_PART = 0.75


class Holder(Protocol):
    """A connection that holds memory: a partial frame, or frames that wait for their turn."""

    @property
    def held_bytes(self) -> int: ...

    @property
    def missing_bytes(self) -> int:
        """Missing bytes of the current frame."""
        ...

    def mute(self) -> None:
        """Receive nothing until `unmute`."""
        ...

    def unmute(self) -> None: ...

    def take_progress(self) -> int | None:
        """Bytes received since the last call; None if the connection is not reading."""
        ...

    def close(self, reason: str) -> None: ...


class ReceiveBuffers:
    """A few buffers are reused, since fresh memory costs a page fault every 4 KiB.

    A connection with a partial frame keeps its buffer. When all of them together reach the limit
    (`queued.max.request.bytes`), connections with partial frames are muted until others have completed theirs.
    Stalled connections are closed; if no frame completes, those with the most missing bytes are closed, so that small
    requests come through.
    """

    def __init__(self, max_held_bytes: int = -1) -> None:
        self._spare: list[bytearray] = []
        self._spare_large: list[bytearray] = []  # the smallest first
        self._max_held_bytes = max_held_bytes
        self.held_bytes = 0
        self.is_memory_ample = True  # an attribute, since every wake-up of a connection asks for it
        self._holders: dict[Holder, None] = {}
        self._muted: dict[Holder, None] = {}
        self._check: asyncio.TimerHandle | None = None
        self._has_unmuted = False  # since the last check
        self._checks_without_progress = 0

    @property
    def is_exhausted(self) -> bool:
        return 0 < self._limit_bytes <= self.held_bytes

    @property
    def _limit_bytes(self) -> float:
        """One frame may use the whole limit. Several frames leave room for fragmentation."""
        return self._max_held_bytes * (1 if len(self._holders) <= 1 else SHARED_PART)

    @property
    def receive_bytes(self) -> int:
        """Maximum bytes that a connection receives at a time."""
        if self.is_memory_ample:
            return BUFFER_BYTES
        return MIN_RECEIVE_BYTES if self.is_exhausted else REDUCED_RECEIVE_BYTES

    def has_room_for(self, more_bytes: int) -> bool:
        """Whether a connection may hold this much more without exhausting memory."""
        return self._max_held_bytes <= 0 or self.held_bytes + more_bytes < self._limit_bytes

    def take(self) -> bytearray:
        return self._spare.pop() if self._spare else bytearray(BUFFER_BYTES)

    def take_large(self, size_bytes: int) -> bytearray | None:
        """A spare buffer of at least this size, or None: new memory is allocated as bytes arrive."""
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

    def report_held(self, holder: Holder, change_bytes: int) -> None:
        """Update the memory that the holder holds."""
        self.held_bytes += change_bytes
        self.is_memory_ample = self.held_bytes < AMPLE_BELOW_BYTES
        if holder.held_bytes:
            self._holders[holder] = None
        else:
            self._holders.pop(holder, None)
            self._muted.pop(holder, None)
        if self._muted:
            if not self.is_exhausted:
                self._unmute(min(self._muted, key=lambda holder: holder.missing_bytes))
            elif (oldest := next(iter(self._holders))) in self._muted and self._may_go_on(oldest):
                self._unmute(oldest)

    def mute_if_exhausted(self, holder: Holder) -> None:
        """Mute a holder that wants to receive more, if memory is exhausted."""
        if self.is_exhausted and holder in self._holders and not self._may_go_on(holder):
            self._muted[holder] = None
            holder.mute()
            if self._check is None:
                self._check = asyncio.get_running_loop().call_later(CHECK_S, self._free_memory)

    def _may_go_on(self, holder: Holder) -> bool:
        """The oldest holder goes on if it is alone (one frame may be as large as the limit) or lacks little."""
        is_oldest = holder is next(iter(self._holders))
        return is_oldest and (len(self._holders) == 1 or holder.missing_bytes <= BUFFER_BYTES)

    def _unmute(self, holder: Holder) -> None:
        self._has_unmuted = True
        del self._muted[holder]
        holder.unmute()

    def _free_memory(self) -> None:
        self._check = None
        stalled = [
            holder
            for holder in self._holders
            if holder not in self._muted
            and (progress := holder.take_progress()) is not None
            and progress < MIN_PROGRESS_BYTES
        ]
        stalled.sort(key=lambda holder: holder.held_bytes, reverse=True)
        closed = self._close_some(stalled)
        self._checks_without_progress = 0 if closed or self._has_unmuted else self._checks_without_progress + 1
        if self._checks_without_progress >= MAX_CHECKS_WITHOUT_PROGRESS:
            by_missing_bytes = sorted(self._holders, key=lambda holder: holder.missing_bytes, reverse=True)
            closed = self._close_some(by_missing_bytes)
        if closed:
            logger.warning("connections closed: queued.max.request.bytes reached count=%d", closed)
        for holder in sorted(self._muted, key=lambda holder: holder.missing_bytes):
            if self.is_exhausted:
                break
            if holder in self._muted:
                self._unmute(holder)
        self._has_unmuted = False
        if self._muted:
            self._check = asyncio.get_running_loop().call_later(CHECK_S, self._free_memory)

    def _close_some(self, holders: Sequence[Holder]) -> int:
        """Close connections until there is room again."""
        closed = 0
        for holder in holders:
            if self.held_bytes < TARGET_PART * self._limit_bytes:
                break
            closed += 1
            holder.close("its incomplete request held memory that other requests need")
        return closed

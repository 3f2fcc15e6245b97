"""Receive buffers that connections borrow, and the memory of requests that are not whole yet."""

import asyncio
import logging
from bisect import insort
from collections.abc import Sequence
from typing import Protocol

logger = logging.getLogger(__name__)

BUFFER_BYTES = 1024 * 1024
"""Fits the batches that producers send by default (1 MB) with their frame around them."""

MAX_SPARE_BUFFERS = 4

MAX_SPARE_LARGE_BYTES = 24 * 1024 * 1024
"""Two answers of the size that followers ask for (`replica.fetch.response.max.bytes`, 10 MiB), from two leaders."""

LAVISH_BELOW_BYTES = 16 * 1024 * 1024
"""Above this, rests of frames are copied to memory of their own size, and connections receive less at a time."""

THRIFTY_RECEIVE_BYTES = 64 * 1024
EXHAUSTED_RECEIVE_BYTES = 16 * 1024

CHECK_S = 1.0
LEAST_PROGRESS_BYTES = 1024
"""While memory is exhausted, a connection that sent less than this between two checks counts as stalled."""

MAX_HUNGRY_CHECKS = 2
"""After so many checks in a row without anybody finished, those whose frames lack most are closed."""

ROOM_AFTER_RELIEF = 0.75


class Holder(Protocol):
    """A connection that holds memory: a part of a frame, or frames whose turn has not come."""

    @property
    def held_bytes(self) -> int: ...

    @property
    def missing_bytes(self) -> int:
        """What the frame under way still lacks."""
        ...

    def starve(self) -> None:
        """Receive no more until `feed`."""
        ...

    def feed(self) -> None: ...

    def take_progress(self) -> int | None:
        """Bytes received since the last call; None while nothing is expected of the peer."""
        ...

    def close(self, reason: str) -> None: ...


class ReceiveBuffers:
    """A few buffers kept warm, since fresh memory costs a page fault every 4 KiB.

    Connections in the middle of a frame hold theirs. When all of them together reach the limit
    (`queued.max.request.bytes`), those that hold something receive no more until others have finished. Those whose
    peers send nothing meanwhile are closed, and if nobody finishes, those whose frames lack most: whoever needs little
    comes through.
    """

    def __init__(self, max_held_bytes: int = -1) -> None:
        self._spare: list[bytearray] = []
        self._spare_large: list[bytearray] = []  # the smallest first
        self._max_held_bytes = max_held_bytes
        self.held_bytes = 0
        self._holders: dict[Holder, None] = {}
        self._starving: dict[Holder, None] = {}
        self._check: asyncio.TimerHandle | None = None
        self._has_fed = False  # since the last check
        self._hungry_checks = 0

    @property
    def is_exhausted(self) -> bool:
        return 0 < self._max_held_bytes <= self.held_bytes

    @property
    def is_lavish(self) -> bool:
        return self.held_bytes < LAVISH_BELOW_BYTES

    @property
    def receive_bytes(self) -> int:
        """How much a connection may receive at a time."""
        if self.held_bytes < LAVISH_BELOW_BYTES:
            return BUFFER_BYTES
        return EXHAUSTED_RECEIVE_BYTES if self.is_exhausted else THRIFTY_RECEIVE_BYTES

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

    def note_held(self, holder: Holder, change_bytes: int) -> None:
        """The holder holds more or less than before."""
        self.held_bytes += change_bytes
        if holder.held_bytes:
            self._holders[holder] = None
        else:
            self._holders.pop(holder, None)
            self._starving.pop(holder, None)
        if self._starving:
            if not self.is_exhausted:
                self._feed(min(self._starving, key=lambda holder: holder.missing_bytes))
            elif (oldest := next(iter(self._holders))) in self._starving:
                self._feed(oldest)

    def starve_if_exhausted(self, holder: Holder) -> None:
        """For a holder that would receive more. The oldest goes on: one frame may be larger than the limit."""
        if self.is_exhausted and holder in self._holders and holder is not next(iter(self._holders)):
            self._starving[holder] = None
            holder.starve()
            if self._check is None:
                self._check = asyncio.get_running_loop().call_later(CHECK_S, self._relieve)

    def _feed(self, holder: Holder) -> None:
        self._has_fed = True
        del self._starving[holder]
        holder.feed()

    def _relieve(self) -> None:
        self._check = None
        stalled = [
            holder
            for holder in self._holders
            if holder not in self._starving
            and (progress := holder.take_progress()) is not None
            and progress < LEAST_PROGRESS_BYTES
        ]
        stalled.sort(key=lambda holder: holder.held_bytes, reverse=True)
        closed = self._close_some(stalled)
        self._hungry_checks = 0 if closed or self._has_fed else self._hungry_checks + 1
        if self._hungry_checks >= MAX_HUNGRY_CHECKS:
            hungriest = sorted(self._holders, key=lambda holder: holder.missing_bytes, reverse=True)
            closed = self._close_some(hungriest)
        if closed:
            logger.warning("connections closed: queued.max.request.bytes reached count=%d", closed)
        for holder in sorted(self._starving, key=lambda holder: holder.missing_bytes):
            if self.is_exhausted:
                break
            if holder in self._starving:
                self._feed(holder)
        self._has_fed = False
        if self._starving:
            self._check = asyncio.get_running_loop().call_later(CHECK_S, self._relieve)

    def _close_some(self, holders: Sequence[Holder]) -> int:
        """Until there is room again."""
        closed = 0
        for holder in holders:
            if self.held_bytes < ROOM_AFTER_RELIEF * self._max_held_bytes:
                break
            closed += 1
            holder.close("its unfinished request held memory that others wait for")
        return closed

"""Fair scheduling of client work on the event loop: in slices, one connection after the other.

The loop runs everything that is ready before it polls for timers, other brokers and results of workers. Client work is
therefore bounded per loop turn. While a turn has time left, client work starts at once, at the cost of two clock reads;
else it is queued. Work that has used up its slice is queued behind new work: a client that sends one request at a time
does not wait for a client that sent a thousand.

Work checks `is_slice_over` where it can stop. On virtual time no slice ever ends, since the clock stands still.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

CLIENT_WORK_PER_TURN_S = 0.008
SLICE_S = 0.002
"""Time of one connection, or of one request with many parts, before other work runs."""

MIN_SLICE_S = 0.0002
ROUND_S = 0.04
"""Slices are shorter if much work waits, so that all of it gets a slice in about this time."""

PRIVILEGED_SLICE_S = 0.02
"""Slice of other brokers, which are never queued."""

IDLE_GAP_S = 0.0005
"""After this time without client work a new loop turn has begun."""

Work: TypeAlias = "Callable[[], object] | asyncio.Future[None]"
"""A function, or the future of a coroutine that waits for its turn."""


class Turns:
    """Scheduler of one event loop that serves clients."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: time of the event loop."""
        self.now = now
        self._new: deque[Work] = deque()
        self._continued: deque[Work] = deque()
        self._is_scheduled = False
        self._turn_end = 0.0
        self.slice_start = 0.0
        self.slice_end = 0.0
        """End of the current slice, for loops that compare it with `now` themselves."""
        self._last_end = 0.0

    @property
    def waiting(self) -> int:
        """Queued work items."""
        return len(self._new) + len(self._continued)

    def begin(self) -> bool:
        """Whether new work may run now (the caller then calls `end`); else it must be queued."""
        if self._new:
            return False
        now = self.now()
        if now >= self._turn_end:
            if now - self._last_end < IDLE_GAP_S:
                return False
            self._turn_end = now + CLIENT_WORK_PER_TURN_S
        self.slice_start = now
        self.slice_end = now + SLICE_S
        return True

    def begin_privileged(self) -> None:
        """Start work that is never queued."""
        self.slice_start = self.now()
        self.slice_end = self.slice_start + PRIVILEGED_SLICE_S

    def end(self) -> None:
        self._last_end = self.now()

    def is_slice_over(self) -> bool:
        """Whether other work must run now. A slice is extended within the loop turn while no other work is queued."""
        now = self.now()
        if now < self.slice_end:
            return False
        if self._new or self._continued or now >= self._turn_end:
            return True
        self.slice_end = min(now + SLICE_S, self._turn_end)
        return False

    def queue(self, work: Work, *, is_continued: bool = False) -> None:
        """Run `work` later in its own slice."""
        (self._continued if is_continued else self._new).append(work)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        now = self.now()
        self._turn_end = now + CLIENT_WORK_PER_TURN_S
        try:
            is_blocked = self._run_queue(self._new, self._turn_end)
            if not is_blocked:
                # At least one item even if there is much new work. Work that is queued again waits for the next turn.
                self._run_queue(self._continued, max(self._turn_end, self.now() + SLICE_S))
        finally:
            self._last_end = self.now()
            if self._new or self._continued:
                self._schedule()

    def _run_queue(self, queue: deque[Work], turn_end: float) -> bool:
        """True if a coroutine was resumed: it must run before the rest of this queue."""
        slice_s = max(MIN_SLICE_S, min(SLICE_S, ROUND_S / (len(queue) or 1)))
        for _ in range(len(queue)):
            now = self.now()
            if now >= turn_end:
                return False
            self.slice_start, self.slice_end = now, now + slice_s
            work = queue.popleft()
            if not isinstance(work, asyncio.Future):
                _call(work)
            elif not work.done():
                work.set_result(None)
                return True
        return False

    async def wait(self, *, is_continued: bool = False) -> None:
        """Yield to other work, then go on in a new slice."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue(begun, is_continued=is_continued)
        await begun
        self.slice_end = self.now() + SLICE_S

    async def yield_turn(self) -> None:
        """Yield to other work if the slice is over. For coroutines with much to do."""
        if self.is_slice_over():
            await self.wait(is_continued=True)

    async def each(self, items: Iterable[T], work: Callable[[T], R]) -> list[R]:
        """`[work(item) for item in items]` with other work in between. Not for state changes."""
        results: list[R] = []
        append = results.append
        for item in items:
            append(work(item))
            if self.is_slice_over():
                await self.wait(is_continued=True)
        return results


def _call(work: Callable[[], object]) -> None:
    """A failure must not stop other queued work."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - reported like a failed callback of the loop
        asyncio.get_running_loop().call_exception_handler({"message": "client work failed", "exception": error})

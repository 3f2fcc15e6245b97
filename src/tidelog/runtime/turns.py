"""Fair sharing of the event loop: work of clients in slices, one connection after the other.

The loop runs everything that is ready before it looks again for what else there is: timers, other brokers, answers of
workers. Work of clients is therefore bounded per turn of the loop. While a turn has time left such work begins at once
and costs two looks at the clock; otherwise it queues up. Work that used up its slice and has more to do goes behind
what has just arrived: who sends one request at a time does not wait for those who sent a thousand.

Work checks `is_slice_over` where it could stop. On virtual time no slice ever ends: the clock stands still in a turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

CLIENT_WORK_PER_TURN_S = 0.008
SLICE_S = 0.002
"""What one connection, or one request with many parts, may take before others have their turn."""

SHORTEST_SLICE_S = 0.0002
ROUND_S = 0.04
"""Slices are shorter where many wait, so that all of them have had one after about this time."""

PRIVILEGED_SLICE_S = 0.02
"""The same for other brokers: they never queue up."""

IDLE_GAP_S = 0.0005
"""Without work of clients for so long, another turn of the loop has begun."""

Work: TypeAlias = "Callable[[], object] | asyncio.Future[None]"
"""A function, or a coroutine that waits for its turn."""


class Turns:
    """One for each event loop that serves clients."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: the time of the event loop."""
        self.now = now
        self._new: deque[Work] = deque()
        self._continued: deque[Work] = deque()
        self._is_scheduled = False
        self._turn_end = 0.0
        self.slice_end = 0.0
        """For loops that compare it with `now` themselves, once for each request."""
        self._last_end = 0.0

    @property
    def waiting(self) -> int:
        """How much work waits for a turn."""
        return len(self._new) + len(self._continued)

    def begin(self) -> bool:
        """Whether new work may run now: then `end` follows it. Otherwise it has to queue up."""
        if self._new:
            return False
        now = self.now()
        if now >= self._turn_end:
            if now - self._last_end < IDLE_GAP_S:
                return False
            self._turn_end = now + CLIENT_WORK_PER_TURN_S
        self.slice_end = now + SLICE_S
        return True

    def begin_privileged(self) -> None:
        """For work that never queues up."""
        self.slice_end = self.now() + PRIVILEGED_SLICE_S

    def end(self) -> None:
        self._last_end = self.now()

    def is_slice_over(self) -> bool:
        return self.now() >= self.slice_end

    def queue(self, work: Work, *, is_continued: bool = False) -> None:
        """Run it when its turn comes, in a slice of its own."""
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
                # At least one, however much new work there is; what queues up again waits for the next turn.
                self._run_queue(self._continued, max(self._turn_end, self.now() + SLICE_S))
        finally:
            self._last_end = self.now()
            if self._new or self._continued:
                self._schedule()

    def _run_queue(self, queue: deque[Work], turn_end: float) -> bool:
        """True if a coroutine goes on now: it runs before anything else of this queue does."""
        slice_s = max(SHORTEST_SLICE_S, min(SLICE_S, ROUND_S / (len(queue) or 1)))
        for _ in range(len(queue)):
            now = self.now()
            if now >= turn_end:
                return False
            self.slice_end = now + slice_s
            work = queue.popleft()
            if not isinstance(work, asyncio.Future):
                _call(work)
            elif not work.done():
                work.set_result(None)
                return True
        return False

    async def wait(self, *, is_continued: bool = False) -> None:
        """Let others have their turn, then go on in a slice of its own."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue(begun, is_continued=is_continued)
        await begun
        self.slice_end = self.now() + SLICE_S

    async def breathe(self) -> None:
        """Within a coroutine that has much to do: let others have their turn if its slice is over."""
        if self.is_slice_over():
            await self.wait(is_continued=True)

    async def each(self, items: Iterable[T], work: Callable[[T], R]) -> list[R]:
        """`[work(item) for item in items]`, with turns of others in between. Not for changes of state."""
        results: list[R] = []
        append = results.append
        for item in items:
            append(work(item))
            if self.is_slice_over():
                await self.wait(is_continued=True)
        return results


def _call(work: Callable[[], object]) -> None:
    """What fails must not keep others from their turn."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - told as the loop tells of callbacks that fail
        asyncio.get_running_loop().call_exception_handler({"message": "work of a client failed", "exception": error})

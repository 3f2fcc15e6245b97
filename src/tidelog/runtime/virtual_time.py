"""An event loop whose clock jumps to the next timer, so that waiting costs nothing and a hang is an error."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
"""Wall time at which virtual time begins."""

MOST_TURNS_AT_A_MOMENT = 100_000
FEW_TIMERS = 200
"""Cancelled timers are swept out once there are more of them than this, and than of the others."""


class EverythingWaits(Exception):
    """No task can go on and no timer is set: in real life this would hang."""


class TimeStandsStill(Exception):
    """Callbacks make callbacks without end, and no timer comes due: in real life this would burn a processor."""


class VirtualHandle(asyncio.TimerHandle):
    """A callback of the loop, with or without a time. Lean: a simulation makes a thousand for each simulated second."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        loop: "VirtualTimeLoop",
        context: Context,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = arguments
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._scheduled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = None  # type: ignore[assignment]
            self._args = ()
            if self._scheduled:
                self._loop.timer_cancelled()


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """For code whose I/O goes through the simulated seams. Real sockets and threads have no place here.

    Unlike asyncio's loops it keeps the order of timers that are due at one moment: the order in which they were set.
    """

    make_handle: type[VirtualHandle] = VirtualHandle

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._due: deque[VirtualHandle] = deque()
        self._timers: list[tuple[float, int, VirtualHandle]] = []
        self._timers_made = 0
        self._turns_at_this_moment = 0
        self._timers_cancelled = 0

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        """The loop had no turn for so long."""
        self._now += seconds

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = self.make_handle(self._now, callback, args, self, copy_context() if context is None else context)
        self._due.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = self.make_handle(when, callback, args, self, copy_context() if context is None else context)
        handle._scheduled = True
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, handle))
        return handle

    @property
    def pending_timers(self) -> int:
        """Set, not cancelled, not due yet."""
        return len(self._timers) - self._timers_cancelled

    def timer_cancelled(self) -> None:
        self._timers_cancelled += 1
        if self._timers_cancelled > FEW_TIMERS and self._timers_cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _run_once(self) -> None:
        """All that is due, then the clock moves to the next timer. `run_forever` calls this until it is stopped."""
        due, timers = self._due, self._timers
        if not due or (timers and timers[0][0] <= self._now):
            self._collect_timers()
        self._turns_at_this_moment += 1
        if self._turns_at_this_moment > MOST_TURNS_AT_A_MOMENT:
            raise TimeStandsStill
        for _ in range(len(due)):
            handle = due.popleft()
            if not handle._cancelled:
                handle._run()

    def _collect_timers(self) -> None:
        """Those that are due now; if nothing else is, the clock moves to the next one."""
        timers, due = self._timers, self._due
        while timers and (not due or timers[0][0] <= self._now):
            when, _, handle = heapq.heappop(timers)
            handle._scheduled = False
            if handle._cancelled:
                self._timers_cancelled -= 1
                continue
            if when > self._now:
                self._now = when
                self._turns_at_this_moment = 0
            due.append(handle)
        if not due and not self._stopping:  # type: ignore[attr-defined]
            raise EverythingWaits

    def _process_events(self, event_list: list[Any]) -> None:
        """No file can become ready."""

    def _write_to_self(self) -> None:
        """Nobody waits in a system call."""


class VirtualClock:
    """The clock seam on a virtual-time loop."""

    def __init__(self, loop: VirtualTimeLoop, offset_ms: int = 0) -> None:
        self._loop = loop
        self.offset_ms = offset_ms
        """How far its wall time is ahead of true time. Monotonic time is not concerned."""

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000) + self.offset_ms

    def monotonic(self) -> float:
        return self._loop.time()


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)

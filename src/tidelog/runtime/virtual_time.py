"""Event loop on virtual time: its clock jumps to the next timer. Waiting costs nothing, and a hang is an error."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
"""Wall time at the start of virtual time."""

MAX_TURNS_PER_INSTANT = 100_000
MIN_CANCELLED_TIMERS = 200
"""Cancelled timers are removed once there are more of them than this, and than active ones."""


class DeadlockDetected(Exception):
    """No task can run and no timer is set: a real process would hang."""


class LivelockDetected(Exception):
    """Callbacks schedule callbacks without end while time stands still: a real process would use a CPU forever."""


class VirtualHandle:
    """A callback of the loop, with or without a time (asyncio's Handle and TimerHandle).

    Small, since a simulation creates a thousand of them per simulated second. `callback` is None after `cancel`.
    """

    __slots__ = ("_loop", "arguments", "callback", "context", "scheduled_at")

    def __init__(
        self,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: Context,
        loop: "VirtualTimeLoop",
        scheduled_at: float | None = None,
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.arguments = arguments
        self.context = context
        self._loop = loop
        self.scheduled_at = scheduled_at
        """None for call_soon, and for a timer that is due."""

    def when(self) -> float:
        return self._loop.time() if self.scheduled_at is None else self.scheduled_at

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.arguments = ()
            if self.scheduled_at is not None:
                self._loop.timer_cancelled()

    def cancelled(self) -> bool:
        return self.callback is None

    def __repr__(self) -> str:
        return f"<VirtualHandle {self.callback!r} at {self.scheduled_at}>"


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """Event loop for code whose I/O is simulated: it has no sockets and no threads.

    Unlike asyncio's loops it runs timers of one instant in the order in which they were set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        """What `time` returns."""
        self._due: deque[VirtualHandle] = deque()
        self._timers: list[tuple[float, int, VirtualHandle]] = []
        self._timers_made = 0
        self._timers_cancelled = 0
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]

    def time(self) -> float:
        return self.now

    get_debug = staticmethod(bool)
    """False, without a Python frame: every future and task calls it."""

    def jump(self, seconds: float) -> None:
        """Simulate a loop that did not run for `seconds`."""
        self.now += seconds

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        handle = VirtualHandle(callback, args, copy_context() if context is None else context, self)
        self._due.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        when = self.now + delay
        handle = VirtualHandle(callback, args, copy_context() if context is None else context, self, when)
        self._timers_made += 1
        heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> VirtualHandle:
        handle = VirtualHandle(callback, args, copy_context() if context is None else context, self, when)
        self._timers_made += 1
        heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        return asyncio.Task(coro, loop=self, name=name, context=context)

    @property
    def pending_timers(self) -> int:
        """Timers that are set, not cancelled and not due."""
        return len(self._timers) - self._timers_cancelled

    def timer_cancelled(self) -> None:
        self._timers_cancelled += 1
        if self._timers_cancelled > MIN_CANCELLED_TIMERS and self._timers_cancelled * 2 > len(self._timers):
            self._timers[:] = [entry for entry in self._timers if entry[2].callback is not None]
            heapify(self._timers)
            self._timers_cancelled = 0

    def _run_once(self) -> None:
        """Run due callbacks, advance the clock to the next timer, and repeat until the loop is stopped.

        `run_forever` would call this repeatedly; staying in one call is faster.
        """
        due, timers = self._due, self._timers
        moment, turns = self.now, 0
        while not self._stopping:  # type: ignore[attr-defined]
            if not due or (timers and timers[0][0] <= self.now):
                self._collect_timers()
            if self.now != moment:
                moment, turns = self.now, 0
            turns += 1
            if turns > MAX_TURNS_PER_INSTANT:
                raise LivelockDetected
            self._run_turn(due)

    def _run_turn(self, due: deque[VirtualHandle]) -> None:
        """Run the callbacks that are due now, without those that they schedule."""
        for _ in range(len(due)):
            handle = due.popleft()
            callback = handle.callback
            if callback is None:
                continue
            try:
                handle.context.run(callback, *handle.arguments)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as in asyncio's Handle
                self.report(handle, callback, error)

    def report(self, handle: VirtualHandle, callback: Callable[..., object], error: BaseException) -> None:
        message = f"Exception in callback {callback!r}"
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    def _collect_timers(self) -> None:
        """Collect due timers. If nothing is due, advance the clock to the next timer."""
        timers, due = self._timers, self._due
        while timers and (not due or timers[0][0] <= self.now):
            when, _, handle = heappop(timers)
            if handle.callback is None:
                self._timers_cancelled -= 1
                continue
            handle.scheduled_at = None
            if when > self.now:
                self.now = when
            due.append(handle)
        if not due and not self._stopping:  # type: ignore[attr-defined]
            raise DeadlockDetected

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no files to poll."""

    def _write_to_self(self) -> None:
        """There is no system call to interrupt."""


class VirtualClock:
    """Clock of a virtual-time loop."""

    def __init__(self, loop: VirtualTimeLoop, offset_ms: int = 0) -> None:
        self._loop = loop
        self.offset_ms = offset_ms
        """Offset of its wall time from true time. Monotonic time is not affected."""

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.now * 1000) + self.offset_ms

    def monotonic(self) -> float:
        return self._loop.now


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)

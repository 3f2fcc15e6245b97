"""Brokers as parts of one real event loop that can be killed or paused separately, as if each were a process.

A context variable marks everything that a broker schedules; tasks and callbacks inherit it. A killed broker does not
run again, not even its `finally` blocks, until `discard` has closed what it left behind. A paused one keeps its due
callbacks until it resumes, as after SIGSTOP.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

_current: ContextVar["BrokerProcess | None"] = ContextVar("broker_process", default=None)

MAX_DISCARD_ROUNDS = 10
"""A task that is cancelled may start another one, but not for ever."""


class _Call:
    """A callback of a broker: runs when it is due, unless the broker is killed or paused."""

    __slots__ = ("_arguments", "_callback", "context", "handle", "process")

    def __init__(
        self, process: "BrokerProcess", callback: Callable[..., object], arguments: tuple[Any, ...], context: Context
    ) -> None:
        self.process = process
        self._callback = callback
        self._arguments = arguments
        self.context = context
        self.handle: asyncio.Handle | None = None

    def run(self) -> None:
        if not self.process.is_running:
            self.process.held.append(self)
        elif self.handle is None or not self.handle.cancelled():  # cancelled by another one that was held
            self._callback(*self._arguments)


class BrokerProcess:
    """Tasks and callbacks of one broker, from a start to a stop or kill."""

    def __init__(self) -> None:
        self.is_running = True
        self.tasks: set[asyncio.Task[Any]] = set()
        self.held: list[_Call] = []

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        context = copy_context()
        context.run(_current.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    def kill(self) -> None:
        self.is_running = False

    pause = kill

    def resume(self) -> None:
        self.is_running = True
        loop = asyncio.get_running_loop()
        held, self.held = self.held, []
        for call in held:
            # The empty context: the loop must not wrap the call again.
            loop.call_soon(call.context.run, call.run, context=Context())

    async def discard(self) -> None:
        """Cancel the tasks of a killed broker whose disk and sockets nobody uses any more."""
        for _ in range(MAX_DISCARD_ROUNDS):
            if not self.tasks:
                break
            tasks = list(self.tasks)
            for task in tasks:
                task.cancel()
            # A task whose wake-up was held back cannot be cancelled without it.
            self.resume()
            await asyncio.wait(tasks)
        self.kill()


class ProcessLoop(asyncio.SelectorEventLoop):
    """Event loop that holds back the callbacks of killed and paused brokers, and whose time can be moved."""

    def __init__(self) -> None:
        self._moved_s = 0.0
        super().__init__()

    def time(self) -> float:
        return time.monotonic() + self._moved_s

    def advance(self, seconds: float) -> None:
        """Timers that fall due by this run in the next turn, in their order."""
        self._moved_s += seconds

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        process = _process_of(context)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        call = _Call(process, callback, args, context or copy_context())
        call.handle = super().call_soon(call.run, context=call.context)
        return call.handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = _process_of(context)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        call = _Call(process, callback, args, context or copy_context())
        handle = super().call_at(when, call.run, context=call.context)
        call.handle = handle
        return handle

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, context: Context | None = None, **options: Any
    ) -> "asyncio.Task[T]":
        task: asyncio.Task[T] = super().create_task(coro, context=context, **options)
        process = _process_of(context)
        if process is not None:
            process.tasks.add(task)
            task.add_done_callback(process.tasks.discard, context=Context())
        return task


def _process_of(context: Context | None) -> BrokerProcess | None:
    return _current.get() if context is None else context.get(_current)

"""Brokers as parts of one real event loop that can be killed separately, as if each were a process.

A context variable marks everything that a broker schedules; tasks and callbacks inherit it. A killed broker does not
run again, not even its `finally` blocks, until `discard` has closed what it left behind.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

_current: ContextVar["BrokerProcess | None"] = ContextVar("broker_process", default=None)

MAX_DISCARD_ROUNDS = 10
"""A task that is cancelled may start another one, but not for ever."""


class BrokerProcess:
    """Tasks and callbacks of one broker, from a start to a stop or kill."""

    def __init__(self) -> None:
        self.is_killed = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self._held: list[tuple[Callable[[], object], Context]] = []

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        context = copy_context()
        context.run(_current.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    def run_callback(self, callback: Callable[..., object], *arguments: Any) -> None:
        if self.is_killed:
            self._held.append((partial(callback, *arguments), copy_context()))
        else:
            callback(*arguments)

    def kill(self) -> None:
        self.is_killed = True

    async def discard(self) -> None:
        """Cancel the tasks of a killed broker whose disk and sockets nobody uses any more."""
        loop = asyncio.get_running_loop()
        for _ in range(MAX_DISCARD_ROUNDS):
            if not self.tasks:
                break
            tasks = list(self.tasks)
            for task in tasks:
                task.cancel()
            self.is_killed = False
            # A task whose wake-up was held back cannot be cancelled without it.
            held, self._held = self._held, []
            for callback, context in held:
                loop.call_soon(callback, context=context)
            await asyncio.wait(tasks)
        self.kill()


class ProcessLoop(asyncio.SelectorEventLoop):
    """Event loop that holds back the callbacks of killed brokers."""

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        process = _process_of(context)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(process.run_callback, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = _process_of(context)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, process.run_callback, callback, *args, context=context)

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

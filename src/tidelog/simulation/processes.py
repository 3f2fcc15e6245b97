"""Simulated processes: what runs on one event loop, divided so that a part of it can be killed or stopped.

Everything that a process schedules is marked with it through a context variable, which tasks and callbacks inherit.
A killed process never runs again, not even its `finally` blocks, as after kill -9. A stopped one keeps what is due
until it goes on, as after SIGSTOP.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from enum import Enum, auto
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import Any, TypeVar

from tidelog.runtime.virtual_time import VirtualTimeLoop

T = TypeVar("T")

_current: ContextVar["Process | None"] = ContextVar("process", default=None)


class ProcessState(Enum):
    RUNNING = auto()
    STOPPED = auto()
    DEAD = auto()


class Process:
    """Made on a running SimulationLoop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ProcessState.RUNNING
        self._held: list[_Guarded] = []
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        loop.processes.append(self)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this work inside the process and wait for its end."""
        return await self.start(work)

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        context = copy_context()
        context.run(_current.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    def kill(self) -> None:
        self.state = ProcessState.DEAD

    def stop(self) -> None:
        self.state = ProcessState.STOPPED

    def go_on(self) -> None:
        self.state = ProcessState.RUNNING
        held, self._held = self._held, []
        for guarded in held:
            guarded.again()

    def hold(self, guarded: "_Guarded") -> None:
        self._held.append(guarded)


class _Guarded:
    """A callback that runs only while its process does."""

    __slots__ = ("_arguments", "_callback", "_context", "_process", "handle")

    handle: asyncio.Handle

    def __init__(
        self, process: Process, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context
    ) -> None:
        self._process = process
        self._callback = callback
        self._arguments = arguments
        self._context = context

    def __call__(self) -> None:
        if self._process.state is ProcessState.RUNNING:
            self._callback(*self._arguments)
        else:
            self._process.hold(self)

    def again(self) -> None:
        asyncio.get_running_loop().call_soon(self._run_late, context=self._context)

    def _run_late(self) -> None:
        if not self.handle.cancelled():  # what ran before it may have made it pointless
            self._callback(*self._arguments)


class SimulationLoop(VirtualTimeLoop):
    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process] = []

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.Handle:
        guarded = _guard(callback, arguments, context)
        if guarded is None:
            return super().call_soon(callback, *arguments, context=context)
        guarded.handle = super().call_soon(guarded, context=context)
        return guarded.handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        guarded = _guard(callback, arguments, context)
        if guarded is None:
            return super().call_at(when, callback, *arguments, context=context)
        guarded.handle = handle = super().call_at(when, guarded, context=context)
        return handle


def _guard(callback: Callable[..., object], arguments: tuple[Any, ...], context: Context | None) -> _Guarded | None:
    process = _current.get() if context is None else context.get(_current)
    if process is None:
        return None
    return _Guarded(process, callback, arguments, copy_context() if context is None else context)


def current_process() -> Process | None:
    """The one in which the caller runs."""
    return _current.get()


def run_simulation(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time with processes that can die."""
    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        return runner.run(_with_burial(main))


async def _with_burial(main: Coroutine[Any, Any, T]) -> T:
    try:
        return await main
    finally:
        await _bury_all()


async def _bury_all() -> None:
    """After the last step: let what killed processes left pending end, so that nothing of it outlives the loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        _close_what_it_was_given(task)
        task.cancel()
    for process in loop.processes:
        process.go_on()
    await asyncio.gather(*tasks, return_exceptions=True)


def _close_what_it_was_given(task: "asyncio.Task[Any]") -> None:
    """A task that was never begun will not begin the coroutines that it was to await."""
    coroutine = task.get_coro()
    if isinstance(coroutine, CoroutineType) and coroutine.cr_frame and getcoroutinestate(coroutine) == CORO_CREATED:
        for value in coroutine.cr_frame.f_locals.values():
            if isinstance(value, CoroutineType) and getcoroutinestate(value) == CORO_CREATED:
                value.close()

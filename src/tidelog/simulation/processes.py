"""Simulated processes: parts of one event loop that can be killed or stopped separately.

A context variable marks everything that a process schedules; tasks and callbacks inherit it. A killed process never
runs again, not even its `finally` blocks, as after kill -9. A stopped one keeps its due callbacks until it resumes, as
after SIGSTOP.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from enum import Enum, auto
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import Any, TypeVar

from tidelog.runtime.virtual_time import VirtualHandle, VirtualTimeLoop

T = TypeVar("T")

_current: ContextVar["Process | None"] = ContextVar("process", default=None)


class ProcessState(Enum):
    RUNNING = auto()
    STOPPED = auto()
    DEAD = auto()


RUNNING = ProcessState.RUNNING
"""A module constant, because the loop reads it before every callback."""


class Process:
    """Created on a running SimulationLoop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ProcessState.RUNNING
        self._held: list[VirtualHandle] = []
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        self._loop = loop
        loop.processes.append(self)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine inside the process and wait for its end."""
        return await self.start(work)

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        context = copy_context()
        context.run(_current.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    def kill(self) -> None:
        self.state = ProcessState.DEAD

    def stop(self) -> None:
        self.state = ProcessState.STOPPED

    def resume(self) -> None:
        self.state = ProcessState.RUNNING
        held, self._held = self._held, []
        self._loop.again(held)

    def hold(self, handle: VirtualHandle) -> None:
        self._held.append(handle)


class SimulationLoop(VirtualTimeLoop):
    """Runs a callback only while the process in its context is running."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process] = []

    def _run_turn(self, due: deque[VirtualHandle]) -> None:
        current, running, take = _current, RUNNING, due.popleft  # names of the function are read faster
        for _ in range(len(due)):
            handle = take()
            callback = handle.callback
            if callback is None:
                continue
            context = handle.context
            process = context.get(current)
            if process is not None and process.state is not running:
                process.hold(handle)
                continue
            try:
                context.run(callback, *handle.arguments)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001
                self.report(handle, callback, error)

    def again(self, handles: list[VirtualHandle]) -> None:
        """Run callbacks that became due while their process was stopped, unless an earlier one cancels them."""
        self._due.extend(handles)


def current_process() -> Process | None:
    """Process of the caller."""
    return _current.get()


def run_simulation(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time with processes that can die."""
    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        return runner.run(_with_cleanup(main))


async def _with_cleanup(main: Coroutine[Any, Any, T]) -> T:
    try:
        return await main
    finally:
        await _clean_up_all()


async def _clean_up_all() -> None:
    """After the last step, end pending tasks of killed processes, so that none outlives the loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        _close_pending_coroutines(task)
        task.cancel()
    for process in loop.processes:
        process.resume()
    await asyncio.gather(*tasks, return_exceptions=True)


def _close_pending_coroutines(task: "asyncio.Task[Any]") -> None:
    """Close the coroutines that a task would have awaited if it had ever started."""
    coroutine = task.get_coro()
    if isinstance(coroutine, CoroutineType) and coroutine.cr_frame and getcoroutinestate(coroutine) == CORO_CREATED:
        for value in coroutine.cr_frame.f_locals.values():
            if isinstance(value, CoroutineType) and getcoroutinestate(value) == CORO_CREATED:
                value.close()

"""Event loop of a test cluster in a background thread, and the calls that other threads make into it."""

import asyncio
import inspect
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

from tidelog.testing.cluster_view import ClusterView
from tidelog.testing.killable_brokers import ProcessLoop
from tidelog.testing.machine_faults import MachineFaults
from tidelog.testing.machines import Machines

TIMEOUT_S = 60.0
"""No call waits longer. A cluster that needs more has failed."""

THREADS_PAUSE_S = 0.001
"""Real time that worker threads get in every step of a moved clock."""


class ClusterError(Exception):
    """The cluster cannot do this. The message is one sentence."""


class Host(Protocol):
    """Where the brokers run."""

    @property
    def has_mistakes(self) -> bool:
        """Functions of the test have failed; `take_mistakes` returns the errors."""
        ...

    def open(self) -> None: ...

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the parts of the cluster, `machines.kill` for example, and wait for its result."""
        ...

    def close(self) -> None: ...


class Parts:
    """The parts of a cluster. Their methods run on its event loop; arguments and results are plain values."""

    def __init__(self, brokers: int, directory: Path | None, settings: Mapping[str, str]) -> None:
        self.machines = Machines(brokers, directory, settings)
        self.faults = MachineFaults(self.machines)
        self.script = self.machines.script
        self.wiring = self.machines.wiring
        self.view = ClusterView(self.machines)
        self._pause_s = 0.0 if directory is None else THREADS_PAUSE_S

    async def advance(self, seconds: float) -> None:
        await self.machines.clock.advance(seconds, self._pause_s)

    async def reset(self) -> None:
        self.view.close()
        await self.machines.reset()

    def take_mistakes(self) -> list[str]:
        """Functions of the test that failed since the last call."""
        mistakes, self.script.mistakes = self.script.mistakes, []
        return mistakes

    async def close(self) -> None:
        self.view.close()
        await self.machines.close()

    async def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        result = attrgetter(name)(self)
        if callable(result):
            result = result(*arguments, **named)
        return await result if inspect.isawaitable(result) else result


class ThreadHost:
    """Brokers in a thread of this process."""

    def __init__(self, brokers: int, directory: Path | None, settings: Mapping[str, str]) -> None:
        self._arguments = brokers, directory, settings
        self._parts: Parts | None = None
        self._loop: ProcessLoop | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        parts = self._parts = Parts(*self._arguments)
        self._loop = ProcessLoop()
        self._thread = threading.Thread(target=_run_loop, args=[self._loop], name="tidelog-testing", daemon=True)
        self._thread.start()
        self._do(parts.machines.open())

    @property
    def has_mistakes(self) -> bool:
        return self._parts is not None and bool(self._parts.script.mistakes)

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        assert self._parts is not None
        return self._do(self._parts.call(name, *arguments, **named))

    def close(self) -> None:
        parts, loop, thread = self._parts, self._loop, self._thread
        if parts is None or loop is None or thread is None:
            return
        try:
            self._do(parts.close())
        finally:
            self._parts = self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            thread.join(TIMEOUT_S)
            parts.machines.release_ports()

    def _do(self, work: Any) -> Any:
        assert self._loop is not None
        if self._thread is threading.current_thread():
            work.close()
            raise ClusterError("a cluster cannot be called from its own thread")
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(TIMEOUT_S)
        except TimeoutError as error:
            raise ClusterError(f"the cluster did not do this within {TIMEOUT_S:.0f} s; its log says why") from error


def _run_loop(loop: ProcessLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()

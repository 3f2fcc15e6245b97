"""Thread seam: workers for blocking work, which never runs on the event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, Protocol, TypeVar

from tidelog.runtime.randomness import Randomness

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Protocol):
    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work in a thread; returns its result or raises its error on the event loop."""
        ...

    def close(self) -> None: ...


class RepeatingWorkers(Workers, Protocol):
    """Workers that can also repeat work independently of the event loop."""

    def repeat(self, interval_s: float, work: Callable[[], None]) -> Callable[[], None]:
        """Repeat `work` in its own thread until the returned function is called."""
        ...


class ThreadWorkers:
    """A thread pool; threads start on demand."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: work(*args, **kwargs))

    def repeat(self, interval_s: float, work: Callable[[], None]) -> Callable[[], None]:
        is_over = threading.Event()

        def run() -> None:
            while not is_over.wait(interval_s):
                work()

        threading.Thread(target=run, name=f"{self._name}-repeating", daemon=True).start()
        return is_over.set

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)


class InlineWorkers:
    """Runs work at once. For tests and the simulator, where no disk blocks."""

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return work(*args, **kwargs)

    def repeat(self, interval_s: float, work: Callable[[], None]) -> Callable[[], None]:
        """Does nothing: there is only one thread."""
        return lambda: None

    def close(self) -> None:
        return None


class SimulatedWorkers:
    """Runs work later and delivers its result later still, with delays drawn from a seed.

    As with threads, submitted work runs even if its result is no longer awaited.
    """

    def __init__(self, randomness: Randomness, longest_delay_s: float) -> None:
        self._randomness = randomness
        self.longest_delay_s = longest_delay_s

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def do() -> None:
            try:
                result = work(*args, **kwargs)
            except Exception as error:  # noqa: BLE001
                loop.call_later(self._delay_s(), _settle, outcome, outcome.set_exception, error)
            else:
                loop.call_later(self._delay_s(), _settle, outcome, outcome.set_result, result)

        loop.call_later(self._delay_s(), do)
        return await outcome

    def _delay_s(self) -> float:
        return self.longest_delay_s * self._randomness.below(1001) / 1000

    def close(self) -> None:
        return None


def _settle(outcome: "asyncio.Future[T]", settle: Callable[[Any], None], value: object) -> None:
    if not outcome.done():
        settle(value)

"""An event loop whose clock jumps to the next timer, so that waiting costs nothing and a hang is an error."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
"""Wall time at which virtual time begins."""


class EverythingWaits(Exception):
    """No task can go on and no timer is set: in real life this would hang."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """For code whose I/O goes through the simulated seams. Real sockets and threads have no place here."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds


class VirtualClock:
    """The clock seam on a virtual-time loop."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


class _JumpingSelector(selectors.BaseSelector):
    """Waits by moving the clock. Knows no file that could become ready."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return self._keys[fd]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise EverythingWaits
        self._loop.jump(max(timeout, 0.0))
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)

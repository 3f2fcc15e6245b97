"""Clock seam: the only source of time in the product."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for timestamps that people and clients see, monotonic time for waiting.

    Monotonic time is the event loop's own, so that timers and clock never disagree; on a
    virtual-time loop both are virtual.
    """

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Without a wrapper function, since it is called several times per request."""


class ManualClock:
    """A clock for tests, moved by `advance` only."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, milliseconds: int) -> None:
        self._now_ms += milliseconds
        self._monotonic += milliseconds / 1000

    def set_wall_clock(self, now_ms: int) -> None:
        """As an operator or NTP does: no time passes."""
        self._now_ms = now_ms

"""Clock of a test cluster, which a test can move forward."""

import asyncio
import time

from tidelog.testing.killable_brokers import ProcessLoop

STEP_S = 5.0
"""Shorter than all time-outs between brokers: they exchange requests while time passes."""

TURNS_PER_STEP = 8
"""Turns of the event loop in which brokers can exchange requests and answers."""

MAX_TIMERS_S = 2 * 3600.0
"""Timers see at most this much of one move: longer than every time-out and every interval between checks. What is
older than that depends on timestamps, and those move by the full time."""


class MovedClock:
    """Real time, and what the test has added to it. Monotonic time is that of the event loop."""

    def __init__(self) -> None:
        self._moved_ms = 0
        self._loop: ProcessLoop | None = None

    def attach(self, loop: ProcessLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._moved_ms

    def monotonic(self) -> float:
        return time.monotonic() if self._loop is None else self._loop.time()

    async def advance(self, seconds: float, pause_s: float) -> None:
        """Move time in steps. `pause_s`: real time that threads get in each of them."""
        assert self._loop is not None
        self._moved_ms += int(seconds * 1000)
        left_s = min(seconds, MAX_TIMERS_S)
        while left_s > 0:
            step_s = min(left_s, STEP_S)
            self._loop.advance(step_s)
            left_s -= step_s
            for _ in range(TURNS_PER_STEP):
                await asyncio.sleep(0)
            if pause_s:
                await asyncio.sleep(pause_s)

    def reset(self) -> None:
        """Timestamps are those of real time again."""
        self._moved_ms = 0

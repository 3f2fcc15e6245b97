"""Retries with exponential backoff and jitter, until a timeout."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.client.network.in_flight import ConnectionLost, LoginFailed
from tidelog.errors import KafkaError
from tidelog.runtime.randomness import Randomness

T = TypeVar("T")

FIRST_PAUSE_S = 0.05
MAX_PAUSE_S = 1.0
JITTER_PERCENT = 20
REPORT_AFTER_S = 5.0

Report = Callable[[str], None]


class GaveUp(Exception):
    """Every attempt until the timeout failed with a retriable error; the message has the last one."""


class Backoff:
    """Pauses that double each time. `randomness` adds jitter, so that clients do not retry in step."""

    def __init__(
        self, randomness: Randomness | None, first_s: float = FIRST_PAUSE_S, longest_s: float = MAX_PAUSE_S
    ) -> None:
        self._randomness = randomness
        self._first_s = first_s
        self._longest_s = longest_s
        self._base_s = first_s

    def next_s(self) -> float:
        pause_s = self._base_s
        if self._randomness is not None:
            percent = 100 - JITTER_PERCENT + self._randomness.below(2 * JITTER_PERCENT + 1)
            pause_s = pause_s * percent / 100
        self._base_s = min(self._base_s * 2, self._longest_s)
        return pause_s

    def reset(self) -> None:
        self._base_s = self._first_s


class Attempts:
    """Attempts of one operation. `after` waits before the next attempt, or raises if there is none."""

    def __init__(
        self,
        what: str,
        timeout_s: float,
        randomness: Randomness,
        *,
        started_at: float | None = None,
        report: Report | None = None,
    ) -> None:
        """`report` gets the reason once, if the attempts have failed for some seconds."""
        self._what = what
        self._report = report
        self._timeout_s = timeout_s
        self._deadline = (asyncio.get_running_loop().time() if started_at is None else started_at) + timeout_s
        self._backoff = Backoff(randomness)

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    async def after(self, error: Exception) -> None:
        if not is_retriable(error):
            raise error
        pause_s = self._backoff.next_s()
        if pause_s >= self.remaining_s:
            raise GaveUp(f"{self._what}: gave up after {self._timeout_s:g} s: {reason_of(error)}") from error
        if self._report is not None and self._timeout_s - self.remaining_s >= REPORT_AFTER_S:
            self._report(f"{self._what}: {reason_of(error)}")
            self._report = None
        await asyncio.sleep(pause_s)


async def retried(attempts: Attempts, attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of the first attempt that succeeds."""
    while True:
        try:
            return await attempt()
        except (KafkaError, ConnectionLost) as error:
            await attempts.after(error)


def is_retriable(error: BaseException) -> bool:
    if isinstance(error, ConnectionLost):
        return not isinstance(error, LoginFailed)
    return isinstance(error, KafkaError) and error.retriable


def reason_of(error: BaseException) -> str:
    return error.message if isinstance(error, KafkaError) else str(error) or type(error).__name__

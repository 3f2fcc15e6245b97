"""Renewal of a session while the event loop is late, without threads."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.runtime.clock import ManualClock
from tidelog.store.lease import Lease
from tidelog.store.session_keeper import SessionKeeper

TIMEOUT_S = 6.0


class Session:
    def __init__(self, loop_timeout_s: float | None = None) -> None:
        self.clock = ManualClock()
        self.lease = Lease(self.clock.monotonic, lambda: None, lambda: None)
        self.lease.renew(0.0, TIMEOUT_S)
        self.renewed: list[float] = []
        self.error: Exception | None = None
        self.keeper = SessionKeeper(self.lease, TIMEOUT_S, self.clock.monotonic, self._renew, loop_timeout_s)

    def _renew(self, now: float) -> None:
        if self.error is not None:
            raise self.error
        self.renewed.append(now)

    def pass_time(self, seconds: float) -> None:
        """The loop stands still meanwhile."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.advance(int(self.keeper.interval_s * 1000))
            self.keeper.tick()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_nothing_is_renewed_while_the_loop_does_it() -> None:
    async def scenario() -> None:
        session = Session()
        for _ in range(20):
            session.pass_time(1.0)
            await asyncio.sleep(0)
            session.lease.renew(session.clock.monotonic(), TIMEOUT_S)
        assert session.renewed == []

    run(scenario)


def test_a_late_loop_keeps_its_session() -> None:
    async def scenario() -> None:
        session = Session()
        session.pass_time(5.5)
        assert session.renewed != []
        assert session.lease.is_valid

    run(scenario)


def test_a_loop_that_hangs_loses_its_session() -> None:
    async def scenario() -> None:
        session = Session()
        session.pass_time(2.2 * TIMEOUT_S)
        assert session.renewed[-1] < TIMEOUT_S + 1
        assert not session.lease.is_valid

    run(scenario)


def test_a_lease_that_ended_is_not_renewed_behind_the_back_of_the_loop() -> None:
    """A process that was stopped and wakes up must find out first whether its session is still there."""

    async def scenario() -> None:
        session = Session(loop_timeout_s=1000)
        session.clock.advance(5500)
        session.keeper.tick()
        assert not session.lease.is_valid
        assert session.renewed == []

    run(scenario)


def test_the_lease_is_not_extended_when_the_store_refuses() -> None:
    async def scenario() -> None:
        session = Session()
        session.error = OSError("gone")
        session.pass_time(5.5)
        assert not session.lease.is_valid

    run(scenario)

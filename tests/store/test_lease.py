"""Lease of a session: when a broker must take it for ended, by its own clock."""

import asyncio
from math import inf

from tidelog.runtime.clock import ManualClock
from tidelog.runtime.virtual_time import run_virtually
from tidelog.store.lease import Lease


class Recorded:
    def __init__(self) -> None:
        self.events: list[tuple[str, float]] = []

    def lease(self) -> Lease:
        time = asyncio.get_running_loop().time
        return Lease(
            time, lambda: self.events.append(("suspended", time())), lambda: self.events.append(("resumed", time()))
        )


def test_a_lease_ends_before_the_session_can_counted_from_when_the_heartbeat_was_sent() -> None:
    async def scenario() -> None:
        recorded = Recorded()
        lease = recorded.lease()
        await asyncio.sleep(3)
        lease.renew(sent_at=1, timeout_s=10)
        await asyncio.sleep(20)
        assert recorded.events == [("suspended", 10.0)]
        assert not lease.is_valid

    run_virtually(scenario())


def test_a_lease_that_is_renewed_in_time_reports_nothing() -> None:
    async def scenario() -> None:
        recorded = Recorded()
        lease = recorded.lease()
        for second in range(100):
            lease.renew(sent_at=second, timeout_s=10)
            await asyncio.sleep(1)
        assert recorded.events == []
        assert lease.is_valid
        lease.cancel()
        assert not lease.is_valid

    run_virtually(scenario())


def test_a_lease_that_comes_back_resumes_and_can_end_again() -> None:
    async def scenario() -> None:
        recorded = Recorded()
        lease = recorded.lease()
        lease.renew(sent_at=0, timeout_s=10)
        await asyncio.sleep(15)
        lease.renew(sent_at=14, timeout_s=10)
        await asyncio.sleep(15)
        assert recorded.events == [("suspended", 9.0), ("resumed", 15.0), ("suspended", 23.0)]

    run_virtually(scenario())


def test_a_shorter_timeout_counts_at_once() -> None:
    async def scenario() -> None:
        recorded = Recorded()
        lease = recorded.lease()
        lease.renew(sent_at=0, timeout_s=100)
        lease.renew(sent_at=0, timeout_s=10)
        await asyncio.sleep(15)
        assert recorded.events == [("suspended", 9.0)]

    run_virtually(scenario())


def test_a_process_that_was_stopped_is_out_of_its_lease_before_any_timer_ran() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        events: list[str] = []
        lease = Lease(clock.monotonic, lambda: events.append("suspended"), lambda: events.append("resumed"))
        lease.renew(sent_at=0, timeout_s=10)
        clock.advance(60_000)
        assert not lease.is_valid
        assert events == []
        lease.cancel()

    asyncio.run(scenario())


def test_without_a_heartbeat_the_lease_has_no_end() -> None:
    async def scenario() -> None:
        assert Recorded().lease().end == inf
        assert Recorded().lease().is_valid

    run_virtually(scenario())

"""Faults of the store in memory that strike one write: requests and answers that are lost, sessions that end."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tidelog.runtime.virtual_time import run_virtually
from tidelog.store.interface import SessionExpired, StoreUnavailable
from tidelog.store.memory import MemoryStore, MemoryStoreState, StepFaultKind


def with_fault(
    kind: StepFaultKind, scenario: Callable[[MemoryStoreState, MemoryStore], Awaitable[None]], writes_before: int = 0
) -> None:
    async def main() -> None:
        state = MemoryStoreState()
        store = MemoryStore(state)
        state.break_step(store.session_id, kind, writes_before, away_s=1.0)
        await scenario(state, store)

    run_virtually(main())


def test_a_lost_answer_leaves_the_write_done_and_the_session_alive() -> None:
    async def scenario(state: MemoryStoreState, store: MemoryStore) -> None:
        with pytest.raises(StoreUnavailable):
            await store.create("/a")
        assert state.find("/a") is not None
        with pytest.raises(StoreUnavailable):
            await store.get("/a")
        await asyncio.sleep(2)
        await store.set("/a", b"x")

    with_fault(StepFaultKind.RESPONSE_LOST, scenario)


def test_a_lost_request_leaves_nothing_done() -> None:
    async def scenario(state: MemoryStoreState, store: MemoryStore) -> None:
        with pytest.raises(StoreUnavailable):
            await store.create("/a")
        assert state.find("/a") is None

    with_fault(StepFaultKind.REQUEST_LOST, scenario)


def test_a_session_ends_after_a_write_that_took_effect() -> None:
    async def scenario(state: MemoryStoreState, store: MemoryStore) -> None:
        await store.create("/first")
        with pytest.raises(SessionExpired):
            await store.create("/a")
        assert state.find("/a") is not None
        assert store.session_id not in state.sessions

    with_fault(StepFaultKind.SESSION_ENDS_AFTER, scenario, writes_before=1)


def test_a_session_ends_before_a_write() -> None:
    async def scenario(state: MemoryStoreState, store: MemoryStore) -> None:
        with pytest.raises(SessionExpired):
            await store.create("/a")
        assert state.find("/a") is None

    with_fault(StepFaultKind.SESSION_ENDS_BEFORE, scenario)


def test_a_session_that_was_closed_while_cut_off_ends_with_its_timeout() -> None:
    """Nobody is there to keep it alive when the network is repaired."""

    async def main() -> None:
        state = MemoryStoreState()
        store = MemoryStore(state)
        await store.create("/a", ephemeral=True)
        state.cut_off(store.session_id)
        await store.close()
        state.reconnect(store.session_id)
        assert state.find("/a") is not None
        await asyncio.sleep(store.session_timeout_s)
        assert state.find("/a") is None

    run_virtually(main())


def test_requests_of_one_session_arrive_in_order_whatever_each_takes() -> None:
    async def main() -> None:
        state = MemoryStoreState()
        latencies = iter([1.0, *[0.1] * 100])
        state.draw_latency_s = lambda: next(latencies)
        store, seen = MemoryStore(state), list[str]()
        state.on_written.append(lambda session_id, operations: seen.extend(each.path for each in operations))
        await asyncio.gather(store.create("/a"), store.create("/b"))
        assert seen == ["/a", "/b"]

    run_virtually(main())

"""Simulated workers: work is done later, its result comes later still, and nobody need wait for it."""

import asyncio

import pytest

from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import run_virtually
from tidelog.runtime.workers import SimulatedWorkers


def test_work_is_done_at_a_later_moment_and_in_another_order() -> None:
    async def scenario() -> None:
        workers, done = SimulatedWorkers(SeededRandomness(1), 1.0), list[int]()
        results = await asyncio.gather(*(workers.run(done.append, number) for number in range(10)))
        assert results == [None] * 10
        assert sorted(done) == list(range(10))
        assert done != sorted(done)
        assert asyncio.get_running_loop().time() > 0

    run_virtually(scenario())


def test_work_is_done_even_if_nobody_waits_any_more() -> None:
    async def scenario() -> None:
        workers, done = SimulatedWorkers(SeededRandomness(1), 1.0), list[int]()
        task = asyncio.ensure_future(workers.run(done.append, 1))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(3)
        assert done == [1]

    run_virtually(scenario())


def test_errors_come_back() -> None:
    async def scenario() -> None:
        with pytest.raises(ZeroDivisionError):
            await SimulatedWorkers(SeededRandomness(1), 1.0).run(lambda: 1 // 0)

    run_virtually(scenario())

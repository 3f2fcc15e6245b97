"""The rate of the cleaner (log.cleaner.io.max.bytes.per.second), on virtual time."""

import asyncio

import pytest

from tests.storage.compacted_log import Stage, append
from tidelog.runtime.virtual_time import run_virtually
from tidelog.storage.cleaner_throttle import CleanerThrottle


def seconds_for(size: int, rate: float) -> float:
    async def main() -> float:
        loop, throttle = asyncio.get_running_loop(), CleanerThrottle()
        throttle.bytes_per_second = rate
        started_s = loop.time()
        await throttle.pause_after(size)
        return loop.time() - started_s

    return run_virtually(main())


@pytest.mark.parametrize(("size", "rate", "expected_s"), [(5000, 1000, 5.0), (250, 1000, 0.25), (0, 1000, 0.0)])
def test_a_pause_is_as_long_as_the_rate_demands(size: int, rate: float, expected_s: float) -> None:
    assert seconds_for(size, rate) == pytest.approx(expected_s, abs=0.002)


def test_without_a_rate_there_is_no_pause() -> None:
    assert seconds_for(10**15, CleanerThrottle().bytes_per_second) == 0.0


def test_a_new_rate_takes_effect_during_a_pause() -> None:
    async def main() -> None:
        loop, throttle = asyncio.get_running_loop(), CleanerThrottle()
        throttle.bytes_per_second = 1
        pause = loop.create_task(throttle.pause_after(10**9))
        await asyncio.sleep(3.5)
        throttle.bytes_per_second = 10**12
        await asyncio.wait_for(pause, 1.0)

    run_virtually(main())


def test_the_cleaner_pauses_for_what_it_reads_and_writes() -> None:
    stage = Stage()
    log = stage.create()
    for _ in range(3):
        append(log, ("a", "x" * 1000))
        log.roll()
    read = sum(segment.size_bytes for segment in list(log.segments)[:-1])

    async def main() -> float:
        stage.cleaner.throttle.bytes_per_second = 100
        started_s = asyncio.get_running_loop().time()
        assert await stage.cleaner.clean_once()
        return asyncio.get_running_loop().time() - started_s

    took_s = run_virtually(main())
    statistics = stage.cleaner.statistics()
    assert statistics.bytes_read == read
    assert took_s == pytest.approx((statistics.bytes_read + statistics.bytes_written) / 100, abs=0.01)

"""The virtual-time loop keeps asyncio's promises about callbacks, and the order of timers."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from tidelog.runtime.virtual_time import LivelockDetected, run_virtually

WHO: ContextVar[str] = ContextVar("who", default="nobody")


def test_timers_of_one_moment_come_in_the_order_in_which_they_were_set() -> None:
    async def main() -> list[int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        for number in (3, 1, 2):
            loop.call_later(1.0, seen.append, number)
        loop.call_later(0.5, seen.append, 0)
        await asyncio.sleep(1.0)
        return seen

    assert run_virtually(main()) == [0, 3, 1, 2]


def test_what_is_cancelled_does_not_run() -> None:
    async def main() -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        soon, later = loop.call_soon(seen.append, "soon"), loop.call_later(1.0, seen.append, "later")
        soon.cancel()
        later.cancel()
        later.cancel()
        assert soon.cancelled()
        assert later.cancelled()
        await asyncio.sleep(2.0)
        return seen

    assert run_virtually(main()) == []


def test_many_cancelled_timers_are_swept_out_and_the_others_come() -> None:
    async def main() -> tuple[int, int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        timers = [loop.call_later(1.0 + number, seen.append, number) for number in range(1000)]
        for timer in timers[1:]:
            timer.cancel()
        pending: int = loop.pending_timers  # type: ignore[attr-defined]
        await asyncio.sleep(2000)
        return pending, len(seen)

    assert run_virtually(main()) == (1, 1)


def test_a_callback_that_fails_is_reported_and_the_next_one_runs() -> None:
    async def main() -> tuple[list[dict[str, Any]], list[str]]:
        loop, reports, seen = asyncio.get_running_loop(), list[dict[str, Any]](), list[str]()
        loop.set_exception_handler(lambda _, report: reports.append(report))
        loop.call_soon(lambda: 1 // 0)
        loop.call_soon(seen.append, "next")
        await asyncio.sleep(0)
        return reports, seen

    (report,), seen = run_virtually(main())
    assert isinstance(report["exception"], ZeroDivisionError)
    assert seen == ["next"]


def test_callbacks_and_tasks_run_in_the_context_that_set_them() -> None:
    async def main() -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        WHO.set("one")
        loop.call_later(1.0, lambda: seen.append(WHO.get()))
        WHO.set("two")
        loop.call_soon(lambda: seen.append(WHO.get()))

        async def look() -> None:
            seen.append(WHO.get())

        task = loop.create_task(look())
        WHO.set("three")
        await asyncio.sleep(2.0)
        await task
        return seen

    assert run_virtually(main()) == ["two", "two", "one"]


def test_callbacks_without_end_are_an_error() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(LivelockDetected):
        run_virtually(main())

"""Tasks beside their owner: a failure is reported, a cancellation is not, and nothing runs on after the end."""

import asyncio

from tidelog.runtime.side_tasks import SideTasks


def test_a_failure_is_reported_and_an_end_is_not() -> None:
    failures: list[BaseException] = []
    error = ValueError("broken")

    async def fail() -> None:
        raise error

    async def scenario() -> None:
        tasks = SideTasks(failures.append)
        assert await tasks.start(asyncio.sleep(0, "done")) == "done"
        await asyncio.wait([tasks.start(fail())])
        assert len(tasks) == 0

    asyncio.run(scenario())
    assert failures == [error]


def test_what_still_runs_is_cancelled_and_waited_for() -> None:
    events: list[str] = []

    async def go_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("ended")

    async def scenario() -> None:
        tasks = SideTasks(lambda error: events.append(str(error)))
        tasks.start(go_on())
        await asyncio.sleep(0)
        await tasks.cancel()
        events.append("cancelled")

    asyncio.run(scenario())
    assert events == ["ended", "cancelled"]

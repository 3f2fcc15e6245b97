"""Brokers as parts of one event loop: a killed one does not run again, and leaves nothing behind."""

import asyncio
from collections.abc import Awaitable, Callable

from tidelog.testing.killable_brokers import BrokerProcess, ProcessLoop


def _run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    with asyncio.Runner(loop_factory=ProcessLoop) as runner:
        runner.run(main())


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_killed_process_runs_no_task_no_callback_and_no_finally_block() -> None:
    async def scenario() -> None:
        steps: list[str] = []
        process = BrokerProcess()

        async def work() -> None:
            asyncio.get_running_loop().call_later(0, steps.append, "timer")
            asyncio.get_running_loop().call_soon(steps.append, "callback")
            try:
                await asyncio.sleep(0)
                steps.append("task")
            finally:
                steps.append("finally")

        process.start(work())
        await asyncio.sleep(0)
        process.kill()
        await _turns()
        assert steps == []
        await process.discard()

    _run(scenario)


def test_discard_ends_the_tasks_of_a_killed_process() -> None:
    async def scenario() -> None:
        process = BrokerProcess()
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def wait(future: "asyncio.Future[None]") -> None:
            await future

        waiting = process.start(wait(asyncio.get_running_loop().create_future()))
        has_missed_its_wake_up = process.start(wait(woken))
        await _turns()
        process.kill()
        woken.set_result(None)
        await _turns()
        assert process.tasks == {waiting, has_missed_its_wake_up}
        await process.discard()
        assert process.tasks == set()
        assert waiting.cancelled()
        assert has_missed_its_wake_up.cancelled()

    _run(scenario)


def test_tasks_that_a_process_starts_belong_to_it_and_others_do_not() -> None:
    async def scenario() -> None:
        process, other = BrokerProcess(), BrokerProcess()
        steps: list[str] = []

        async def note(step: str) -> None:
            await asyncio.sleep(0)
            steps.append(step)

        async def parent(step: str) -> None:
            await asyncio.create_task(note(step))

        process.start(parent("killed"))
        lives = other.start(parent("lives"))
        await asyncio.sleep(0)
        process.kill()
        await lives
        assert steps == ["lives"]
        assert len(process.tasks) == 2
        assert other.tasks <= {lives}
        await process.discard()

    _run(scenario)

"""Requests that run as tasks: how they end."""

import asyncio
from inspect import CORO_CLOSED, getcoroutinestate

import pytest

from tidelog.runtime.turns import Turns
from tidelog.server.dispatch import _as_deferred


async def answer() -> int:
    return 1


@pytest.mark.parametrize("waits_for_its_turn", [False, True])
@pytest.mark.parametrize("is_abandoned", [False, True])
def test_a_request_that_is_cancelled_before_it_begins_leaves_nothing_behind(
    is_abandoned: bool, waits_for_its_turn: bool
) -> None:
    """Not even a coroutine that nobody awaited, of which Python would warn whenever it collects garbage."""

    async def scenario() -> None:
        coroutine = answer()
        deferred = _as_deferred(coroutine, Turns(asyncio.get_running_loop().time))
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        assert deferred.on_abandoned is not None
        if waits_for_its_turn:
            await asyncio.sleep(0)
        if is_abandoned:
            deferred.on_abandoned()
        else:  # as everything is when the broker ends
            task.cancel()
        await asyncio.wait([task])
        assert getcoroutinestate(coroutine) == CORO_CLOSED

    asyncio.run(scenario())

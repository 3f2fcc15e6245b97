"""Handlers that wait for a promised response, and what becomes of it when they are cancelled."""

import asyncio

import pytest

from tidelog.server.outcome import Deferred


async def waiting(deferred: Deferred[str]) -> "asyncio.Task[str]":
    task = asyncio.get_running_loop().create_task(deferred.wait())
    await asyncio.sleep(0)
    return task


def test_whoever_waits_is_given_the_response() -> None:
    async def scenario() -> None:
        deferred: Deferred[str] = Deferred()
        task = await waiting(deferred)
        deferred.resolve("answer")
        assert await task == "answer"
        assert await deferred.wait() == "answer"

    asyncio.run(scenario())


def test_a_response_for_somebody_who_was_cancelled_hurts_nobody() -> None:
    async def scenario() -> None:
        deferred: Deferred[str] = Deferred()
        abandoned: list[bool] = []
        deferred.on_abandoned = lambda: abandoned.append(True)
        task = await waiting(deferred)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert abandoned == [True]
        deferred.resolve("late")

    asyncio.run(scenario())


def test_a_response_in_the_moment_of_the_cancellation_hurts_nobody() -> None:
    async def scenario() -> None:
        deferred: Deferred[str] = Deferred()
        task = await waiting(deferred)
        task.cancel()
        deferred.resolve("late")
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())

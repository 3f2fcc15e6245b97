"""Deferred: completed once by anybody, mapped, recovered, awaited, abandoned and gathered."""

import asyncio
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from tidelog.errors import KafkaError, RequestTimedOut
from tidelog.runtime.deferred import Deferred, as_deferred, awaited, gather, mapped, observed

T = TypeVar("T")


async def waiting(deferred: Deferred[str]) -> "asyncio.Task[str]":
    task = asyncio.get_running_loop().create_task(deferred.wait())
    await asyncio.sleep(0)
    return task


def test_a_waiter_gets_the_response() -> None:
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


def outcomes_of(deferred: "Deferred[T]") -> "list[T | Exception]":
    """Filled in when it is completed."""
    outcomes: list[T | Exception] = []
    deferred.listen(outcomes.append, outcomes.append)
    return outcomes


def test_the_listener_is_called_in_the_step_that_completes_it_or_at_once() -> None:
    deferred: Deferred[int] = Deferred()
    early = outcomes_of(deferred)
    deferred.resolve(3)
    assert early == outcomes_of(deferred) == [3]


def test_a_value_is_known_once_it_is_there_and_never_after_an_error() -> None:
    assert not Deferred[int]().has_value
    resolved: Deferred[int] = Deferred()
    resolved.resolve(3)
    assert resolved.has_value
    assert resolved.value == 3
    recovered: Deferred[int] = Deferred(lambda _: 4)
    recovered.fail(KafkaError("recovered"))
    assert recovered.has_value
    assert recovered.value == 4
    for has_listener in (False, True):
        failed: Deferred[int] = Deferred()
        if has_listener:
            outcomes_of(failed)
        failed.fail(KafkaError("failed"))
        assert not failed.has_value


def test_a_deferred_is_completed_once() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.resolve(3)
    with pytest.raises(AssertionError):
        deferred.resolve(3)
    with pytest.raises(AssertionError):
        deferred.fail(RequestTimedOut())


def test_an_error_is_mapped_to_itself_and_an_error_of_the_mapping_is_passed_on() -> None:
    error = RequestTimedOut()
    failed: Deferred[int] = Deferred()
    mapped = outcomes_of(failed.map(lambda value: value + 1))
    failed.fail(error)
    assert mapped == [error]
    resolved: Deferred[int] = Deferred()
    divided = outcomes_of(resolved.map(lambda value: 1 // value))
    resolved.resolve(0)
    assert [type(outcome) for outcome in divided] == [ZeroDivisionError]


def test_a_kafka_error_is_recovered_and_a_mistake_is_not() -> None:
    def code_of(error: KafkaError) -> int:
        return error.code

    rejected, mistaken = Deferred(code_of), Deferred(code_of)
    outcomes = [outcomes_of(rejected.map(str)), outcomes_of(mistaken.map(str))]
    mistake = OSError()
    rejected.complete(RequestTimedOut())
    mistaken.complete(mistake)
    assert outcomes == [[str(RequestTimedOut.code)], [mistake]]


def test_a_recovery_that_fails_is_reported_to_the_listener() -> None:
    deferred: Deferred[float] = Deferred(lambda error: 1 / (error.code - RequestTimedOut.code))
    outcomes = outcomes_of(deferred)
    deferred.fail(RequestTimedOut())
    assert [type(outcome) for outcome in outcomes] == [ZeroDivisionError]


def test_who_abandons_what_was_mapped_and_gathered_abandons_its_source() -> None:
    parts: list[Deferred[int]] = [Deferred(), Deferred()]
    abandoned: list[int] = []
    for index, part in enumerate(parts):
        part.on_abandoned = lambda index=index: abandoned.append(index)
    whole = gather(parts).map(sum)
    outcomes = outcomes_of(whole)
    whole.abandon()
    parts[0].resolve(1)
    parts[1].resolve(2)
    assert abandoned == [0, 1]
    assert outcomes == []


def test_values_are_gathered_in_the_order_of_their_parts() -> None:
    parts: list[Deferred[int]] = [Deferred(), Deferred()]
    whole = outcomes_of(gather(parts))
    parts[1].resolve(2)
    assert whole == []
    parts[0].resolve(1)
    assert whole == [[1, 2]]
    nothing: list[Deferred[int]] = []
    assert outcomes_of(gather(nothing)) == [[]]


def test_the_first_error_is_that_of_all() -> None:
    parts: list[Deferred[int]] = [Deferred(), Deferred()]
    whole = outcomes_of(gather(parts))
    error = RequestTimedOut()
    parts[1].fail(error)
    parts[0].fail(RequestTimedOut())
    assert whole == [error]


class Mistake(Exception):
    """Unlike built-in exceptions it can be referred to weakly."""


@pytest.mark.parametrize("is_abandoned", [False, True])
def test_an_error_is_not_kept_once_it_is_passed_on(is_abandoned: bool) -> None:
    """Its traceback holds the frames of those who failed, and with them the request: megabytes in a cycle."""
    deferred: Deferred[int] = Deferred()
    deferred.listen(lambda value: None, lambda error: None)
    if is_abandoned:
        deferred.abandon()
    error = Mistake()
    kept = weakref.ref(error)
    deferred.fail(error)
    del error
    assert kept() is None


Outcome = str | Deferred[str]


def test_a_known_value_is_mapped_at_once_and_a_later_one_later() -> None:
    def shout(value: str) -> str:
        return value.upper()

    known: Outcome = mapped("answer", shout)
    assert known == "ANSWER"
    later: Deferred[str] = Deferred()
    shouted: Outcome = mapped(later, shout)
    assert isinstance(shouted, Deferred)
    assert not shouted.is_completed
    later.resolve("answer")
    assert asyncio.run(shouted.wait()) == "ANSWER"


def test_values_deferreds_and_coroutines_are_awaited_alike() -> None:
    async def coroutine() -> str:
        return "answer"

    async def value_of(outcome: Outcome | Coroutine[Any, Any, str]) -> str:
        value: str = await awaited(outcome)
        return value

    failed: Deferred[str] = Deferred()
    failed.fail(RequestTimedOut())
    assert asyncio.run(value_of("answer")) == "answer"
    assert asyncio.run(value_of(as_deferred("answer"))) == "answer"
    assert asyncio.run(value_of(coroutine())) == "answer"
    with pytest.raises(RequestTimedOut):
        asyncio.run(value_of(failed))


def test_a_deferred_stays_the_same_deferred() -> None:
    deferred: Deferred[str] = Deferred()
    same: Deferred[str] = as_deferred(deferred)
    assert same is deferred


@pytest.mark.parametrize("end", ["value", "error", "abandoned"])
def test_an_observer_learns_how_an_outcome_ends_before_its_listener(end: str) -> None:
    events: list[str] = []
    source: Deferred[str] = Deferred()
    source.on_abandoned = lambda: events.append("source abandoned")
    seen: Outcome = observed(
        source,
        lambda value: events.append(f"observed {value}"),
        lambda error: events.append(f"observed {type(error).__name__}"),
        lambda: events.append("observed abandonment"),
    )
    assert isinstance(seen, Deferred)
    seen.listen(events.append, lambda error: events.append(type(error).__name__))
    if end == "value":
        source.resolve("answer")
        assert events == ["observed answer", "answer"]
    elif end == "error":
        source.fail(RequestTimedOut())
        assert events == ["observed RequestTimedOut", "RequestTimedOut"]
    else:
        seen.abandon()
        assert events == ["observed abandonment", "source abandoned"]


def test_an_observer_of_a_known_value_learns_it_at_once() -> None:
    events: list[str] = []
    assert observed("answer", events.append, lambda _: None, lambda: None) == "answer"
    assert events == ["answer"]

"""Deferred: a value that is completed later, by anybody.

Named after Twisted's. Unlike a future it needs no turn of the event loop: its listener is called in the step that
completes it. It has no timeout; the purgatory (`runtime/purgatory.py`) completes it when an operation expires.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import CoroutineType
from typing import Any, Generic, TypeVar

from tidelog.errors import KafkaError

T = TypeVar("T")
U = TypeVar("U")


class Deferred(Generic[T]):
    """Completed exactly once, with a value or an error. Has one listener."""

    __slots__ = ("_error", "_on_error", "_on_value", "_recover", "_value", "has_value", "is_completed", "on_abandoned")

    def __init__(self, recover: Callable[[KafkaError], T] | None = None) -> None:
        """`recover` turns a KafkaError into a value, for example into a response with its error code."""
        self.is_completed = False
        self.has_value = False
        """Completed without an error: `value` is there."""
        self.on_abandoned: Callable[[], None] | None = None
        self._recover = recover
        self._value: T | None = None
        self._error: Exception | None = None
        self._on_value: Callable[[T], None] | None = None
        self._on_error: Callable[[Exception], None] | None = None

    # ---- completing

    def resolve(self, value: T) -> None:
        assert not self.is_completed, "a Deferred is completed once"
        self.is_completed = self.has_value = True
        self._value = value
        on_value = self._on_value
        # The callbacks refer back to this object. Without reference cycles the garbage collector, which stops the
        # broker for milliseconds, has nothing to do.
        self._on_value = self._on_error = self._recover = self.on_abandoned = None
        if on_value is not None:
            on_value(value)

    def fail(self, error: Exception) -> None:
        if self._recover is not None and isinstance(error, KafkaError):
            try:
                value = self._recover(error)
            except Exception as mistake:  # noqa: BLE001 - the listener handles it, and does not wait forever
                error = mistake
            else:
                self.resolve(value)
                return
        assert not self.is_completed, "a Deferred is completed once"
        self.is_completed = True
        on_error = self._on_error
        self._on_value = self._on_error = self._recover = self.on_abandoned = None
        if on_error is None:
            self._error = error
        else:  # not kept: its traceback refers to frames that refer to this object, and to the request
            on_error(error)

    def complete(self, outcome: T | Exception) -> None:
        """Complete with a stored outcome; an exception is a failure."""
        if isinstance(outcome, Exception):
            self.fail(outcome)
        else:
            self.resolve(outcome)

    # ---- waiting

    @property
    def value(self) -> T:
        assert self.has_value, "the value is not known"
        return self._value  # type: ignore[return-value]

    def listen(self, on_value: Callable[[T], None], on_error: Callable[[Exception], None]) -> None:
        """Exactly one of the two is called, once; now if this is completed already."""
        if not self.is_completed:
            self._on_value, self._on_error = on_value, on_error
        elif self._error is not None:
            on_error(self._error)
        else:
            on_value(self._value)  # type: ignore[arg-type]

    def map(self, function: Callable[[T], U]) -> "Deferred[U]":
        """A Deferred with `function(value)`. Errors pass through, including one that `function` raises."""
        mapped: Deferred[U] = Deferred()
        mapped.on_abandoned = self.abandon

        def on_value(value: T) -> None:
            try:
                result = function(value)
            except Exception as error:  # noqa: BLE001 - the listener handles it
                mapped.fail(error)
            else:
                mapped.resolve(result)

        self.listen(on_value, mapped.fail)
        return mapped

    async def wait(self) -> T:
        """The value; raises the error. Abandons this if the waiting task is cancelled."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.listen(partial(set_result_unless_done, done), partial(set_exception_unless_done, done))
        try:
            return await done
        except asyncio.CancelledError:
            self.abandon()
            raise
        finally:
            del done, self  # else the traceback of an error would refer to the error

    def abandon(self) -> None:
        """The listener is gone. Completing it later has no effect."""
        on_abandoned = self.on_abandoned
        self._on_value, self._on_error, self.on_abandoned = None, _ignore, None
        if on_abandoned is not None and not self.is_completed:
            on_abandoned()


def _ignore(error: Exception) -> None:
    """Listener of an abandoned Deferred."""


def set_result_unless_done(done: "asyncio.Future[T]", value: T) -> None:
    if not done.done():  # cancelled before the waiting task has noticed
        done.set_result(value)


def set_exception_unless_done(done: "asyncio.Future[T]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)


# ---- what may be a value or a Deferred: callers need not ask which


def as_deferred(outcome: T | Deferred[T]) -> Deferred[T]:
    """Completed already if the value is known."""
    if isinstance(outcome, Deferred):
        return outcome
    completed: Deferred[T] = Deferred()
    completed.resolve(outcome)
    return completed


def mapped(outcome: T | Deferred[T], function: Callable[[T], U]) -> U | Deferred[U]:
    """`function(value)`, at once if the value is known."""
    return outcome.map(function) if isinstance(outcome, Deferred) else function(outcome)


async def awaited(outcome: T | Deferred[T] | Coroutine[Any, Any, T]) -> T:
    """The value, also of a coroutine; raises its error."""
    if isinstance(outcome, Deferred):
        value: T = await outcome.wait()
        return value
    if isinstance(outcome, CoroutineType):
        result: T = await outcome
        return result
    return outcome  # type: ignore[return-value]


def observed(
    outcome: T | Deferred[T],
    on_value: Callable[[T], None],
    on_error: Callable[[Exception], None],
    on_abandoned: Callable[[], None],
) -> T | Deferred[T]:
    """The same outcome. One of the three is called before its listener, at once if the value is known."""
    if not isinstance(outcome, Deferred):
        on_value(outcome)
        return outcome
    source: Deferred[T] = outcome
    passed_on: Deferred[T] = Deferred()

    def pass_value(value: T) -> None:
        on_value(value)
        passed_on.resolve(value)

    def pass_error(error: Exception) -> None:
        on_error(error)
        passed_on.fail(error)

    def pass_abandonment() -> None:
        on_abandoned()
        source.abandon()

    passed_on.on_abandoned = pass_abandonment
    source.listen(pass_value, pass_error)
    return passed_on


def gather(parts: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """All values in the order of `parts`, once all are completed; or the first error."""
    gathered: Deferred[list[T]] = Deferred()
    values: dict[int, T] = {}

    def abandon() -> None:
        for part in parts:
            part.abandon()

    def on_value(index: int, value: T) -> None:
        values[index] = value
        if len(values) == len(parts) and not gathered.is_completed:
            gathered.resolve([values[each] for each in range(len(parts))])

    def on_error(error: Exception) -> None:
        if not gathered.is_completed:
            gathered.fail(error)

    gathered.on_abandoned = abandon
    for index, part in enumerate(parts):
        part.listen(lambda value, index=index: on_value(index, value), on_error)  # type: ignore[misc]
    if not parts:
        gathered.resolve([])
    return gathered

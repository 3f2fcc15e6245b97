"""Deferred: a value that somebody gives later.

Named after Twisted's: unlike a future it needs no turn of the event loop, its listener is told in the step that
completes it. Deadlines are those of the purgatory (`runtime/purgatory.py`): the operation that expires completes it.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from tidelog.errors import KafkaError

T = TypeVar("T")
U = TypeVar("U")


class Deferred(Generic[T]):
    """Completed exactly once, with a value or an error; has one listener."""

    __slots__ = ("_error", "_on_error", "_on_value", "_recover", "_value", "is_completed", "on_abandoned")

    def __init__(self, recover: Callable[[KafkaError], T] | None = None) -> None:
        """With `recover`, a KafkaError becomes a value: the response of an API that names the error, say."""
        self.is_completed = False
        self.on_abandoned: Callable[[], None] | None = None
        self._recover = recover
        self._value: T | None = None
        self._error: Exception | None = None
        self._on_value: Callable[[T], None] | None = None
        self._on_error: Callable[[Exception], None] | None = None

    # ---- for the side that completes it

    def resolve(self, value: T) -> None:
        assert not self.is_completed, "a Deferred is completed once"
        self.is_completed = True
        self._value = value
        on_value = self._on_value
        # The listener, and what would be told to give up, refer back to this. Without such cycles the garbage
        # collector, which would stop the broker for milliseconds, has nothing to find.
        self._on_value = self._on_error = self._recover = self.on_abandoned = None
        if on_value is not None:
            on_value(value)

    def fail(self, error: Exception) -> None:
        if self._recover is not None and isinstance(error, KafkaError):
            try:
                value = self._recover(error)
            except Exception as mistake:  # noqa: BLE001 - whoever listens has to deal with it, and does not wait for ever
                error = mistake
            else:
                self.resolve(value)
                return
        assert not self.is_completed, "a Deferred is completed once"
        self.is_completed = True
        self._error = error
        on_error = self._on_error
        self._on_value = self._on_error = self._recover = self.on_abandoned = None
        if on_error is not None:
            on_error(error)

    def complete(self, outcome: T | Exception) -> None:
        """For outcomes that were kept: an exception is a failure."""
        if isinstance(outcome, Exception):
            self.fail(outcome)
        else:
            self.resolve(outcome)

    # ---- for the side that waits

    def listen(self, on_value: Callable[[T], None], on_error: Callable[[Exception], None]) -> None:
        """One of the two is called once: now, if it is completed already."""
        if not self.is_completed:
            self._on_value, self._on_error = on_value, on_error
        elif self._error is not None:
            on_error(self._error)
        else:
            on_value(self._value)  # type: ignore[arg-type]

    def map(self, function: Callable[[T], U]) -> "Deferred[U]":
        """What `function` makes of the value. Errors stay errors, and so does one that `function` raises."""
        mapped: Deferred[U] = Deferred()
        mapped.on_abandoned = self.abandon

        def on_value(value: T) -> None:
            try:
                result = function(value)
            except Exception as error:  # noqa: BLE001 - whoever listens has to deal with it
                mapped.fail(error)
            else:
                mapped.resolve(result)

        self.listen(on_value, mapped.fail)
        return mapped

    async def wait(self) -> T:
        """Raises the error instead of the value. If the waiting task is cancelled, this is abandoned."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.listen(partial(_set_result, done), partial(_set_exception, done))
        try:
            return await done
        except asyncio.CancelledError:
            self.abandon()
            raise
        finally:
            del done, self  # or the traceback of an error would lead back to the error

    def abandon(self) -> None:
        """Nobody waits any more. It may still be completed, without effect."""
        on_abandoned = self.on_abandoned
        self._on_value = self._on_error = self.on_abandoned = None
        if on_abandoned is not None and not self.is_completed:
            on_abandoned()


def _set_result(done: "asyncio.Future[T]", value: T) -> None:
    if not done.done():  # cancelled, and the task that waits does not know yet
        done.set_result(value)


def _set_exception(done: "asyncio.Future[T]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)


def gather(parts: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """All values in the order of `parts`, when the last one is there; the first error instead, if there is one."""
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

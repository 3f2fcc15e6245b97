"""Requests about very many things: begun in slices, so that others have their turn in between."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias, TypeVar

from tidelog.protocol.structs import Response
from tidelog.server.dispatch import Call
from tidelog.server.outcome import Deferred

T = TypeVar("T")
R = TypeVar("R", bound=Response)

MANY = 100

Promised: TypeAlias = Deferred[R] | Coroutine[Any, Any, R]


def begin_each(items: Iterable[T], begin: Callable[[T], None], deferred: Deferred[R], call: Call) -> Promised[R]:
    """Begin a few at once; of more, the first slice when the turn of the request comes."""
    listed = list(items)
    if len(listed) > MANY:
        return _begin_in_slices(listed, begin, deferred, call)
    for item in listed:
        begin(item)
    return deferred


async def _begin_in_slices(items: list[T], begin: Callable[[T], None], deferred: Deferred[R], call: Call) -> R:
    await call.services.turns.each(items, begin)
    return await deferred.wait()

"""Requests about very many things: begun in slices, so that others have their turn in between."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias, TypeVar

from tidelog.protocol.structs import Response
from tidelog.runtime.deferred import Deferred, gather
from tidelog.server.dispatch import Call

T = TypeVar("T")
R = TypeVar("R", bound=Response)

MANY = 100

Promised: TypeAlias = Deferred[R] | Coroutine[Any, Any, R]


def begin_each(
    items: Iterable[T], begin: Callable[[T], Deferred[R]], finish: Callable[[list[R]], R], call: Call
) -> Promised[R]:
    """One response about all items. Few are begun at once; of many, the first slice in the turn of the request."""
    listed = list(items)
    if len(listed) > MANY:
        return _begin_in_slices(listed, begin, finish, call)
    return gather([begin(item) for item in listed]).map(finish)


async def _begin_in_slices(
    items: list[T], begin: Callable[[T], Deferred[R]], finish: Callable[[list[R]], R], call: Call
) -> R:
    begun = await call.services.turns.each(items, begin)
    return finish(await gather(begun).wait())

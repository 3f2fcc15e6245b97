"""Requests with very many items: started in slices, so that other requests run in between."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias, TypeVar

from tidelog.protocol.structs import Response
from tidelog.runtime.deferred import Deferred, gather
from tidelog.server.dispatch import RequestContext

T = TypeVar("T")
R = TypeVar("R", bound=Response)

MANY = 100

Promised: TypeAlias = Deferred[R] | Coroutine[Any, Any, R]


def begin_each(
    items: Iterable[T], begin: Callable[[T], Deferred[R]], finish: Callable[[list[R]], R], context: RequestContext
) -> Promised[R]:
    """One response for all items. Up to MANY items start at once; more start in slices, the first one at once."""
    listed = list(items)
    if len(listed) > MANY:
        return _begin_in_slices(listed, begin, finish, context)
    return gather([begin(item) for item in listed]).map(finish)


async def _begin_in_slices(
    items: list[T], begin: Callable[[T], Deferred[R]], finish: Callable[[list[R]], R], context: RequestContext
) -> R:
    begun = await context.services.turns.each(items, begin)
    return finish(await gather(begun).wait())

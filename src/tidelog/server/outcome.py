"""What a handler gives back: a response, nothing (no answer is wanted), or the promise of one of these."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar

from tidelog.protocol.structs import Response

ResponseT = TypeVar("ResponseT")


class Deferred(Generic[ResponseT]):
    """A response that will be there later. Lighter than a future: it tells its one listener at once."""

    __slots__ = ("_listener", "_response", "is_resolved", "on_abandoned")

    def __init__(self) -> None:
        self.is_resolved = False
        self._response: ResponseT | None = None
        self._listener: Callable[[ResponseT | None], None] | None = None
        self.on_abandoned: Callable[[], None] | None = None

    def resolve(self, response: ResponseT | None) -> None:
        assert not self.is_resolved, "a response is given once"
        self.is_resolved = True
        self._response = response
        if self._listener is not None:
            self._listener(response)

    def listen(self, listener: Callable[[ResponseT | None], None]) -> None:
        self._listener = listener
        if self.is_resolved:
            listener(self._response)

    async def wait(self) -> ResponseT:
        """For a handler that has to go on itself."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.listen(done.set_result)
        response: ResponseT = await done
        return response

    def abandon(self) -> None:
        """Whoever asked has gone."""
        self._listener = None
        if self.on_abandoned is not None and not self.is_resolved:
            self.on_abandoned()


Outcome: TypeAlias = Response | Deferred[Any] | Coroutine[Any, Any, Response | None] | None

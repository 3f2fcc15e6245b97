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
        # Who listens and who could be told to give up refer back to this: letting go of them here spares the
        # garbage collector, which would stop the broker for milliseconds to find such cycles.
        listener, self._listener, self.on_abandoned = self._listener, None, None
        if listener is not None:
            listener(response)

    def listen(self, listener: Callable[[ResponseT | None], None]) -> None:
        self._listener = listener
        if self.is_resolved:
            listener(self._response)

    async def wait(self) -> ResponseT:
        """For a handler that has to go on itself; one that is cancelled, since its client has gone, gives up."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def tell(response: ResponseT | None) -> None:
            if not done.done():  # cancelled, and not yet told so
                done.set_result(response)

        self.listen(tell)
        try:
            response: ResponseT = await done
        except asyncio.CancelledError:
            self.abandon()
            raise
        return response

    def abandon(self) -> None:
        """Whoever asked has gone."""
        on_abandoned, self._listener, self.on_abandoned = self.on_abandoned, None, None
        if on_abandoned is not None and not self.is_resolved:
            on_abandoned()


Outcome: TypeAlias = Response | Deferred[Any] | Coroutine[Any, Any, Response | None] | None

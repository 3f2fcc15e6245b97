"""The way from a coordinator's machine to the answer of a request."""

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from tidelog.errors import KafkaError
from tidelog.protocol.structs import Response
from tidelog.server.outcome import Deferred

ResponseT = TypeVar("ResponseT", bound=Response)


class DeferredReply(Generic[ResponseT]):
    """A handler returns `deferred`; the machine answers through this, maybe at once, maybe much later."""

    __slots__ = ("_failure", "deferred")

    def __init__(self, failure: Callable[[KafkaError], ResponseT]) -> None:
        self._failure = failure
        """How the API tells an error that concerns the whole request."""
        self.deferred: Deferred[ResponseT] = Deferred()

    def answer(self, response: Response) -> None:
        self.deferred.resolve(cast("ResponseT", response))

    def fail(self, error: KafkaError) -> None:
        self.deferred.resolve(self._failure(error))


class CompletedReply(DeferredReply[ResponseT], Generic[ResponseT]):
    """Adds to the machine's answer what the machine was not asked, or does not know."""

    __slots__ = ("_complete",)

    def __init__(self, failure: Callable[[KafkaError], ResponseT], complete: Callable[[ResponseT], ResponseT]) -> None:
        super().__init__(failure)
        self._complete = complete

    def answer(self, response: Response) -> None:
        super().answer(self._complete(response))  # type: ignore[arg-type]

    def fail(self, error: KafkaError) -> None:
        self.answer(self._failure(error))

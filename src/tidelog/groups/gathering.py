"""One answer to a request that is about several groups: made when each of them has been answered for."""

from collections.abc import Callable
from typing import Generic, TypeVar

from tidelog.errors import KafkaError
from tidelog.protocol.structs import Response

R = TypeVar("R", bound=Response)


class Gathering(Generic[R]):
    """Parts come in any order, and are told in that of the request."""

    def __init__(self, count: int, on_complete: Callable[[list[R]], None]) -> None:
        self._parts: list[R | None] = [None] * count
        self._missing = count
        self._on_complete: Callable[[list[R]], None] | None = on_complete
        if not count:
            self._complete()

    def part(self, index: int, failure: Callable[[KafkaError], R]) -> "GatheredPart[R]":
        return GatheredPart(self, index, failure)

    def put(self, index: int, part: R) -> None:
        self._parts[index] = part
        self._missing -= 1
        if not self._missing:
            self._complete()

    def _complete(self) -> None:
        on_complete, self._on_complete = self._on_complete, None
        assert on_complete is not None, "every part comes once"
        on_complete([part for part in self._parts if part is not None])


class GatheredPart(Generic[R]):
    """The reply of one group."""

    __slots__ = ("_failure", "_gathering", "_index")

    def __init__(self, gathering: Gathering[R], index: int, failure: Callable[[KafkaError], R]) -> None:
        self._gathering = gathering
        self._index = index
        self._failure = failure

    def answer(self, response: Response) -> None:
        self._gathering.put(self._index, response)  # type: ignore[arg-type]

    def fail(self, error: KafkaError) -> None:
        self._gathering.put(self._index, self._failure(error))

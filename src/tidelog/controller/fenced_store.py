"""Fenced store of a controller term: every write checks the controller epoch; operations fail after the term."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from tidelog.cluster import znodes
from tidelog.controller.registration import ControllerFence
from tidelog.store.interface import (
    BadVersion,
    Check,
    Node,
    Operation,
    Result,
    SessionExpired,
    Store,
    StoreUnavailable,
    Watch,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_PAUSE_S = 0.2
"""Pause between attempts while the store is unreachable. The owner ends the term if that takes too long."""

MAX_OPERATIONS = 1000
"""Maximum per transaction: ZooKeeper accepts requests of up to 1 MB."""


def in_transactions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split `items` into parts that fit into one transaction each."""
    for start in range(0, len(items), MAX_OPERATIONS):
        yield items[start : start + MAX_OPERATIONS]


class TermEnded(Exception):
    """The term of this controller has ended. Handlers let this exception through."""


class FencedStore:
    def __init__(self, store: Store, fence: ControllerFence) -> None:
        self._store = store
        self._fence = Check(znodes.CONTROLLER_EPOCH, fence.epoch_version)
        self.is_over = False

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._retry(lambda: self._store.children(path, watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        return await self._retry(lambda: self._store.exists(path, watch))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._retry(lambda: self._store.get_many(paths)) if paths else []

    async def write(self, operations: Sequence[Operation]) -> list[Result]:
        """Write all operations or none; none after the term (R31).

        A write is retried if its response was lost. If the retry then finds an unexpected version, the caller has to
        check whether its own first attempt wrote it.
        """
        try:
            results = await self._retry(lambda: self._store.multi([self._fence, *operations]))
        except BadVersion as error:
            if error.path == self._fence.path:
                raise TermEnded("another controller was elected") from error
            raise
        return results[1:]

    async def _retry(self, operation: Callable[[], Awaitable[T]]) -> T:
        while True:
            self.check()
            try:
                response = await operation()
            except SessionExpired as error:
                raise TermEnded("the session with the store has ended") from error
            except StoreUnavailable as error:
                logger.warning("store unreachable, retrying reason=%s", error)
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                self.check()
                return response

    def check(self) -> None:
        if self.is_over:
            raise TermEnded("resigned")

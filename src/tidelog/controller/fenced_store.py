"""The store as a controller in office uses it: writes are fenced, and nothing comes back after the term."""

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
"""Between attempts when the store cannot be reached. The owner ends the term when that takes too long."""

MAX_OPERATIONS = 1000
"""In one transaction: ZooKeeper takes requests of 1 MB."""


def in_transactions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """In parts, each of which fits into one transaction."""
    for start in range(0, len(items), MAX_OPERATIONS):
        yield items[start : start + MAX_OPERATIONS]


class TermOver(Exception):
    """This controller is no longer in office: whatever it was doing ends here."""


class FencedStore:
    def __init__(self, store: Store, fence: ControllerFence) -> None:
        self._store = store
        self._fence = Check(znodes.CONTROLLER_EPOCH, fence.epoch_version)
        self.is_over = False

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._ask(lambda: self._store.children(path, watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        return await self._ask(lambda: self._store.exists(path, watch))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._ask(lambda: self._store.get_many(paths)) if paths else []

    async def write(self, operations: Sequence[Operation]) -> list[Result]:
        """All or none, and none after the term (R31).

        A write whose answer was lost is tried again: whoever is then told that the store is
        different from what was expected has to look whether it was by this very write.
        """
        try:
            results = await self._ask(lambda: self._store.multi([self._fence, *operations]))
        except BadVersion as error:
            if error.path == self._fence.path:
                raise TermOver("another controller has taken over") from error
            raise
        return results[1:]

    async def _ask(self, operation: Callable[[], Awaitable[T]]) -> T:
        while True:
            self.check()
            try:
                answer = await operation()
            except SessionExpired as error:
                raise TermOver("the session with the store has ended") from error
            except StoreUnavailable as error:
                logger.warning("the store cannot be reached, trying again reason=%s", error)
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                self.check()
                return answer

    def check(self) -> None:
        if self.is_over:
            raise TermOver("resigned")

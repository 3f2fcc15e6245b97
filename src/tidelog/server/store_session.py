"""The broker's session with the coordination store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tidelog.runtime.side_tasks import SideTasks
from tidelog.store.interface import Store, StoreError

logger = logging.getLogger(__name__)


class StoreSession:
    """Opens a session and keeps it alive. When the membership finds it expired, it opens the next one."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]], background: SideTasks) -> None:
        self._open_store = open_store
        self._background = background
        self._store: Store | None = None
        self._keeping_alive: asyncio.Task[object] | None = None

    async def open(self) -> Store:
        """Open a new session and keep it alive. The previous session is closed."""
        if self._keeping_alive is not None:
            self._keeping_alive.cancel()
        if self._store is not None:
            self._background.start(_close(self._store))
        self._store = await self._open_store()
        self._keeping_alive = self._background.start(self._store.run())
        return self._store

    async def close(self) -> None:
        if self._store is not None:
            await _close(self._store)


async def _close(store: Store) -> None:
    try:
        await store.close()
    except (StoreError, OSError) as error:
        logger.warning("cannot close session with coordination store reason=%s", error)

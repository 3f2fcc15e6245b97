"""The stores that the contract is tested on."""

import asyncio
from pathlib import Path
from typing import Protocol

from tidelog.runtime.clock import ManualClock
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.workers import InlineWorkers
from tidelog.store.interface import Store
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.store.sqlite import SqliteStore


class Stores(Protocol):
    async def open(self) -> Store:
        """A new session with the same nodes."""
        ...

    async def settle(self) -> None:
        """Let everything arrive that is on its way."""
        ...

    async def kill(self, store: Store) -> None:
        """The process that holds the session dies."""
        ...

    async def close(self) -> None: ...


class MemoryStores:
    def __init__(self) -> None:
        self._state = MemoryStoreState()

    async def open(self) -> Store:
        return MemoryStore(self._state)

    async def settle(self) -> None:
        await asyncio.sleep(0)

    async def kill(self, store: Store) -> None:
        self._state.expire(store.session_id)

    async def close(self) -> None:
        return None


class SqliteStores:
    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "coordination.sqlite")
        self.clock = ManualClock()
        self.opened: list[SqliteStore] = []

    async def open(self) -> SqliteStore:
        store = await SqliteStore.open(self.path, SystemDisk(), self.clock, InlineWorkers())
        self.opened.append(store)
        return store

    async def settle(self) -> None:
        for _ in range(2):  # the first round may end a session, which others see in the second
            for store in self.opened:
                await store.poll()
        await asyncio.sleep(0)

    async def kill(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        self.opened.remove(store)
        store._lock.release()
        store._detector.close()
        store._database.close()

    async def close(self) -> None:
        for store in self.opened:
            await store.close()

"""The stores that the contract is tested on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from kazoo.client import KazooClient

from tests.store.zookeeper import Proxy
from tidelog.runtime.clock import ManualClock, SystemClock
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.workers import InlineWorkers, ThreadWorkers
from tidelog.store.interface import Store, StoreUnavailable
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.store.sqlite import SqliteStore
from tidelog.store.zookeeper import ZooKeeperStore
from tools.zookeeper import ZooKeeper

P = ParamSpec("P")
T = TypeVar("T")

SESSION_TIMEOUT_MS = 9000
ZOOKEEPER_SESSION_TIMEOUT_MS = 15_000
ZOOKEEPER_SHORT_SESSION_TIMEOUT_MS = 1500
"""For tests that wait for the end of a session. kazoo gives up a connection if a ping takes a sixth of this."""
LONG_ENOUGH_TO_BE_SUSPENDED = 0.95
"""Of a session timeout: more than the lease, less than the session."""

_chroot_numbers = count()


@asynccontextmanager
async def running(store: Store) -> AsyncIterator[None]:
    """Renews the session of the store in the block; at its end the store is closed."""
    renewing = asyncio.create_task(store.run())
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await store.close()


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

    async def cut_off(self, store: Store) -> None:
        """The session's owner can no longer reach the store."""
        ...

    async def reconnect(self, store: Store) -> None: ...

    async def outlast_lease(self, store: Store) -> None:
        """Of a session that is cut off: until it is suspended, and no longer."""
        ...

    async def outlast_session(self) -> None:
        """Until a session that is cut off has ended."""
        ...

    async def close(self) -> None: ...


async def until(stores: Stores, condition: Callable[[], object]) -> None:
    """Some stores report what happened only after a while."""
    for _ in range(500):
        await stores.settle()
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


class MemoryStores:
    def __init__(self) -> None:
        self._state = MemoryStoreState()

    async def open(self) -> Store:
        return MemoryStore(self._state, session_timeout_ms=SESSION_TIMEOUT_MS)

    async def settle(self) -> None:
        await asyncio.sleep(0)

    async def kill(self, store: Store) -> None:
        self._state.crash(store.session_id)
        await asyncio.sleep(0.001)

    async def cut_off(self, store: Store) -> None:
        self._state.cut_off(store.session_id)

    async def reconnect(self, store: Store) -> None:
        self._state.reconnect(store.session_id)

    async def outlast_lease(self, store: Store) -> None:
        await asyncio.sleep(LONG_ENOUGH_TO_BE_SUSPENDED * SESSION_TIMEOUT_MS / 1000)

    async def outlast_session(self) -> None:
        await asyncio.sleep(1.2 * SESSION_TIMEOUT_MS / 1000)

    async def close(self) -> None:
        return None


class CuttableWorkers(InlineWorkers):
    """Where the store's calls pass through, they can be stopped."""

    def __init__(self) -> None:
        self.is_cut = False

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.is_cut:
            raise StoreUnavailable
        return work(*args, **kwargs)


class SqliteStores:
    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "coordination.sqlite")
        self.clock = ManualClock()
        self.opened: list[SqliteStore] = []
        self._workers: dict[Store, CuttableWorkers] = {}

    async def open(self) -> SqliteStore:
        workers = CuttableWorkers()
        store = await SqliteStore.open(
            self.path, SystemDisk(), self.clock, workers, session_timeout_ms=SESSION_TIMEOUT_MS
        )
        self._workers[store] = workers
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
        store.lease.cancel()
        store._session._release_lock()
        store._session.detector.close()
        store._session.database.close()

    async def cut_off(self, store: Store) -> None:
        self._workers[store].is_cut = True

    async def reconnect(self, store: Store) -> None:
        self._workers[store].is_cut = False
        await self.settle()

    async def outlast_lease(self, store: Store) -> None:
        await self._pass_time(LONG_ENOUGH_TO_BE_SUSPENDED)

    async def outlast_session(self) -> None:
        await self._pass_time(1.2)

    async def _pass_time(self, sessions: float) -> None:
        steps = 20
        for _ in range(steps):
            self.clock.advance(int(SESSION_TIMEOUT_MS * sessions / steps))
            await self.settle()

    async def close(self) -> None:
        for store in self.opened:
            self._workers[store].is_cut = False
            await store.close()


class ZooKeeperStores:
    def __init__(self, server: ZooKeeper, *, has_short_sessions: bool) -> None:
        self._server = server
        self._session_timeout_ms = (
            ZOOKEEPER_SHORT_SESSION_TIMEOUT_MS if has_short_sessions else ZOOKEEPER_SESSION_TIMEOUT_MS
        )
        self._chroot = f"/tests/number-{next(_chroot_numbers)}"
        self._workers = ThreadWorkers("store", 2)
        self._proxies: dict[Store, Proxy] = {}
        self._running: dict[ZooKeeperStore, asyncio.Task[None]] = {}

    async def open(self) -> ZooKeeperStore:
        proxy = Proxy(self._server.port)
        await proxy.start()
        store = await ZooKeeperStore.open(
            f"127.0.0.1:{proxy.port}{self._chroot}",
            SystemClock(),
            self._workers,
            session_timeout_ms=self._session_timeout_ms,
            connection_timeout_ms=20_000,
        )
        self._proxies[store] = proxy
        self._running[store] = asyncio.create_task(store.run())
        return store

    async def settle(self) -> None:
        """ZooKeeper notifies a client of a change before it answers later reads of the client."""
        for store, proxy in self._proxies.items():
            if store.is_session_alive and not proxy._is_cut:
                await store.get_many(["/"])
        await asyncio.sleep(0)

    async def kill(self, store: Store) -> None:
        """A session is ended with its password, which is quicker than to let it expire."""
        assert isinstance(store, ZooKeeperStore)
        self._proxies[store].cut()
        thief = KazooClient(self._server.connect_string, client_id=store._client.client_id)
        await self._workers.run(thief.start)
        await self._workers.run(thief.stop)
        thief.close()

    async def cut_off(self, store: Store) -> None:
        self._proxies[store].cut()

    async def reconnect(self, store: Store) -> None:
        self._proxies[store].mend()

    async def outlast_lease(self, store: Store) -> None:
        """As if the session timeout were shorter than the one that the server keeps to."""
        assert isinstance(store, ZooKeeperStore)
        store.lease.renew(SystemClock().monotonic(), 0.2)
        await asyncio.sleep(0.25)

    async def outlast_session(self) -> None:
        await asyncio.sleep(1.6 * self._session_timeout_ms / 1000)

    async def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.mend()
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        await asyncio.gather(*(store.close() for store in self._running))
        for proxy in self._proxies.values():
            await proxy.close()
        self._workers.close()

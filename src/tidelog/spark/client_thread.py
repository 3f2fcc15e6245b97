"""Client thread: the client's event loop in a thread of this process, for Spark's blocking calls."""

import asyncio
import atexit
import concurrent.futures
import logging
import os
import queue
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tidelog.client.network.bootstrap import parse_bootstrap
from tidelog.client.network.secured_network import secured_network
from tidelog.client.routing.cluster import Cluster
from tidelog.config.client import ClientSecurity, default_client_security
from tidelog.runtime.network import Network
from tidelog.runtime.randomness import SystemRandomness

T = TypeVar("T")
logger = logging.getLogger(__name__)

MAX_FRAME_BYTES = 2**31 - 1
"""Unlimited: a Fetch response has at least one whole batch, however large (KIP-74)."""

STOP_TIMEOUT_S = 5.0


class ConnectionSettings(Protocol):
    """The client settings that a cluster connection depends on."""

    @property
    def client_id(self) -> str: ...

    @property
    def client_rack(self) -> str: ...

    @property
    def request_timeout_s(self) -> float: ...

    @property
    def security(self) -> ClientSecurity: ...


class _ClusterKey(NamedTuple):
    bootstrap: str
    client_id: str
    client_rack: str
    request_timeout_s: float
    security: ClientSecurity


class _Call(Generic[T]):
    """A coroutine that another thread waits for. It can be cancelled even before it is submitted, so that an
    interrupt at any moment cancels it."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self.outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self._ended)

    def cancel(self) -> None:
        if self._task is None:
            self._coroutine.close()
        else:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.outcome.cancel()
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


class Started(Generic[T]):
    """A coroutine that runs while the thread that started it does other work."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: _Call[T]) -> None:
        self._loop = loop
        self._call = call

    def result(self) -> T:
        """Waits for the result. An interrupt cancels the coroutine."""
        try:
            return self._call.outcome.result()
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._call.cancel)


class _ClientThread:
    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.clusters: dict[_ClusterKey, Cluster] = {}
        self._networks: dict[ClientSecurity, Network] = {}
        self._thread = threading.Thread(target=self._run, name="tidelog-client", daemon=True)
        self._thread.start()

    def network(self, security: ClientSecurity) -> Network:
        """With the secrets of this process; without settings, those that the environment names."""
        security = security if security.settings else default_client_security()
        if security not in self._networks:
            self._networks[security] = secured_network(security, MAX_FRAME_BYTES)
        return self._networks[security]

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self._end_everything()
            self.loop.close()

    def _end_everything(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks))
        for cluster in self.clusters.values():
            cluster.close()

    @property
    def is_usable(self) -> bool:
        """True if the thread runs, in this process."""
        return self.process_id == os.getpid() and self._thread.is_alive() and not sys.is_finalizing()

    @property
    def is_current(self) -> bool:
        return self.process_id == os.getpid() and threading.get_ident() == self._thread.ident

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self.is_current:
            coroutine.close()
            raise RuntimeError("cannot block the client thread: await the coroutine instead")
        call = _Call(coroutine)
        try:
            self.loop.call_soon_threadsafe(call.start)
            return call.outcome.result()
        except BaseException:
            self.loop.call_soon_threadsafe(call.cancel)
            raise
        finally:
            del call  # breaks a reference cycle between the call and its error

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Started[T]":
        call = _Call(coroutine)
        self.loop.call_soon_threadsafe(call.start)
        return Started(self.loop, call)

    def stop(self) -> None:
        if self.is_usable:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(STOP_TIMEOUT_S)


_threads: list[_ClientThread] = []
"""The last one is in use. A thread started by a parent process is left alone: its epoll set is shared with the
parent, and closing its loop here would remove the parent's registrations."""

_starting = threading.Lock()


def _client_thread() -> _ClientThread:
    with _starting:
        if not _threads or not _threads[-1].is_usable:
            _threads.append(_ClientThread())
        return _threads[-1]


def _after_fork() -> None:
    global _starting
    _starting = threading.Lock()  # the parent may have held it during the fork


def stop() -> None:
    """Cancels what is running and closes all connections. The next call starts a new thread."""
    if _threads:
        _threads[-1].stop()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(stop)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result or error. An interrupt cancels the coroutine."""
    return _client_thread().run(coroutine)


def start(coroutine: Coroutine[Any, Any, T]) -> Started[T]:
    """Starts the coroutine and returns; wait for its result later."""
    return _client_thread().start(coroutine)


def cluster_for(bootstrap: str, client: ConnectionSettings) -> Cluster:
    """For coroutines given to `run`. The cluster is kept as long as the process lives; raises BadBootstrap."""
    thread = _client_thread()
    if not thread.is_current:
        raise RuntimeError("cluster_for may be called only in a coroutine given to run()")
    key = _ClusterKey(bootstrap, client.client_id, client.client_rack, client.request_timeout_s, client.security)
    found = thread.clusters.get(key)
    if found is None:
        found = thread.clusters[key] = Cluster(
            thread.network(client.security),
            parse_bootstrap(bootstrap),
            SystemRandomness(),
            client_id=client.client_id,
            client_rack=client.client_rack,
            request_timeout_s=client.request_timeout_s,
            report_waiting=partial(logger.warning, "waiting for the brokers at %s: %s", bootstrap),
        )
    return found


def iterate(make: Callable[[], AsyncIterator[T]], ahead: int = 1) -> Iterator[T]:
    """Items of the iterator, `ahead` of them requested while the caller works. Closing the generator closes it."""
    thread, pump = _client_thread(), _Pump(make, ahead)
    thread.run(pump.start())
    try:
        while True:
            item = pump.items.get()
            if isinstance(item, _Ended):
                if item.error is not None:
                    raise item.error
                return
            thread.loop.call_soon_threadsafe(pump.make_room)
            yield item
            del item  # the caller may have released it: do not keep its memory alive while waiting
    finally:
        if thread.is_current:  # the garbage collector may run in that thread
            pump.cancel()
        elif thread.is_usable:
            thread.run(pump.stop())


class _Ended(NamedTuple):
    error: BaseException | None


class _Pump(Generic[T]):
    """Moves items of an async iterator on the loop to a queue that a thread can wait for."""

    def __init__(self, make: Callable[[], AsyncIterator[T]], ahead: int) -> None:
        self._make = make
        self.items: queue.SimpleQueue[T | _Ended] = queue.SimpleQueue()
        self._room = asyncio.Semaphore(max(1, ahead))
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def make_room(self) -> None:
        self._room.release()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        self.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            await self._pump_all(self._make())
        except Exception as error:  # noqa: BLE001 - raised where the items are awaited
            self.items.put(_Ended(error))
        except BaseException as error:
            self.items.put(_Ended(error))
            raise
        else:
            self.items.put(_Ended(None))

    async def _pump_all(self, iterator: AsyncIterator[T]) -> None:
        try:
            while True:
                await self._room.acquire()
                self.items.put(await anext(iterator))
        except StopAsyncIteration:
            return
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                await close()

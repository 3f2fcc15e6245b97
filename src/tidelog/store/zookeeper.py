"""ZooKeeper store, for brokers on several hosts."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from tidelog.runtime.clock import Clock
from tidelog.runtime.workers import RepeatingWorkers
from tidelog.store.base import BaseStore
from tidelog.store.interface import (
    Node,
    NodeExists,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    StoreError,
    StoreUnavailable,
    Watch,
    WatchEvent,
)
from tidelog.store.kazoo_login import KazooLogin
from tidelog.store.kazoo_session import KazooSession
from tidelog.store.session_keeper import SessionKeeper
from tidelog.store.tree import ROOT, check_path
from tidelog.store.watches import WatchedAspect
from tidelog.store.zookeeper_acls import acls_of
from tidelog.store.zookeeper_terms import (
    KINDS,
    ROLLED_BACK_ERRORS,
    Chroot,
    check_size,
    node_or_none,
    nodes,
    parse_connect,
    stored_node,
    translated,
)

T = TypeVar("T")

logger = logging.getLogger(__name__)

HEARTBEATS_PER_SESSION = 6
MIN_CONNECTION_WAIT_S = 0.1
"""Minimum time to wait for a connection, so that retries after an expired lease do not spin."""
NODES_PER_READ = 1000


class ZooKeeperStore(BaseStore):
    """One session. `run` must be running for the lease, and for watches that survive a reconnect."""

    def __init__(
        self,
        connect: str,
        clock: Clock,
        workers: RepeatingWorkers,
        session_timeout_ms: int,
        tls: Callable[[], ssl.SSLContext] | None = None,
        login: KazooLogin | None = None,
        *,
        sets_acls: bool = False,
    ) -> None:
        super().__init__(clock.monotonic)
        hosts, root = parse_connect(connect)
        self._connect_text = connect
        self._chroot = Chroot(root, sets_acls=sets_acls)
        self._clock = clock
        self._workers = workers
        self._session = KazooSession(hosts, session_timeout_ms, self, tls, login)
        self._client = self._session.client
        self._timeout_s = session_timeout_ms / 1000
        self._connected = asyncio.Event()
        self._first_connection: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news = asyncio.Event()
        self._must_catch_up = False
        self._session_id = 0
        self._is_ended = False
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        connect: str,
        clock: Clock,
        workers: RepeatingWorkers,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        login: KazooLogin | None = None,
        sets_acls: bool = False,
    ) -> "ZooKeeperStore":
        """`connect`: host:port,host:port/chroot. The chroot is created if it is missing."""
        store = cls(connect, clock, workers, session_timeout_ms, tls, login, sets_acls=sets_acls)
        timeout_s = (session_timeout_ms if connection_timeout_ms is None else connection_timeout_ms) / 1000
        store._session.start()
        try:
            await asyncio.wait_for(store._first_connection, timeout_s)
            await store.sync()
            await store._make_chroot()
        except (TimeoutError, StoreUnavailable):
            await store.close()
            raise StoreUnavailable(
                "", f"no ZooKeeper server answered at {connect} within {timeout_s:g} s; check zookeeper.connect"
            ) from None
        except StoreError:
            await store.close()
            raise
        return store

    @property
    def session_id(self) -> int:
        return self._session_id

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        check_path(path)
        return await self._read(path, lambda: self._ask_for_node(path, watch))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        for path in paths:
            check_path(path)

        found: list[Node | None] = []
        for first in range(0, len(paths), NODES_PER_READ):
            some = [self._chroot.full(path) for path in paths[first : first + NODES_PER_READ]]
            found += await self._read(some[0], lambda: self._session.ask_for_many(some, nodes))  # noqa: B023
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        check_path(path)
        while True:
            found = await self._read(path, lambda: self._find_node(path, watch))
            if not isinstance(found, ZnodeStat):
                return found

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)

        def on_response(response: tuple[list[str], ZnodeStat]) -> list[str]:
            names, stat = response
            self._seen_with_children(path, stored_node(b"", stat), watch)
            return sorted(names)

        def request() -> Any:
            return self._session.request_children(self._chroot.full(path), has_watch=watch is not None)

        return await self._read(path, lambda: self._session.ask(request, on_response))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        for operation in operations:
            check_path(operation.path)
        check_size(operations)
        await self._wait_for_connection()
        transaction = self._client.transaction()
        for operation in operations:
            self._chroot.add(transaction, operation)
        # Not retried after a lost connection: the operation may have happened.
        responses = await self._answer("", self._session.ask(transaction.commit_async, list))
        for operation, response in zip(operations, responses, strict=True):
            if isinstance(response, Exception) and not isinstance(response, ROLLED_BACK_ERRORS):
                raise translated(response, operation.path)
        return [
            self._chroot.result(operation, response) for operation, response in zip(operations, responses, strict=True)
        ]

    async def run(self) -> None:
        def sync(_: float) -> None:
            """Runs in the keeper's thread. kazoo keeps the session alive; this shows that it does."""
            self._client.sync_async(self._chroot.full(ROOT)).get(timeout=self._timeout_s / HEARTBEATS_PER_SESSION)

        keeper = SessionKeeper(self.lease, self._timeout_s, self._clock.monotonic, sync)
        stop_keeping = self._workers.repeat(keeper.interval_s, keeper.tick)
        try:
            while not self._is_ended:
                await self._run_once()
        finally:
            stop_keeping()
        await self.close()
        await asyncio.Event().wait()

    async def _run_once(self) -> None:
        self._news.clear()
        if self._connected.is_set():
            await self._keep_up()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), self._timeout_s / HEARTBEATS_PER_SESSION)

    async def _keep_up(self) -> None:
        try:
            await self.sync()
            if self._must_catch_up:
                await self._catch_up()
        except StoreError as error:
            logger.debug("no answer from ZooKeeper session_id=%x reason=%s", self._session_id, error)

    async def sync(self) -> None:
        """Also the heartbeat: kazoo's own pings are not visible; this proves that the session lived when it was sent.

        A server that lost its quorum still answers reads for a while, but no sync.
        """
        sent_at = self._clock.monotonic()
        await self._answer(ROOT, self._session.ask(lambda: self._client.sync_async(ROOT), bool))
        if not self._is_ended:
            self.lease.renew(sent_at, self._timeout_s)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_ended = self._is_closed = True
            self.lease.cancel()
            await self._workers.run(self._session.stop)

    # Callbacks of KazooSession.

    def on_connected(self, session_id: int, timeout_s: float) -> None:
        self._must_catch_up = self._session_id != 0
        self._session_id, self._timeout_s = session_id, timeout_s
        self._connected.set()
        if not self._first_connection.done():
            self._first_connection.set_result(None)
        self._news.set()
        logger.info("connected to ZooKeeper session_id=%x session_timeout_ms=%d", session_id, timeout_s * 1000)

    def on_disconnected(self) -> None:
        self._connected.clear()
        if not self._is_ended:
            logger.warning("connection to ZooKeeper lost, reconnecting session_id=%x", self._session_id)

    def on_expired(self) -> None:
        self._connected.clear()
        if not self._is_ended:
            self._is_ended = True
            self._news.set()
            logger.warning("ZooKeeper session ended session_id=%x", self._session_id)
            self.session_ended()

    def on_login_refused(self, reason: str) -> None:
        """kazoo gives up the session. A new one reads the login again."""
        if not self._first_connection.done():
            self._first_connection.set_exception(StoreError("", f"ZooKeeper at {self._connect_text}: {reason}"))
        elif not self._is_ended:
            logger.error("ZooKeeper session given up session_id=%x reason=%s", self._session_id, reason)

    def on_watch_event(self, event: WatchedEvent) -> None:
        kind = KINDS.get(event.type)
        if kind is not None:  # None: kazoo dropped its watches with the connection; `_catch_up` restores them
            self.watches.fire([WatchEvent(kind, self._chroot.relative(event.path) or ROOT)])

    # Requests.

    def _ask_for_node(self, path: str, watch: Watch | None) -> asyncio.Future[Node]:
        def on_response(response: tuple[bytes, ZnodeStat]) -> Node:
            return self._seen_existing(path, stored_node(*response), watch)

        return self._session.ask(
            lambda: self._session.request_data(self._chroot.full(path), has_watch=watch is not None), on_response
        )

    async def _find_node(self, path: str, watch: Watch | None) -> Node | ZnodeStat | None:
        """ZooKeeper's `exists` returns no data and `get` sets no watch on a missing node, so both are sent at once.

        ZnodeStat: the node was created between the two.
        """
        getting = self._ask_for_node(path, watch)

        def on_response(stat: ZnodeStat | None) -> ZnodeStat | None:
            if stat is None and getting.exception() is not None:
                self._seen_with_data(path, None, watch)
            return stat

        asking = self._session.ask(
            lambda: self._session.request_stat(self._chroot.full(path), has_watch=watch is not None), on_response
        )
        found, stat = await asyncio.gather(getting, asking, return_exceptions=True)
        if isinstance(stat, BaseException):
            raise stat
        return stat if isinstance(found, kazoo_errors.NoNodeError) else node_or_none(found)

    async def _catch_up(self) -> None:
        """Sets the watches again that ended with the last connection, and delivers the events they missed."""
        self._must_catch_up = False  # first: the connection may be lost again before the last answer
        try:
            await asyncio.gather(*(self._rewatch(aspect, path) for aspect, path in self.watches.watched()))
        except StoreError:
            self._must_catch_up = True
            raise

    async def _rewatch(self, aspect: WatchedAspect, path: str) -> None:
        def compare(stat: ZnodeStat | None) -> None:
            self.watches.compare({path: None if stat is None else stored_node(b"", stat)})

        full = self._chroot.full(path)
        if aspect is WatchedAspect.DATA:
            asking = self._session.ask(lambda: self._session.request_stat(full, has_watch=True), compare)
        else:
            asking = self._session.ask(
                lambda: self._session.request_children(full, has_watch=True), lambda got: compare(got[1])
            )
        try:
            await self._answer(path, asking)
        except NoNode:
            compare(None)

    async def _read(self, path: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Reads are retried after a lost connection."""
        while True:
            await self._wait_for_connection()
            try:
                return await self._answer(path, ask())
            except StoreUnavailable:
                if not self.lease.is_valid:
                    raise

    async def _wait_for_connection(self) -> None:
        self._require_session()
        if self._connected.is_set():
            return
        try:
            rest_s = self.lease.end - self._clock.monotonic()
            await asyncio.wait_for(self._connected.wait(), max(MIN_CONNECTION_WAIT_S, rest_s))
        except TimeoutError:
            raise StoreUnavailable("", "no connection to ZooKeeper") from None
        finally:
            self._require_session()

    async def _answer(self, path: str, asking: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asking
        except TimeoutError:
            raise StoreUnavailable(path, "no answer from ZooKeeper") from None
        except kazoo_errors.KazooException as error:
            self._require_session()
            raise translated(error, path) from error

    def _require_session(self) -> None:
        if self._is_ended:
            raise SessionExpired

    async def _make_chroot(self) -> None:
        root = self._chroot.prefix
        # Check first: a user of the chroot may lack the permission to create nodes beside it.
        if not root or await self._answer(root, self._session.ask(lambda: self._client.exists_async(root), bool)):
            return
        for path in self._chroot.ancestors():
            acl = acls_of(path, is_secure=self._chroot.sets_acls)
            try:
                await self._answer(
                    path,
                    self._session.ask(lambda: self._client.create_async(path, acl=acl), str),  # noqa: B023
                )
            except NodeExists:
                continue

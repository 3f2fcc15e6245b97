"""The store in an SQLite file, for all brokers of one machine.

Sessions are leases. A session also holds a file lock, which the operating system lets go of the moment the process
dies: whoever can take the lock ends the session, so that a kill -9 is noticed at the next poll. Changes of other
processes are noticed by SQLite's data version.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from tidelog.runtime.clock import Clock
from tidelog.runtime.disk import DirectoryInUse, Disk, Lock
from tidelog.runtime.workers import Workers
from tidelog.store.base import BaseStore
from tidelog.store.interface import Node, Operation, Result, SessionExpired, StoreUnavailable, Watch
from tidelog.store.sqlite_database import Database, Session
from tidelog.store.tree import StoredNode, check_path

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS = 0.05


class SqliteStore(BaseStore):
    """One session. `run` must be running for watches of other processes' changes and for the lease."""

    def __init__(
        self, disk: Disk, clock: Clock, workers: Workers, session_timeout_ms: int, heartbeat_interval_ms: int
    ) -> None:
        super().__init__()
        self._disk = disk
        self._clock = clock
        self._workers = workers
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._turn = asyncio.Lock()
        self._database: Database
        self._lock: Lock
        self._session_id = 0
        self._lease_end_ms = 0
        self._seen_data_version = -1
        self._is_ended = False
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        path: str,
        disk: Disk,
        clock: Clock,
        workers: Workers,
        *,
        session_timeout_ms: int = 9000,
        heartbeat_interval_ms: int = 2000,
    ) -> "SqliteStore":
        """Make the file if it is missing; end the sessions of dead processes; begin a session."""
        store = cls(disk, clock, workers, session_timeout_ms, heartbeat_interval_ms)
        await store._call(store._open, path)
        return store

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def is_session_alive(self) -> bool:
        return not self._is_ended and self._now_ms() < self._lease_end_ms

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        return self._seen_existing(path, await self._find(path), watch)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        found = await self._read(paths)
        return [None if node is None else node.as_node() for node in found]

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        return self._seen_with_data(path, await self._find(path), watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)
        self._require_session()
        node, names = await self._call(lambda: self._database.read_with_children(self._session_id, path))
        self._seen_with_children(path, node, watch)
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._require_session()
        written = await self._call(lambda: self._database.write(self._session_id, operations))
        self.watches.fire(written.events)
        return written.results

    async def run(self) -> None:
        while True:
            await self.poll()
            await asyncio.sleep(POLL_INTERVAL_SECONDS)

    async def poll(self) -> None:
        """One round: renew the lease if due, bury dead sessions, look for changes of other processes."""
        async with self._turn:
            if self._is_ended:
                return
            try:
                current = await self._workers.run(self._poll, self.watches.paths())
            except SessionExpired:
                self._end()
            except StoreUnavailable as error:
                logger.warning("coordination store cannot be asked: error=%s", error)
            else:
                self.watches.compare(current)

    async def close(self) -> None:
        async with self._turn:
            if not self._is_closed:
                self._is_ended = self._is_closed = True
                await self._workers.run(self._close)

    async def _find(self, path: str) -> StoredNode | None:
        (node,) = await self._read([path])
        return node

    async def _read(self, paths: Sequence[str]) -> list[StoredNode | None]:
        for path in paths:
            check_path(path)
        self._require_session()
        return await self._call(lambda: self._database.read(self._session_id, paths))

    async def _call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._turn:
            try:
                return await self._workers.run(work, *args, **kwargs)
            except SessionExpired:
                self._end()
                raise

    def _require_session(self) -> None:
        if self._is_ended:
            raise SessionExpired
        if self._now_ms() >= self._lease_end_ms:
            self._end()
            raise SessionExpired

    def _end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            logger.warning("session of the coordination store ended: session_id=%d", self._session_id)
            self.session_ended()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # From here on in a worker thread, one call at a time.

    def _open(self, path: str) -> None:
        self._disk.make_directory(path.rpartition("/")[0] or ".")
        self._database = Database(path)
        self._bury_dead_sessions()
        self._lease_end_ms = self._now_ms() + self._session_timeout_ms
        self._session_id = self._database.open_session(self._lease_end_ms, self._take_lock)

    def _take_lock(self, session_id: int) -> None:
        self._lock = self._disk.lock(self._lock_path(session_id))

    def _lock_path(self, session_id: int) -> str:
        return f"{self._database.path}.session-{session_id}.lock"

    def _poll(self, watched: set[str]) -> dict[str, StoredNode | None]:
        now_ms = self._now_ms()
        if now_ms >= self._lease_end_ms:
            raise SessionExpired
        if now_ms >= self._lease_end_ms - self._session_timeout_ms + self._heartbeat_interval_ms:
            self._database.renew_session(self._session_id, now_ms + self._session_timeout_ms)
            self._lease_end_ms = now_ms + self._session_timeout_ms
        buried = self._bury_dead_sessions()
        data_version = self._database.data_version()
        if data_version == self._seen_data_version and not buried:
            return {}
        # Read after the data version: a change in between shows at the next poll.
        paths = list(watched)
        nodes = self._database.read(self._session_id, paths)
        self._seen_data_version = data_version
        return dict(zip(paths, nodes, strict=True))

    def _bury_dead_sessions(self) -> bool:
        dead = [
            session
            for session in self._database.sessions()
            if session.id != self._session_id and self._is_dead(session)
        ]
        for session in dead:
            self._database.end_session(session.id)
            self._disk.remove(self._lock_path(session.id))
        return bool(dead)

    def _is_dead(self, session: Session) -> bool:
        """Its process is gone, or has not renewed the lease in time."""
        try:
            self._disk.lock(self._lock_path(session.id)).release()
        except DirectoryInUse:
            return self._now_ms() >= session.lease_end_ms
        return True

    def _close(self) -> None:
        try:
            self._database.end_session(self._session_id)
        finally:
            self._disk.remove(self._lock_path(self._session_id))
            self._lock.release()
            self._database.close()

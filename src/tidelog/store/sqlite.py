"""SQLite store, for all brokers of one machine.

Sessions are leases. A session also holds a file lock, which the operating system releases as soon as the process dies:
a process that can take the lock ends the session. The end of a watched process triggers this at once, and so does the
poll. Changes by other processes are detected with SQLite's data version, so that a poll is cheap.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import ParamSpec, TypeVar

from tidelog.runtime.clock import Clock
from tidelog.runtime.disk import Disk
from tidelog.runtime.processes import Processes, ProcessWatch, SystemProcesses
from tidelog.runtime.workers import RepeatingWorkers
from tidelog.store.base import BaseStore
from tidelog.store.interface import Node, Operation, Result, SessionExpired, StoreUnavailable, Watch
from tidelog.store.session_keeper import SessionKeeper
from tidelog.store.sqlite_database import Changes, Session
from tidelog.store.sqlite_session import FileReplaced, SqliteSession
from tidelog.store.tree import StoredNode, check_path

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

BUSY_POLL_INTERVAL_S = 0.02
POLL_INTERVAL_S = 0.1
LONE_POLL_INTERVAL_S = 0.25
"""While no other process has a session."""
BUSY_AFTER_CHANGE_MS = 1000
BUSY_AFTER_OPENING_MS = 5000
"""How long to poll at short intervals after a change: changes rarely come alone."""
CREATION_PAUSE_S = 0.02
CREATION_ATTEMPTS = 500
"""Waits while another process creates the file, which takes milliseconds."""
HEARTBEATS_PER_SESSION = 4
"""Minimum number of heartbeats per session timeout, whatever the settings say."""


class SqliteStore(BaseStore):
    """One session. `run` must be running for watches on changes by other processes, and for the lease."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        workers: RepeatingWorkers,
        processes: Processes,
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
    ) -> None:
        super().__init__(clock.monotonic)
        self._clock = clock
        self._workers = workers
        self._processes = processes
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_interval_ms = min(heartbeat_interval_ms, session_timeout_ms // HEARTBEATS_PER_SESSION)
        self._session = SqliteSession(disk, processes, self._now_ms, session_timeout_ms, self._heartbeat_interval_ms)
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._others: list[Session] = []
        self._process_watches: dict[int, ProcessWatch | None] = {}
        self._busy_end_ms = 0
        self._renewed_ms = 0
        self._seen_data_version = -1
        self._seen_transaction_id = -1
        self._is_reachable = True
        self._is_ended = False
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        path: str,
        disk: Disk,
        clock: Clock,
        workers: RepeatingWorkers,
        *,
        session_timeout_ms: int = 9000,
        heartbeat_interval_ms: int = 2000,
        processes: Processes | None = None,
    ) -> "SqliteStore":
        """Creates the file if it is missing, ends sessions of dead processes, and starts a session."""
        processes = processes or SystemProcesses()
        store = cls(disk, clock, workers, processes, session_timeout_ms, heartbeat_interval_ms)
        opened_ms = store._now_ms()
        await store._ensure_file(path)
        await store._call(store._session.open, path, opened_ms)
        store._renewed(opened_ms)
        store._busy_end_ms = opened_ms + BUSY_AFTER_OPENING_MS
        return store

    async def _ensure_file(self, path: str) -> None:
        for _ in range(CREATION_ATTEMPTS):
            if await self._workers.run(self._session.create_if_missing, path):
                return
            await asyncio.sleep(CREATION_PAUSE_S)
        raise StoreUnavailable(path, "another process is creating the file and has not finished")

    @property
    def session_id(self) -> int:
        return self._session.id

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
        node, names = await self._call(lambda: self._session.database.read_with_children(self._session.id, path))
        self._seen_with_children(path, node, watch)
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._require_session()
        written = await self._call(lambda: self._session.database.write(self._session.id, operations))
        self.watches.fire(written.events)
        return written.results

    async def run(self) -> None:
        keeper = SessionKeeper(
            self.lease, self._session_timeout_ms / 1000, self._clock.monotonic, self._session.renew_separately
        )
        stop_keeping = self._workers.repeat(keeper.interval_s, keeper.tick)
        try:
            while not self._is_ended:
                await self.poll()
                await self._rest()
        finally:
            stop_keeping()
        await self.close()
        await asyncio.Event().wait()

    async def _rest(self) -> None:
        """Until the next poll, or until another process ends."""
        timer = asyncio.get_running_loop().call_later(self._poll_interval(), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
            self._wake.clear()

    def _poll_interval(self) -> float:
        if self._now_ms() < self._busy_end_ms:
            return BUSY_POLL_INTERVAL_S
        return POLL_INTERVAL_S if self._others else LONE_POLL_INTERVAL_S

    async def poll(self) -> None:
        """One round: renew the lease if due, end dead sessions, detect changes by other processes."""
        async with self._turn:
            if self._is_ended:
                return
            self.lease.check()
            try:
                await self._poll()
                self._reached()
            except SessionExpired:
                self._end()
            except (StoreUnavailable, OSError) as error:
                trouble = self._session.file_trouble() or error
                self._not_reached(trouble)
                with suppress(StoreUnavailable):
                    await self._workers.run(self._session.resume_stopped_writer)
                if isinstance(trouble, FileReplaced) and not self.lease.is_valid:
                    # The lease cannot be renewed in a replaced file: the way back is a session in the new file.
                    self._end()

    async def close(self) -> None:
        async with self._turn:
            if not self._is_closed:
                self._is_ended = self._is_closed = True
                self.lease.cancel()
                self._watch_processes(())
                await self._workers.run(self._session.close)

    async def _poll(self) -> None:
        """Cheap checks happen here; a worker thread is used only if there is something to do."""
        now_ms = self._now_ms()
        if now_ms >= self._renewed_ms + self._heartbeat_interval_ms:
            await self._workers.run(self._session.renew, now_ms + self._session_timeout_ms)
            self._renewed(now_ms)
        data_version = self._session.detector.data_version()
        if data_version != self._seen_data_version:
            await self._read_changes()
            self._seen_data_version = data_version
        dead = [session for session in self._others if self._session.is_dead(session)]
        if dead:
            await self._workers.run(self._session.end_sessions, dead)
            await self._read_changes()
        self._session.last_poll_ms = now_ms

    def _renewed(self, sent_ms: int) -> None:
        self._renewed_ms = sent_ms
        self.lease.renew(sent_ms / 1000, self._session_timeout_ms / 1000)

    async def _read_changes(self) -> None:
        """Reads after the data version, so that a change in between shows at the next poll."""
        paths = list(self.watches.paths())
        changes = await self._workers.run(
            self._session.database.read_changes, self._session.id, paths, self._seen_transaction_id
        )
        self._apply_changes(paths, changes)

    def _apply_changes(self, paths: Sequence[str], changes: Changes) -> None:
        others = [session for session in changes.sessions if session.id != self._session.id]
        if changes.nodes is not None or len(others) != len(self._others):
            self._busy_end_ms = max(self._busy_end_ms, self._now_ms() + BUSY_AFTER_CHANGE_MS)
        self._others = others
        self._watch_processes({session.process_id for session in others})
        self._seen_transaction_id = changes.transaction_id
        if changes.nodes is not None:
            self.watches.compare(dict(zip(paths, changes.nodes, strict=True)))

    def _watch_processes(self, process_ids: Collection[int]) -> None:
        for process_id in self._process_watches.keys() - set(process_ids):
            watch = self._process_watches.pop(process_id)
            if watch is not None:
                watch.close()
        for process_id in set(process_ids) - self._process_watches.keys():
            self._process_watches[process_id] = self._processes.watch(process_id, self._wake.set)

    def _reached(self) -> None:
        if not self._is_reachable:
            self._is_reachable = True
            self.trouble = ""
            logger.info("coordination store is available again session_id=%d", self._session.id)

    def _not_reached(self, error: Exception) -> None:
        if self._is_reachable or self.trouble != str(error):
            self._is_reachable = False
            self.trouble = str(error)
            logger.warning("coordination store is not available session_id=%d error=%s", self._session.id, error)

    async def _find(self, path: str) -> StoredNode | None:
        (node,) = await self._read([path])
        return node

    async def _read(self, paths: Sequence[str]) -> list[StoredNode | None]:
        for path in paths:
            check_path(path)
        self._require_session()
        return await self._call(lambda: self._session.database.read(self._session.id, paths))

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

    def _end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            logger.warning("session of coordination store ended session_id=%d", self._session.id)
            self.session_ended()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

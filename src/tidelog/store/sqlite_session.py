"""Session in the SQLite store: the file, its lock and the lease.

Blocking: the methods run in a worker thread, one call at a time.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from tidelog.runtime.disk import DirectoryInUse, Disk, Lock
from tidelog.runtime.processes import Processes
from tidelog.store.interface import StoreUnavailable
from tidelog.store.sqlite_database import (
    WRITE_LOCK_FILE,
    WRITE_LOCK_OFFSET,
    ChangeDetector,
    Database,
    Session,
    renew_session_separately,
)

logger = logging.getLogger(__name__)


class FileReplaced(StoreUnavailable):
    """The file of this session was replaced by another file."""


class SqliteSession:
    def __init__(
        self,
        disk: Disk,
        processes: Processes,
        now_ms: Callable[[], int],
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
    ) -> None:
        self._disk = disk
        self._processes = processes
        self._now_ms = now_ms
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self.database: Database
        self.detector: ChangeDetector
        self.id = 0
        self.last_poll_ms = 0
        self._lock: Lock | None = None
        self._file_identity: object = None

    def create_if_missing(self, path: str) -> bool:
        """Creates the file if it is missing; False while another process is creating it."""
        self._disk.make_directory(path.rpartition("/")[0] or ".")
        if self._disk.exists(path):
            return True
        lock_path = f"{path}.creation.lock"
        try:
            lock = self._disk.lock(lock_path)
        except DirectoryInUse:
            return False
        try:
            if not self._disk.exists(path):
                # Remove the journal of a deleted file: SQLite would apply it to the new file.
                for suffix in ("-wal", "-shm", "-journal"):
                    self._disk.remove(f"{path}{suffix}")
                # Session ids are never reused in a new file: the lock of a session may outlive a deleted file.
                Database(path, first_session_id=self._now_ms()).close()
            self._disk.remove(lock_path)
        finally:
            lock.release()
        return True

    def open(self, path: str, opened_ms: int) -> None:
        with ExitStack() as undo:
            self.database = Database(path)
            self._file_identity = self._disk.identity(path)
            undo.callback(self.database.close)
            self.end_sessions([session for session in self.database.sessions() if self.is_dead(session)])
            self.detector = ChangeDetector(path)
            undo.callback(self.detector.close)
            self.last_poll_ms = opened_ms
            lease_end_ms = opened_ms + self._session_timeout_ms
            undo.callback(self._release_lock)
            self.id = self.database.open_session(lease_end_ms, self._processes.own_id(), self._acquire_lock)
            undo.pop_all()

    def renew(self, lease_end_ms: int) -> None:
        """A deleted file keeps working for processes that have it open, but the next process creates another one."""
        trouble = self.file_trouble()
        if trouble is not None:
            raise trouble
        self.database.renew_session(self.id, lease_end_ms)

    def renew_separately(self, now: float) -> None:
        """Runs in the keeper's thread, on its own connection: the other one may be in use or blocked."""
        trouble = self.file_trouble()
        if trouble is not None:
            raise trouble
        renew_session_separately(self.database.path, self.id, int(now * 1000) + self._session_timeout_ms)

    def resume_stopped_writer(self) -> None:
        """Continue a process of this cluster that was stopped (SIGSTOP) within a write.

        It holds the lock of the file, so that nobody can write or renew a lease: the whole cluster stands still with
        it. Once continued it ends its write. Whether its own lease is still valid then is decided as always.
        """
        writer = self._processes.lock_holder(f"{self.database.path}{WRITE_LOCK_FILE}", WRITE_LOCK_OFFSET)
        if any(session.process_id == writer for session in self.database.sessions()):
            assert writer is not None, "every session has a process id"
            if self._processes.resume(writer):
                logger.warning(
                    "continued a stopped process, which held the lock of the coordination store process_id=%d", writer
                )

    def _acquire_lock(self, session_id: int) -> None:
        self._lock = self._disk.lock(self._lock_path(session_id))

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def end_sessions(self, dead: Sequence[Session]) -> None:
        for session in dead:
            nodes = self.database.end_session(session.id, session.lease_end_ms)
            if nodes is None:
                continue
            if nodes:
                logger.info(
                    "ended session of dead process session_id=%d process_id=%d nodes=%s",
                    session.id,
                    session.process_id,
                    ",".join(sorted(nodes)),
                )
            self._disk.remove(self._lock_path(session.id))

    def close(self) -> None:
        try:
            self.database.end_session(self.id)
        finally:
            with ExitStack() as stack:
                stack.callback(self.database.close)
                stack.callback(self.detector.close)
                stack.callback(self._release_lock)
                self._disk.remove(self._lock_path(self.id))

    def is_dead(self, session: Session) -> bool:
        """True if its process is gone, or has not renewed the lease in time."""
        try:
            self._disk.lock(self._lock_path(session.id)).release()
        except DirectoryInUse:
            return self._has_hung(session)
        return True

    def _has_hung(self, session: Session) -> bool:
        now_ms = self._now_ms()
        # If this process stood still itself, as in a suspended machine, it must give the others time to renew.
        has_watched = now_ms - self.last_poll_ms <= self._heartbeat_interval_ms
        return has_watched and now_ms >= session.lease_end_ms

    def _lock_path(self, session_id: int) -> str:
        return f"{self.database.path}.session-{session_id}.lock"

    def file_trouble(self) -> StoreUnavailable | None:
        """An error if the file is no longer the one of this session."""
        path = self.database.path
        try:
            is_replaced = self._file_identity != self._disk.identity(path)
        except FileNotFoundError:
            # It may come back, like a server that was stopped.
            return StoreUnavailable(path, "the file is missing")
        except OSError:
            return None  # the caller already has an error to report
        return FileReplaced(path, "the file was replaced by another") if is_replaced else None

"""Nodes and sessions in an SQLite file: blocking calls for a worker thread, one at a time."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote

from tidelog.store.interface import NO_OWNER, Operation, Result, SessionExpired, StoreUnavailable, WatchEvent
from tidelog.store.tree import ROOT, ROOT_NODE, StoredNode, parent_of, perform, remove_owned

SCHEMA_VERSION = 2
LOCK_WAIT_S = 5.0
GUESSABLE_IDS = 2**32
FIRST_ID_MASK = 2**61 - 1
"""Ids of transactions are broker epochs, by which brokers know each other's requests, so they begin at random."""
WRITE_LOCK_FILE = "-shm"
"""Suffix of the file that is locked while a transaction writes."""
WRITE_LOCK_OFFSET = 120
"""The byte of it (WAL_WRITE_LOCK), which is part of SQLite's file format."""

_SCHEMA = f"""
CREATE TABLE node (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    created_id INTEGER NOT NULL,
    modified_id INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    child_version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX node_by_parent ON node (parent);
CREATE INDEX node_by_owner ON node (owner) WHERE owner != {NO_OWNER};
CREATE TABLE session (id INTEGER PRIMARY KEY, lease_end_ms INTEGER NOT NULL, process_id INTEGER NOT NULL DEFAULT 0);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES ('transaction_id', 0), ('session_id', {NO_OWNER});
PRAGMA user_version = {SCHEMA_VERSION};
"""
_UPGRADE = """
ALTER TABLE session ADD COLUMN process_id INTEGER NOT NULL DEFAULT 0;
PRAGMA user_version = 2;
"""

_FIND = "SELECT data, version, created_id, modified_id, owner, child_version FROM node WHERE path = ?"
_PUT = "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


class Session(NamedTuple):
    id: int
    lease_end_ms: int
    process_id: int


class Changes(NamedTuple):
    """The sessions, and the requested nodes if there was a transaction since the given one."""

    transaction_id: int
    sessions: list[Session]
    nodes: list[StoredNode | None] | None


class Written(NamedTuple):
    results: list[Result]
    events: list[WatchEvent]


class Database:
    """One connection. Times are from the machine's monotonic clock, which all its processes share."""

    def __init__(self, path: str, first_session_id: int = NO_OWNER + 1) -> None:
        """A new file numbers its sessions from `first_session_id` on."""
        self.path = path
        self._first_session_id = first_session_id
        with _storage_errors(path):
            self._connection = sqlite3.connect(path, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._make_schema()

    def close(self) -> None:
        self._connection.close()

    def find(self, path: str) -> StoredNode | None:
        row = self._connection.execute(_FIND, (path,)).fetchone()
        return None if row is None else StoredNode(*row)

    def put(self, path: str, node: StoredNode) -> None:
        parent = "" if path == ROOT else parent_of(path)
        fields = (node.data, node.version, node.created_id, node.modified_id, node.owner, node.child_version)
        self._connection.execute(_PUT, (path, parent, *fields))

    def remove(self, path: str) -> None:
        self._connection.execute("DELETE FROM node WHERE path = ?", (path,))

    def has_children(self, path: str) -> bool:
        return self._connection.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone() is not None

    def read(self, session_id: int, paths: Sequence[str]) -> list[StoredNode | None]:
        """The nodes at one moment."""
        with self._transaction("DEFERRED"):
            self._require_session(session_id)
            return [self.find(path) for path in paths]

    def read_with_children(self, session_id: int, path: str) -> tuple[StoredNode | None, list[str]]:
        with self._transaction("DEFERRED"):
            self._require_session(session_id)
            rows = self._connection.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
            return self.find(path), [child.rpartition("/")[2] for (child,) in rows]

    def read_changes(self, session_id: int, paths: Sequence[str], seen_transaction_id: int) -> Changes:
        """Leases are renewed far more often than nodes change, so most calls read no nodes."""
        with self._transaction("DEFERRED"):
            self._require_session(session_id)
            transaction_id = self._last("transaction_id")
            nodes = None if transaction_id == seen_transaction_id else [self.find(path) for path in paths]
            return Changes(transaction_id, self._sessions(), nodes)

    def write(self, session_id: int, operations: Sequence[Operation]) -> Written:
        """All operations or none, and none for a session that has ended."""
        with self._transaction("IMMEDIATE"):
            self._require_session(session_id)
            outcome = perform(self, operations, session_id, self._next("transaction_id"))
            return Written(outcome.results, outcome.events)

    def open_session(self, lease_end_ms: int, process_id: int, acquire_lock: Callable[[int], None]) -> int:
        """Takes the lock before others can see the session, so that it never seems dead."""
        with self._transaction("IMMEDIATE"):
            session_id = self._next("session_id")
            acquire_lock(session_id)
            self._connection.execute("INSERT INTO session VALUES (?, ?, ?)", (session_id, lease_end_ms, process_id))
            return session_id

    def renew_session(self, session_id: int, lease_end_ms: int) -> None:
        # A lease lost in a crash of the machine has no value, so this does not wait for the disk.
        with _storage_errors(self.path):
            self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                _renew(self._connection, session_id, lease_end_ms)
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")

    def end_session(self, session_id: int, lease_end_ms: int | None = None) -> list[str] | None:
        """With a lease: only if it was not renewed since. Returns the deleted nodes; None if the session lives."""
        with self._transaction("IMMEDIATE"):
            row = self._connection.execute("SELECT lease_end_ms FROM session WHERE id = ?", (session_id,)).fetchone()
            if row is None:
                return []  # another process was faster
            if lease_end_ms not in (None, row[0]):
                return None
            self._next("transaction_id")
            rows = self._connection.execute("SELECT path FROM node WHERE owner = ?", (session_id,)).fetchall()
            owned = [path for (path,) in rows]
            remove_owned(self, owned)
            self._connection.execute("DELETE FROM session WHERE id = ?", (session_id,))
            return owned

    def sessions(self) -> list[Session]:
        with _storage_errors(self.path):
            return self._sessions()

    def _sessions(self) -> list[Session]:
        rows = self._connection.execute("SELECT id, lease_end_ms, process_id FROM session")
        return [Session(*row) for row in rows]

    def _require_session(self, session_id: int) -> None:
        if self._connection.execute("SELECT 1 FROM session WHERE id = ?", (session_id,)).fetchone() is None:
            raise SessionExpired

    def _last(self, counter: str) -> int:
        return int(self._connection.execute("SELECT value FROM counter WHERE name = ?", (counter,)).fetchone()[0])

    def _next(self, counter: str) -> int:
        statement = "UPDATE counter SET value = value + 1 WHERE name = ? RETURNING value"
        return int(self._connection.execute(statement, (counter,)).fetchone()[0])

    def _make_schema(self) -> None:
        if self._user_version() < SCHEMA_VERSION:
            with self._transaction("IMMEDIATE"):
                if self._user_version() == 0:
                    self._execute_all(_SCHEMA)
                    last = max(NO_OWNER, self._first_session_id - 1)
                    self._connection.execute("UPDATE counter SET value = ? WHERE name = 'session_id'", (last,))
                    self.put(ROOT, ROOT_NODE)
                elif self._user_version() == 1:
                    self._execute_all(_UPGRADE)
        if self._user_version() != SCHEMA_VERSION:
            raise StoreUnavailable(self.path, "written by a newer version of Tidelog; use that version")
        if self._last("transaction_id") < GUESSABLE_IDS:
            self._leave_guessable_ids()

    def _leave_guessable_ids(self) -> None:
        """Of a new file, and of one that an earlier version began at 0: later ids are higher, as they must be."""
        with self._transaction("IMMEDIATE"):
            statement = "UPDATE counter SET value = value + (random() & ?) WHERE name = 'transaction_id' AND value < ?"
            self._connection.execute(statement, (FIRST_ID_MASK, GUESSABLE_IDS))

    def _execute_all(self, statements: str) -> None:
        for statement in filter(str.strip, statements.split(";")):
            self._connection.execute(statement)

    def _user_version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        with _storage_errors(self.path):
            self._connection.execute(f"BEGIN {kind}")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def renew_session_separately(path: str, session_id: int, lease_end_ms: int) -> None:
    """On its own connection, from any thread. Does not create a missing file."""
    with _storage_errors(path):
        uri = f"file:{quote(path)}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=LOCK_WAIT_S, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            _renew(connection, session_id, lease_end_ms)
        finally:
            connection.close()


def _renew(connection: sqlite3.Connection, session_id: int, lease_end_ms: int) -> None:
    """One statement, so that the file is locked for microseconds: this is the most frequent write."""
    renewed = connection.execute("UPDATE session SET lease_end_ms = ? WHERE id = ?", (lease_end_ms, session_id))
    if renewed.rowcount != 1:
        raise SessionExpired


class ChangeDetector:
    """A connection that only detects commits by others. It never waits for the disk."""

    def __init__(self, path: str) -> None:
        self._path = path
        with _storage_errors(path):
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)

    def data_version(self) -> int:
        """Changes whenever another connection has committed."""
        with _storage_errors(self._path):
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _storage_errors(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnavailable(path, str(error)) from error

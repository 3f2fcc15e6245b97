"""The two coordination stores as the tests see them: what is in them, and how to take them away for a while."""

import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.processes.roads import Roads
from tidelog.runtime.processes import SystemProcesses
from tidelog.store.sqlite_database import WRITE_LOCK_FILE, WRITE_LOCK_OFFSET
from tools.zookeeper import ZooKeeper

SESSION_TIMEOUT_MS = 2000


class Coordination(Protocol):
    name: str

    def settings(self, broker_id: int, roads: Roads) -> dict[str, str]: ...

    def read(self, path: str) -> dict[str, Any] | None:
        """The JSON of a node."""
        ...

    def is_locked_by(self, process_id: int) -> bool:
        """True if this process holds up the writes of all others."""
        ...

    def take_away(self) -> None: ...

    def give_back(self) -> None: ...

    def close(self) -> None: ...


class SqliteCoordination:
    name = "sqlite"

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock: sqlite3.Connection | None = None

    def settings(self, broker_id: int, roads: Roads) -> dict[str, str]:
        return {
            "coordination.store": str(self._file),
            "broker.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "broker.heartbeat.interval.ms": str(SESSION_TIMEOUT_MS // 4),
        }

    def read(self, path: str) -> dict[str, Any] | None:
        with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT data FROM node WHERE path = ?", (path,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def is_locked_by(self, process_id: int) -> bool:
        return SystemProcesses().lock_holder(f"{self._file}{WRITE_LOCK_FILE}", WRITE_LOCK_OFFSET) == process_id

    def take_away(self) -> None:
        """Nobody can write, as if the disk hung."""
        self._lock = sqlite3.connect(self._file, isolation_level=None, timeout=10)
        self._lock.execute("BEGIN IMMEDIATE")

    def give_back(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def close(self) -> None:
        self.give_back()


class ZooKeeperCoordination:
    name = "zookeeper"

    def __init__(self, server: ZooKeeper, chroot: str) -> None:
        self._server = server
        self._chroot = chroot
        self._client = KazooClient(server.connect_string)
        self._client.start()

    def settings(self, broker_id: int, roads: Roads) -> dict[str, str]:
        return {
            "zookeeper.connect": f"127.0.0.1:{roads.to_store(broker_id, self._server.port)}{self._chroot}",
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "zookeeper.connection.timeout.ms": "20000",
        }

    def read(self, path: str) -> dict[str, Any] | None:
        with suppress(NoNodeError):
            return dict(json.loads(self._client.retry(self._client.get, self._chroot + path)[0]))
        return None

    def is_locked_by(self, process_id: int) -> bool:
        return False

    def take_away(self) -> None:
        self._server.kill()

    def give_back(self) -> None:
        if self._server.process is None:
            self._server.start()

    def close(self) -> None:
        self.give_back()
        self._client.stop()
        self._client.close()

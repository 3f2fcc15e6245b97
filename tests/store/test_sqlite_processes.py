"""Several processes on one SQLite file, as the brokers of one machine use it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.store.process import INCREMENTS
from tests.store.stores import running
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.workers import ThreadWorkers
from tidelog.store import sqlite_database
from tidelog.store.interface import WatchEvent, WatchKind
from tidelog.store.sqlite import SqliteStore

LONG_SESSION_MS = 30_000


@contextmanager
def process(path: Path, what: str, session_timeout_ms: int = LONG_SESSION_MS) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.store.process", str(path), str(session_timeout_ms), what]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def says(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


@asynccontextmanager
async def own_session(path: Path, session_timeout_ms: int = LONG_SESSION_MS) -> AsyncIterator[SqliteStore]:
    workers = ThreadWorkers("store", 1)
    store = await SqliteStore.open(
        str(path), SystemDisk(), SystemClock(), workers, session_timeout_ms=session_timeout_ms
    )
    try:
        async with running(store):
            yield store
    finally:
        workers.close()


def test_processes_that_start_and_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with process(path, "count-up") as one, process(path, "count-up") as two, process(path, "count-up") as three:
        assert [child.wait(60) for child in (one, two, three)] == [0, 0, 0]

    async def check() -> None:
        async with own_session(path) as store:
            assert (await store.get("/count")).data == str(3 * INCREMENTS).encode()
            assert len(await store.children("/queue")) == 3 * INCREMENTS

    asyncio.run(check())
    assert [name for name in os.listdir(tmp_path) if "lock" in name] == []


def test_a_killed_process_is_noticed_though_its_lease_is_long(tmp_path: Path) -> None:
    path = tmp_path / "store"

    async def scenario(child: subprocess.Popen[str]) -> WatchEvent:
        async with own_session(path) as store:
            heard: asyncio.Future[WatchEvent] = asyncio.get_running_loop().create_future()
            await store.get("/alive", heard.set_result)
            os.kill(child.pid, signal.SIGKILL)
            return await asyncio.wait_for(heard, 10)

    with process(path, "stay") as child:
        assert says(child) == "ready"
        assert asyncio.run(scenario(child)) == WatchEvent(WatchKind.DELETED, "/alive")


def test_a_stopped_process_loses_its_session_and_nothing_it_does_after_waking_counts(tmp_path: Path) -> None:
    path = tmp_path / "store"

    async def scenario(child: subprocess.Popen[str]) -> None:
        async with own_session(path) as store:
            heard: asyncio.Future[WatchEvent] = asyncio.get_running_loop().create_future()
            await store.get("/alive", heard.set_result)
            os.kill(child.pid, signal.SIGSTOP)
            await asyncio.wait_for(heard, 20)
            assert child.stdin is not None
            child.stdin.write("go on\n")
            child.stdin.flush()
            os.kill(child.pid, signal.SIGCONT)
            said = [await asyncio.to_thread(says, child) for _ in range(3)]
            assert said == ["fenced", "refused", "ended"]
            assert await store.exists("/late") is None

    with process(path, "wake-up-late", session_timeout_ms=1000) as child:
        assert says(child) == "ready"
        asyncio.run(scenario(child))


def test_a_process_that_is_stopped_within_a_write_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_database, "LOCK_WAIT_S", 0.2)
    path = tmp_path / "store"

    async def scenario(child: subprocess.Popen[str]) -> None:
        async with own_session(path, session_timeout_ms=2000) as store:
            assert child.stdin is not None
            child.stdin.write("go on\n")
            child.stdin.flush()
            assert await asyncio.to_thread(says, child) == "continued"
            await store.create("/written")

    with process(path, "stop-in-a-write") as child:
        assert says(child) == "ready"
        asyncio.run(scenario(child))


def test_a_watch_hears_of_the_change_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "store"

    async def scenario() -> WatchEvent:
        async with own_session(path) as store:
            heard: asyncio.Future[WatchEvent] = asyncio.get_running_loop().create_future()
            await store.exists("/alive", heard.set_result)
            with process(path, "stay"):
                return await asyncio.wait_for(heard, 20)

    assert asyncio.run(scenario()) == WatchEvent(WatchKind.CREATED, "/alive")

"""A process of its own on an SQLite store: `python -m tests.store.process FILE SESSION_TIMEOUT_MS WHAT`."""

import asyncio
import os
import signal
import sys
from contextlib import suppress

from tidelog.runtime.clock import SystemClock
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.workers import ThreadWorkers
from tidelog.store.interface import BadVersion, NodeExists, SessionExpired
from tidelog.store.sqlite import SqliteStore

INCREMENTS = 50


async def count_up(store: SqliteStore) -> None:
    """Each increment by compare-and-set, with a sequential node in the same transaction."""
    for path in ("/count", "/queue"):
        with suppress(NodeExists):
            await store.create(path, b"0")
    for _ in range(INCREMENTS):
        await increment(store)


async def increment(store: SqliteStore) -> None:
    while True:
        node = await store.get("/count")
        with suppress(BadVersion):
            await store.set("/count", str(int(node.data) + 1).encode(), node.version)
            await store.create("/queue/item-", sequential=True)
            return


async def stay(store: SqliteStore) -> None:
    await store.create("/alive", ephemeral=True)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def wake_up_late(store: SqliteStore) -> None:
    """Stopped after `ready`; what it does after waking up must not count."""
    await store.create("/alive", ephemeral=True)
    ended = asyncio.Event()
    store.on_session_end(ended.set)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print("alive" if store.is_session_alive else "fenced", flush=True)
    try:
        await store.create("/late")
        print("written", flush=True)
    except SessionExpired:
        print("refused", flush=True)
    await ended.wait()
    print("ended", flush=True)


async def stop_in_a_write(store: SqliteStore) -> None:
    """Stops itself after the first line of input, within a transaction; says when somebody has continued it."""
    database = store._session.database
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    with database._transaction("IMMEDIATE"):
        os.kill(os.getpid(), signal.SIGSTOP)
    print("continued", flush=True)


async def main(path: str, session_timeout_ms: int, what: str) -> None:
    workers = ThreadWorkers("store", 1)
    store = await SqliteStore.open(path, SystemDisk(), SystemClock(), workers, session_timeout_ms=session_timeout_ms)
    running = asyncio.create_task(store.run())
    tasks = {"count-up": count_up, "stay": stay, "wake-up-late": wake_up_late, "stop-in-a-write": stop_in_a_write}
    await tasks[what](store)
    running.cancel()
    await store.close()
    workers.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))

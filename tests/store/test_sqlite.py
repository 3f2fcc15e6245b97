"""SQLite store beyond the contract: leases, files, other processes."""

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.stores import SqliteStores
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.workers import ThreadWorkers
from tidelog.store.interface import Create, SessionExpired, StoreUnavailable
from tidelog.store.sqlite import SqliteStore
from tidelog.store.sqlite_database import GUESSABLE_IDS


def test_nodes_survive_the_end_of_all_sessions(tmp_path: Path) -> None:
    async def scenario() -> None:
        stores = SqliteStores(tmp_path)
        first = await stores.open()
        await first.create("/a", b"kept")
        await first.close()
        second = await stores.open()
        assert (await second.get("/a")).data == b"kept"
        await second.close()

    asyncio.run(scenario())


def test_a_closed_session_leaves_no_lock_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStores(tmp_path).open()
        assert "coordination.sqlite.session-1.lock" in names(tmp_path)
        await store.close()

    asyncio.run(scenario())
    assert names(tmp_path) == ["coordination.sqlite"]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_process_that_hangs_loses_its_session_when_the_lease_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        stores = SqliteStores(tmp_path)
        hanging, other = await stores.open(), await stores.open()
        await hanging.create("/alive", ephemeral=True)
        for _ in range(4):
            stores.clock.advance(2000)
            await other.poll()
        assert await other.exists("/alive") is not None
        stores.clock.advance(2000)
        await other.poll()
        assert await other.exists("/alive") is None
        ended: list[str] = []
        hanging.on_session_end(lambda: ended.append("ended"))
        assert not hanging.is_session_alive
        with pytest.raises(SessionExpired):
            await hanging.create("/late")
        await hanging.poll()
        await asyncio.sleep(0)
        assert ended == ["ended"]
        assert await other.exists("/late") is None
        await stores.close()

    asyncio.run(scenario())


def test_polling_renews_the_lease(tmp_path: Path) -> None:
    async def scenario() -> None:
        stores = SqliteStores(tmp_path)
        store = await stores.open()
        await store.create("/alive", ephemeral=True)
        for _ in range(20):
            stores.clock.advance(2000)
            await store.poll()
        assert store.is_session_alive
        assert await store.exists("/alive") is not None
        await stores.close()

    asyncio.run(scenario())


def test_a_process_that_stood_still_does_not_take_the_others_for_dead(tmp_path: Path) -> None:
    async def scenario() -> None:
        stores = SqliteStores(tmp_path)
        first, second = await stores.open(), await stores.open()
        await second.create("/alive", ephemeral=True)
        await first.poll()
        stores.clock.advance(60_000)
        assert [store.is_session_alive for store in (first, second)] == [False, False]
        await first.poll()
        await second.poll()
        assert [store.is_session_alive for store in (first, second)] == [True, True]
        assert await first.exists("/alive") is not None
        await stores.close()

    asyncio.run(scenario())


def test_a_lease_that_was_renewed_in_the_last_moment_is_respected(tmp_path: Path) -> None:
    async def scenario() -> None:
        stores = SqliteStores(tmp_path)
        store = await stores.open()
        database = store._session.database
        (seen,) = database.sessions()
        database.renew_session(seen.id, seen.lease_end_ms + 1)
        assert database.end_session(seen.id, seen.lease_end_ms) is None
        assert len(database.sessions()) == 1
        await stores.close()

    asyncio.run(scenario())


def test_a_new_start_finds_the_nodes_of_its_dead_predecessor_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        stores = SqliteStores(tmp_path)
        first = await stores.open()
        await first.create("/alive", ephemeral=True)
        await stores.kill(first)
        second = await stores.open()
        assert await second.exists("/alive") is None
        await stores.close()

    asyncio.run(scenario())


def test_calls_at_the_same_time_take_turns(tmp_path: Path) -> None:
    async def scenario() -> None:
        workers = ThreadWorkers("store", 4)
        store = await SqliteStore.open(str(tmp_path / "store"), SystemDisk(), SystemClock(), workers)
        await asyncio.gather(*(store.create(f"/n{number}") for number in range(50)))
        assert len(await store.children("/")) == 50
        await store.close()
        workers.close()

    asyncio.run(scenario())


def test_a_file_that_is_no_database_is_one_clear_error(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path)
    Path(stores.path).write_bytes(b"this is not a database, but long enough to be taken for one" * 100)

    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match="file is not a database"):
            await stores.open()

    asyncio.run(scenario())


def test_a_file_of_the_first_schema_is_taken_over(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path)

    async def scenario() -> None:
        store = await stores.open()
        await store.create("/a", b"kept")
        await store.close()
        with closing(sqlite3.connect(stores.path, isolation_level=None)) as connection:
            connection.execute("ALTER TABLE session DROP COLUMN process_id")
            connection.execute("PRAGMA user_version = 1")
        assert (await (await stores.open()).get("/a")).data == b"kept"
        await stores.close()

    asyncio.run(scenario())


def test_renewing_a_lease_makes_others_read_no_nodes(tmp_path: Path) -> None:
    async def scenario() -> None:
        stores = SqliteStores(tmp_path)
        store, other = await stores.open(), await stores.open()
        await stores.settle()
        seen = store._seen_transaction_id
        stores.clock.advance(2000)
        await other.poll()
        changes = store._session.database.read_changes(store.session_id, ["/"], seen)
        assert changes.nodes is None
        assert max(session.lease_end_ms for session in changes.sessions) == 11_000
        await stores.close()

    asyncio.run(scenario())


def test_opening_and_reading_thousands_of_nodes_is_quick(tmp_path: Path) -> None:
    async def scenario() -> float:
        stores = SqliteStores(tmp_path)
        store = await stores.open()
        paths = [f"/n{number}" for number in range(4000)]
        await store.multi([Create(path, b"x" * 100) for path in paths])
        await store.close()
        started = time.process_time()
        again = await stores.open()
        assert None not in await again.get_many(paths)
        elapsed = time.process_time() - started
        await again.close()
        return elapsed

    assert asyncio.run(scenario()) < 1.0


@pytest.mark.parametrize("is_recreated", [False, True])
def test_nobody_acts_on_a_file_that_others_cannot_find_any_more(tmp_path: Path, is_recreated: bool) -> None:
    async def scenario() -> None:
        stores = SqliteStores(tmp_path)
        store = await stores.open()
        put_away(tmp_path)
        other = await stores.open() if is_recreated else None
        for _ in range(5):
            stores.clock.advance(2000)
            await store.poll()
        alive.append(store.is_session_alive)
        if other is not None:
            await other.close()
        bring_back(tmp_path)
        await store.poll()
        alive.append(store.is_session_alive)
        await store.close()

    alive: list[bool] = []
    asyncio.run(scenario())
    assert alive == [False, not is_recreated]


def test_who_finds_another_file_in_place_of_its_own_has_no_session_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        stores = SqliteStores(tmp_path)
        store = await stores.open()
        store.on_session_end(lambda: ended.append(True))
        os.unlink(stores.path)  # what SQLite keeps beside it stays
        await store.poll()
        stores.clock.advance(4000)
        await store.poll()
        assert "is missing" in store.trouble
        other = await stores.open()
        assert other.session_id != store.session_id
        assert await other.children("/") == []
        for _ in range(3):
            stores.clock.advance(2000)
            await store.poll()
            await other.poll()
        await asyncio.sleep(0)
        assert ended == [True]
        await store.close()
        assert other.is_session_alive
        assert await other.create("/new") == "/new"
        await other.close()

    ended: list[bool] = []
    asyncio.run(scenario())


def put_away(directory: Path) -> None:
    for path in list(directory.iterdir()):
        path.rename(directory / f"away-{path.name}")


def bring_back(directory: Path) -> None:
    for path in list(directory.glob("away-*")):
        path.rename(directory / path.name.removeprefix("away-"))


def test_ids_of_transactions_cannot_be_guessed_even_in_a_file_that_began_at_0(tmp_path: Path) -> None:
    """They are broker epochs: a client that guesses one can speak as a controller where there is no authorizer."""
    stores = SqliteStores(tmp_path)

    async def created_id(path: str) -> int:
        store = await stores.open()
        await store.create(path, b"")
        created_id = (await store.get(path)).created_id
        await store.close()
        return created_id

    async def scenario() -> None:
        first = await created_id("/first")
        assert first > GUESSABLE_IDS
        assert first < await created_id("/second") < first + 10, "ids of a file that has high ones go on"
        with closing(sqlite3.connect(stores.path, isolation_level=None)) as connection:
            connection.execute("UPDATE counter SET value = 7 WHERE name = 'transaction_id'")
        assert await created_id("/third") > GUESSABLE_IDS

    asyncio.run(scenario())

"""Contract of every store; the same tests for all of them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.store.stores import MemoryStores, SqliteStores, Stores, ZooKeeperStores, until
from tidelog.runtime.virtual_time import run_virtually
from tidelog.store.interface import (
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    Set,
    Store,
    StoreError,
    StoreUnavailable,
    WatchEvent,
    WatchKind,
)

Run: TypeAlias = Callable[[Callable[[Stores], Awaitable[None]]], None]


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a scenario on an event loop, with one of the stores."""

    def make() -> Stores:
        match request.param:
            case "memory":
                return MemoryStores()
            case "sqlite":
                return SqliteStores(tmp_path)
            case _:
                server = request.getfixturevalue("zookeeper")
                return ZooKeeperStores(server, has_short_sessions="short_sessions" in request.fixturenames)

    def runner(scenario: Callable[[Stores], Awaitable[None]]) -> None:
        async def main() -> None:
            stores = make()
            try:
                await scenario(stores)
            finally:
                await stores.close()

        if request.param == "memory":
            run_virtually(main())
        else:
            asyncio.run(main())

    return runner


def test_a_node_is_what_was_created(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        assert await store.create("/a", b"one") == "/a"
        node = await store.get("/a")
        assert (node.data, node.version, node.ephemeral_owner) == (b"one", 0, 0)
        assert node.created_id == node.modified_id > 0
        assert await store.exists("/a") == node
        assert await store.exists("/b") is None

    run(scenario)


def test_a_change_raises_the_version_and_keeps_the_creation(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        await store.create("/a", b"one")
        before = await store.get("/a")
        after = await store.set("/a", b"two", version=0)
        assert after == await store.get("/a")
        assert (after.data, after.version, after.created_id) == (b"two", 1, before.created_id)
        assert after.modified_id > before.modified_id

    run(scenario)


def test_a_node_that_is_created_again_has_another_creation_id(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        await store.create("/a")
        first = await store.get("/a")
        await store.delete("/a")
        await store.create("/a")
        assert (await store.get("/a")).created_id > first.created_id

    run(scenario)


REJECTED: list[tuple[Operation, type[StoreError]]] = [
    (Create("/a"), NodeExists),
    (Create("/missing/a"), NoNode),
    (Create("/ephemeral/a"), NoChildrenForEphemerals),
    (Set("/missing", b""), NoNode),
    (Set("/a", b"x", version=7), BadVersion),
    (Delete("/missing"), NoNode),
    (Delete("/a/b", version=7), BadVersion),
    (Delete("/a"), NotEmpty),
    (Check("/missing", 0), NoNode),
    (Check("/a", 7), BadVersion),
]


@pytest.mark.parametrize(("operation", "error"), REJECTED, ids=lambda found: str(found))
def test_what_is_refused_changes_nothing_and_undoes_what_came_before_it(
    run: Run, operation: Operation, error: type[StoreError]
) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        await store.multi([Create("/a", b"data"), Create("/a/b"), Create("/ephemeral", ephemeral=True)])
        before = await contents(stores)
        with pytest.raises(error):
            await store.multi([Create("/new"), Set("/a", b"changed"), Delete("/a/b"), Create("/a/b"), operation])
        assert await contents(stores) == before

    run(scenario)


async def contents(stores: Stores) -> dict[str, Node]:
    store = await stores.open()
    found = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        found[path] = await store.get(path)
        waiting += [path.rstrip("/") + "/" + name for name in await store.children(path)]
    await store.close()
    return found


def test_several_operations_happen_as_one_and_see_each_other(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        results = await store.multi(
            [Create("/a", b"1"), Create("/a/b"), Set("/a", b"2"), Check("/a", 1), Delete("/a/b"), Create("/a/b", b"3")]
        )
        assert results[0] == "/a"
        assert isinstance(results[2], Node)
        assert results[3] is None
        assert (await store.get("/a")).data == b"2"
        assert (await store.get("/a/b")).data == b"3"
        assert (await store.get("/a")).created_id == (await store.get("/a/b")).created_id

    run(scenario)


def test_a_tree_can_be_deleted_in_one_go(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        paths = ["/a", "/a/b", "/a/b/c", "/a/d"]
        await store.multi([Create(path) for path in paths])
        await store.multi([Delete(path) for path in reversed(paths)])
        assert await store.children("/") == []

    run(scenario)


def test_children_are_direct_and_sorted(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        await store.multi([Create(path) for path in ("/a", "/a/c", "/a/b", "/a/b/x", "/ab")])
        assert await store.children("/a") == ["b", "c"]
        assert await store.children("/") == ["a", "ab"]
        with pytest.raises(NoNode):
            await store.children("/none")

    run(scenario)


def test_many_nodes_are_read_in_the_order_asked(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        await store.multi([Create(f"/n{number}", str(number).encode()) for number in range(2000)])
        found = await store.get_many([f"/n{number}" for number in range(1999, -1, -1)] + ["/none"])
        assert [node.data for node in found[:-1] if node] == [str(number).encode() for number in range(1999, -1, -1)]
        assert found[-1] is None

    run(scenario)


def test_a_read_after_a_sync_sees_what_others_have_written(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store, other = await stores.open(), await stores.open()
        await store.create("/a", b"")
        for number in range(100):
            await other.set("/a", str(number).encode())
            await store.sync()
            assert (await store.get("/a")).data == str(number).encode()

    run(scenario)


def test_sequential_nodes_get_growing_numbers_even_if_others_went(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        await store.create("/queue")
        first = await store.create("/queue/item-", sequential=True)
        await store.delete(first)
        second, third = await store.multi([Create("/queue/item-", sequential=True)] * 2)
        assert isinstance(second, str)
        assert isinstance(third, str)
        assert first < second < third
        assert len(first) == len("/queue/item-") + 10

    run(scenario)


def test_a_path_must_be_a_path(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        for path in ("", "a", "/a/", "//a", "/a/../b", "/."):
            with pytest.raises(ValueError, match="not a path of a node"):
                await store.get(path)

    run(scenario)


def test_an_ephemeral_node_goes_when_its_session_is_closed(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        owner, other = await stores.open(), await stores.open()
        await owner.create("/alive", ephemeral=True)
        assert (await other.get("/alive")).ephemeral_owner == owner.session_id
        await owner.close()
        assert await other.exists("/alive") is None
        assert other.is_session_alive

    run(scenario)


def test_an_ephemeral_node_goes_when_its_process_dies_and_others_hear_of_it(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        owner, other = await stores.open(), await stores.open()
        await owner.create("/alive", ephemeral=True)
        heard: list[WatchEvent] = []
        await other.get("/alive", heard.append)
        await other.children("/", heard.append)
        await stores.kill(owner)
        await stores.settle()
        assert await other.exists("/alive") is None
        assert sorted(heard, key=lambda event: event.path) == [
            WatchEvent(WatchKind.CHILDREN_CHANGED, "/"),
            WatchEvent(WatchKind.DELETED, "/alive"),
        ]

    run(scenario)


def test_a_closed_session_is_refused(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        await store.close()
        assert not store.is_session_alive
        for call in (store.get("/"), store.create("/a"), store.children("/"), store.get_many(["/"])):
            with pytest.raises(SessionExpired):
                await call

    run(scenario)


def test_every_session_has_its_own_id(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        assert len({(await stores.open()).session_id for _ in range(3)}) == 3

    run(scenario)


@pytest.mark.parametrize("by_other", [False, True], ids=["own change", "change of another session"])
def test_a_watch_hears_of_the_next_change_once(run: Run, by_other: bool) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        changer = await stores.open() if by_other else store
        await store.create("/a")
        heard: list[WatchEvent] = []
        await store.get("/a", heard.append)
        await changer.create("/other")
        await stores.settle()
        assert heard == []
        await changer.set("/a", b"1")
        await stores.settle()
        assert heard == [WatchEvent(WatchKind.CHANGED, "/a")]
        await changer.set("/a", b"2")
        await stores.settle()
        assert len(heard) == 1

    run(scenario)


@pytest.mark.parametrize("by_other", [False, True], ids=["own change", "change of another session"])
def test_an_existence_watch_hears_of_the_creation(run: Run, by_other: bool) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        changer = await stores.open() if by_other else store
        heard: list[WatchEvent] = []
        assert await store.exists("/a", heard.append) is None
        await changer.create("/a")
        await stores.settle()
        assert heard == [WatchEvent(WatchKind.CREATED, "/a")]

    run(scenario)


@pytest.mark.parametrize("by_other", [False, True], ids=["own change", "change of another session"])
def test_a_child_watch_hears_of_children_and_not_of_data(run: Run, by_other: bool) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        changer = await stores.open() if by_other else store
        await store.create("/a")
        heard: list[WatchEvent] = []
        await store.children("/a", heard.append)
        await changer.set("/a", b"data")
        await stores.settle()
        assert heard == []
        await changer.create("/a/b")
        await stores.settle()
        assert heard == [WatchEvent(WatchKind.CHILDREN_CHANGED, "/a")]

    run(scenario)


def test_a_watch_on_a_missing_node_is_not_left_behind(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        store = await stores.open()
        heard: list[WatchEvent] = []
        with pytest.raises(NoNode):
            await store.get("/a", heard.append)
        await store.create("/a")
        await stores.settle()
        assert heard == []

    run(scenario)


def is_alive(store: Store) -> bool:
    return store.is_session_alive


@pytest.fixture
def short_sessions() -> None:
    """Asked for by tests that wait for a session to end."""


class SessionEvents:
    """What a store has reported about its session, in order."""

    def __init__(self, store: Store) -> None:
        self.events: list[str] = []
        store.on_suspended(lambda: self.events.append("suspended"))
        store.on_resumed(lambda: self.events.append("resumed"))
        store.on_session_end(lambda: self.events.append("ended"))


@pytest.mark.usefixtures("short_sessions")
def test_a_session_that_is_cut_off_is_suspended_before_others_see_its_end(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        owner, other = await stores.open(), await stores.open()
        await owner.create("/alive", ephemeral=True)
        session = SessionEvents(owner)
        await other.get("/alive", lambda _: session.events.append("seen to end"))
        await stores.cut_off(owner)
        assert is_alive(owner)
        await stores.outlast_session()
        await until(stores, lambda: len(session.events) > 1)
        assert session.events == ["suspended", "seen to end"]
        assert not is_alive(owner)
        assert is_alive(other)

    run(scenario)


def test_a_session_that_was_suspended_and_lives_on_resumes_and_hears_what_it_missed(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        owner, other = await stores.open(), await stores.open()
        await owner.multi([Create("/alive", ephemeral=True), Create("/a"), Create("/b"), Create("/c")])
        session_id = owner.session_id
        session, heard = SessionEvents(owner), list[WatchEvent]()
        await owner.get("/a", heard.append)
        await owner.children("/b", heard.append)
        await owner.get("/c", heard.append)
        await owner.exists("/d", heard.append)
        await stores.cut_off(owner)
        await other.multi([Set("/a", b"changed"), Create("/b/child"), Create("/d")])
        await stores.outlast_lease(owner)
        await until(stores, lambda: session.events)
        assert not is_alive(owner)
        assert heard == []
        await stores.reconnect(owner)
        await until(stores, lambda: len(session.events) > 1)
        assert session.events == ["suspended", "resumed"]
        assert is_alive(owner)
        assert owner.session_id == session_id
        assert await other.exists("/alive") is not None
        await until(stores, lambda: len(heard) == 3)
        assert set(heard) == {
            WatchEvent(WatchKind.CHANGED, "/a"),
            WatchEvent(WatchKind.CHILDREN_CHANGED, "/b"),
            WatchEvent(WatchKind.CREATED, "/d"),
        }
        await other.set("/c", b"changed")
        await until(stores, lambda: len(heard) == 4)
        assert heard[-1] == WatchEvent(WatchKind.CHANGED, "/c")

    run(scenario)


@pytest.mark.usefixtures("short_sessions")
def test_a_session_that_was_cut_off_for_too_long_has_ended_and_its_owner_hears_it_once(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        owner, other = await stores.open(), await stores.open()
        await owner.create("/alive", ephemeral=True)
        session = SessionEvents(owner)
        await stores.cut_off(owner)
        await stores.outlast_session()
        await stores.reconnect(owner)
        await until(stores, lambda: "ended" in session.events)
        await stores.settle()
        assert session.events == ["suspended", "ended"]
        assert not is_alive(owner)
        owner.on_session_end(lambda: session.events.append("registered late"))
        await until(stores, lambda: "registered late" in session.events)
        for call in (owner.get("/"), owner.create("/late")):
            with pytest.raises(SessionExpired):
                await call
        assert await other.exists("/alive") is None
        assert await other.exists("/late") is None

    run(scenario)


@pytest.mark.usefixtures("short_sessions")
def test_a_write_that_does_not_reach_the_store_fails_as_unavailable(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        owner, other = await stores.open(), await stores.open()
        await stores.cut_off(owner)
        with pytest.raises(StoreUnavailable):
            await owner.create("/late")
        assert await other.exists("/late") is None

    run(scenario)


@pytest.mark.usefixtures("short_sessions")
def test_the_lease_lies_ahead_while_the_session_is_held(run: Run) -> None:
    async def scenario(stores: Stores) -> None:
        owner, events = await stores.open(), []
        owner.on_suspended(lambda: events.append("suspended"))
        await stores.outlast_session()
        assert is_alive(owner)
        assert events == []
        await owner.close()
        assert owner.lease_end < 0

    run(scenario)

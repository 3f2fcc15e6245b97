"""ZooKeeper store beyond the contract: servers that come and go, limits, a client that is loaded when needed."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from tests.certificates import Authority, Certificate
from tests.store.stores import running
from tests.store.zookeeper import Proxy, running_zookeeper
from tidelog.config.broker import BrokerSettings
from tidelog.config.ssl import SslSettings
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.tls_context import server_context
from tidelog.runtime.workers import ThreadWorkers
from tidelog.store.interface import Create, Node, RequestTooLarge, StoreError, StoreUnavailable, WatchEvent, WatchKind
from tidelog.store.kazoo_session import KazooSession
from tidelog.store.opening import open_store
from tidelog.store.watches import WatchedAspect
from tidelog.store.zookeeper import ZooKeeperStore
from tidelog.store.zookeeper_terms import stored_node
from tools.apache_kafka import free_port
from tools.zookeeper import ZooKeeper

LONG_SESSION_MS = 20_000


@asynccontextmanager
async def session(connect: str, session_timeout_ms: int = LONG_SESSION_MS) -> AsyncIterator[ZooKeeperStore]:
    workers = ThreadWorkers("store", 2)
    store = await ZooKeeperStore.open(
        connect, SystemClock(), workers, session_timeout_ms=session_timeout_ms, connection_timeout_ms=LONG_SESSION_MS
    )
    try:
        async with running(store):
            yield store
    finally:
        workers.close()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_the_chroot_is_made_and_holds_the_nodes(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with session(f"{zookeeper.connect_string}/over/there/") as inside:
            assert await inside.children("/") == []
            await inside.create("/node", b"data")
            assert await inside.children("/") == ["node"]
        async with session(zookeeper.connect_string) as outside:
            assert (await outside.get("/over/there/node")).data == b"data"
            assert await outside.create("/at-the-root") == "/at-the-root"
            assert "at-the-root" in await outside.children("/")

    run(scenario)


@pytest.mark.parametrize("chroot", ["/a//b", "/../b"])
def test_a_chroot_that_is_no_path_is_named(chroot: str) -> None:
    async def scenario() -> None:
        with pytest.raises(StoreError, match=r"zookeeper\.connect=h:1/.*: not a path of a node"):
            await ZooKeeperStore.open(f"h:1{chroot}", SystemClock(), ThreadWorkers("store", 1))

    run(scenario)


def test_tls_with_certificates_on_both_sides(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """TLS ends at a proxy before the server, which asks for a certificate as ZooKeeper does."""
    authority = Authority(tmp_path)
    server, broker, foreign = authority.sign("server"), authority.sign("broker"), Authority(tmp_path, "x").sign("y")
    context = server_context(SslSettings(**server.ssl_settings, ssl_client_auth="required"))  # type: ignore[arg-type]

    async def opened(port: int, own: Certificate, trusted: Path, host: str = "127.0.0.1") -> None:
        settings = BrokerSettings(
            zookeeper_connect=f"{host}:{port}",
            zookeeper_connection_timeout_ms=10_000 if own is broker and trusted == broker.authority else 500,
            zookeeper_ssl_client_enable=True,
            zookeeper_ssl_keystore_location=str(own.location),
            zookeeper_ssl_truststore_location=str(trusted),
        )
        workers = ThreadWorkers("store", 2)
        try:
            store = await open_store(settings, SystemDisk(), SystemClock(), workers, SystemRandomness())
            await store.create("/secured", b"x" * 500_000)
            assert len((await store.get("/secured")).data) == 500_000
            await store.delete("/secured")
            await store.close()
        finally:
            workers.close()

    async def scenario() -> None:
        proxy = Proxy(zookeeper.port)
        await proxy.start(context)
        await opened(proxy.port, broker, broker.authority)
        for own, trusted in ((foreign, broker.authority), (broker, foreign.authority)):
            with pytest.raises(StoreUnavailable):
                await opened(proxy.port, own, trusted)
        with pytest.raises(StoreUnavailable, match=r"^zookeeper\.ssl: cannot read /nowhere: No such file"):
            await opened(proxy.port, broker, Path("/nowhere"))
        await proxy.close()

    run(scenario)


def test_a_server_that_is_not_there_is_one_clear_sentence() -> None:
    connect = f"127.0.0.1:{free_port()}"
    settings = BrokerSettings(zookeeper_connect=connect, zookeeper_connection_timeout_ms=300)

    async def scenario() -> None:
        workers = ThreadWorkers("store", 1)
        with pytest.raises(StoreUnavailable, match=rf"^no ZooKeeper server answered at {connect} within 0\.3 s; check"):
            await open_store(settings, SystemDisk(), SystemClock(), workers, SystemRandomness())
        workers.close()

    run(scenario)


def test_a_server_that_falls_silent_at_once_is_the_same_sentence(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose_the_connection(_: ZooKeeperStore) -> None:
        raise StoreUnavailable("/")

    monkeypatch.setattr(ZooKeeperStore, "sync", lose_the_connection)

    async def scenario() -> None:
        with pytest.raises(
            StoreUnavailable, match=rf"^no ZooKeeper server answered at {zookeeper.connect_string} within 20 s; check"
        ):
            async with session(zookeeper.connect_string):
                pass

    run(scenario)


def test_the_lease_follows_the_timeout_that_the_server_grants(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with session(zookeeper.connect_string, session_timeout_ms=3_600_000) as store:
            assert store.lease_end < SystemClock().monotonic() + 60

    run(scenario)


def test_a_request_that_the_server_would_not_read_is_refused(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        async with session(f"{zookeeper.connect_string}/large") as store:
            with pytest.raises(RequestTooLarge, match=r"accepts 1048575 bytes per request \(jute\.maxbuffer\)"):
                await store.multi([Create(f"/{number}", bytes(100_000)) for number in range(11)])
            await store.multi([Create(f"/{number}", bytes(100_000)) for number in range(10)])
            assert len(await store.get_many([f"/{number}" for number in range(11)])) == 11

    run(scenario)


def test_a_session_lives_through_a_crash_of_the_server(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as server:

        async def scenario() -> None:
            async with session(server.connect_string) as store:
                heard: asyncio.Future[WatchEvent] = asyncio.get_running_loop().create_future()
                ended: list[str] = []
                store.on_session_end(lambda: ended.append("ended"))
                await store.create("/alive", ephemeral=True)
                await store.exists("/a", heard.set_result)
                session_id = store.session_id
                await asyncio.to_thread(server.kill)
                reading = asyncio.create_task(store.get("/alive"))
                await asyncio.sleep(0.1)
                await asyncio.to_thread(server.start)
                assert (await reading).ephemeral_owner == session_id == store.session_id
                async with session(server.connect_string) as other:
                    await other.create("/a")
                assert await asyncio.wait_for(heard, 20) == WatchEvent(WatchKind.CREATED, "/a")
                assert store.is_session_alive
                assert ended == []

        run(scenario)


def test_a_frozen_server_suspends_the_session_though_no_connection_was_lost(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as server:

        async def scenario() -> None:
            async with session(server.connect_string, session_timeout_ms=1000) as store:
                suspended = asyncio.Event()
                store.on_suspended(suspended.set)
                server.freeze()
                await asyncio.wait_for(suspended.wait(), 20)
                assert not store.is_session_alive
                server.thaw()

        run(scenario)


def test_a_watch_does_not_overtake_the_answer_that_set_it() -> None:
    """kazoo's thread may have read both before the one that asked goes on."""

    async def scenario() -> None:
        received: list[object] = []

        class Owner:
            def on_watch_event(self, event: WatchedEvent) -> None:
                received.append(event.path)

        kazoo = KazooSession("127.0.0.1:1", LONG_SESSION_MS, Owner())  # type: ignore[arg-type]

        def request() -> Any:
            result = kazoo.client.handler.async_result()
            result.set("answer")
            event = WatchedEvent("CHILD", "CONNECTED", "/watched")
            kazoo.client.handler.callback_queue.put(lambda: kazoo.on_watch(event))
            return result

        await kazoo.ask(request, received.append)
        await asyncio.sleep(0)
        assert received == ["answer", "/watched"]

    run(scenario)


def test_watches_are_set_again_also_when_the_connection_is_lost_just_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        workers = ThreadWorkers("store", 1)
        store = ZooKeeperStore("127.0.0.1:1", SystemClock(), workers, LONG_SESSION_MS)
        asked: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()

        def ask(_: object, on_response: object) -> asyncio.Future[Any]:
            response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            if on_response is bool:
                response.set_result(True)
            else:
                asked.put_nowait(response)
            return response

        monkeypatch.setattr(store._session, "ask", ask)
        store.watches.add(WatchedAspect.DATA, "/watched", lambda _: None, None)
        running = asyncio.create_task(store.run())
        for _ in range(2):
            store.on_connected(1, LONG_SESSION_MS / 1000)
        async with asyncio.timeout(60):
            (await asked.get()).set_result(None)
            store.on_disconnected()
            store.on_connected(1, LONG_SESSION_MS / 1000)
            (await asked.get()).set_result(None)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        workers.close()

    run(scenario)


def test_a_broker_without_zookeeper_does_not_load_its_client() -> None:
    code = "import sys, tidelog.server.broker, tidelog.store.opening; sys.exit('kazoo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_node_without_data_reads_as_empty() -> None:
    stat = ZnodeStat(1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0)
    assert stored_node(None, stat).as_node() == Node(b"", 3, 1, 2)

"""Logins to ZooKeeper and the ACLs of nodes, against a server that serves only those that log in."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.serialization import ReplyHeader
from kazoo.security import ACL, Id, Permissions

from tests.store.stores import running
from tests.store.zookeeper import Proxy, ZooKeeperWithLogin, running_zookeeper
from tidelog.config.broker import BrokerSettings
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.workers import ThreadWorkers
from tidelog.server.broker import Broker, CannotStart
from tidelog.store.interface import Create, StoreError, StoreUnavailable
from tidelog.store.kazoo_login import KazooLogin
from tidelog.store.zookeeper import ZooKeeperStore
from tidelog.store.zookeeper_acls import acls_of
from tidelog.store.zookeeper_login import DigestMd5Client, LoginRefused, ZooKeeperLogin
from tidelog.store.zookeeper_opening import open_zookeeper_store
from tools.zookeeper import ZooKeeper

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
OWNED_BY_KAFKA = ACL(Permissions.ALL, Id("sasl", "kafka"))
READ_BY_ALL = ACL(Permissions.READ, Id("world", "anyone"))
OPEN = ACL(Permissions.ALL, Id("world", "anyone"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("secured"), ZooKeeperWithLogin) as server:
        yield server


def login_line(user: str = "kafka", password: str = "hunter2") -> str:
    return f'{MODULE} required username="{user}" password="{password}";'


@asynccontextmanager
async def session(connect: str, login: str | None, **changed: Any) -> AsyncIterator[ZooKeeperStore]:
    settings = BrokerSettings(
        **{
            "zookeeper_connect": connect,
            "zookeeper_connection_timeout_ms": 60_000,
            "zookeeper_session_timeout_ms": 20_000,
            "zookeeper_sasl_jaas_config": login,
            **changed,
        }
    )
    workers = ThreadWorkers("store", 2)
    try:
        store = await open_zookeeper_store(settings, SystemClock(), workers, SystemRandomness())
        async with running(store):
            yield store
    finally:
        workers.close()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


async def acls(store: ZooKeeperStore, path: str) -> list[ACL]:
    found, _ = await asyncio.to_thread(store._client.get_acls, path)
    return sorted(found)


def test_a_digest_is_that_of_the_rfc() -> None:
    """RFC 2831, 4: the example, with its realm, nonces and name of the service."""
    client = DigestMd5Client(ZooKeeperLogin("chris", "secret"), "OA6MHXh6VqTrRk", digest_uri="imap/elwood.innosoft.com")
    response = client.respond(
        b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
    )
    assert b"response=d388dad90d4bbd760a152321f2143af7," in response
    client.check_proof(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
    with pytest.raises(LoginRefused, match="did not prove"):
        client.check_proof(b"rspauth=ea40f60335c427b5527b84dbabcdffff")


@pytest.mark.parametrize(
    "challenge", [b"", b"\xff", b"nonce", b'realm="x"', b'nonce="n",algorithm=md5', b'nonce="n",qop="auth-int"']
)
def test_a_strange_challenge_is_refused(challenge: bytes) -> None:
    client = DigestMd5Client(ZooKeeperLogin("chris", "secret"), "nonce")
    with pytest.raises(LoginRefused):
        client.respond(challenge)
    with pytest.raises(LoginRefused):
        client.check_proof(b"rspauth=")


class FakeConnection:
    """Answers each request of kazoo's connection with an error code, or loses the connection."""

    def __init__(self, error: int | None, xid: int | None = None) -> None:
        self._error, self._xid = error, xid

    def _submit(self, _request: object, _timeout_s: float, xid: int) -> None:
        self._xid = self._xid or xid

    def _read_header(self, _timeout_s: float) -> tuple[ReplyHeader, bytes, int]:
        if self._error is None:
            raise ConnectionDropped
        return ReplyHeader(self._xid, 0, self._error), b"\xff\xff\xff\xff", 0


@pytest.mark.parametrize(
    ("connection", "raised"),
    [
        (FakeConnection(None), ConnectionDropped),
        (FakeConnection(0, xid=77), ConnectionDropped),
        (FakeConnection(-115), LoginRefused("wrong user name or password")),
        (FakeConnection(-124), LoginRefused("wrong user name or password")),
        (FakeConnection(-1), LoginRefused("the server answered error -1")),
        (FakeConnection(-9999), LoginRefused("the server answered error -9999")),
        (FakeConnection(0), LoginRefused("the server knows no logins by SASL: its JAAS file needs a section Server")),
    ],
)
def test_a_lost_connection_is_no_refusal(connection: FakeConnection, raised: Any) -> None:
    login = KazooLogin(ZooKeeperLogin("kafka", "hunter2"), bytes)
    with pytest.raises((ConnectionDropped, LoginRefused)) as found:
        login.log_in(connection, 1.0)
    assert found.type is raised or str(found.value) == str(raised)


def test_the_password_of_a_login_is_not_shown() -> None:
    assert "hunter2" not in repr(ZooKeeperLogin("kafka", "hunter2"))


@pytest.mark.parametrize(
    "path", ["/config/users", "/config/users/alice", "/config/brokers/1", "/config/tidelog-scram-secret"]
)
def test_secrets_are_readable_only_by_the_owner(path: str) -> None:
    assert READ_BY_ALL in acls_of("/config/topics/t", is_secure=True)
    assert READ_BY_ALL not in acls_of(path, is_secure=True)
    assert acls_of(path, is_secure=False) == [OPEN]


def test_a_login_and_the_acls_of_kafka(secured: ZooKeeper) -> None:
    connect = f"{secured.connect_string}/clusters/one"

    async def scenario() -> None:
        async with session(connect, login_line(), zookeeper_set_acl=True) as store:
            await store.multi([Create("/config"), Create("/config/users"), Create("/config/users/alice", b"salt")])
            await store.create("/brokers", b"1", ephemeral=True)
            await store.create("/consumers")
            assert await acls(store, "/clusters") == [READ_BY_ALL, OWNED_BY_KAFKA]
            assert await acls(store, "/clusters/one/brokers") == [READ_BY_ALL, OWNED_BY_KAFKA]
            assert await acls(store, "/clusters/one/config/users/alice") == [OWNED_BY_KAFKA]
            assert await acls(store, "/clusters/one/consumers") == [OPEN]
            async with session(connect, login_line("other", 'sésame, \\"open\\"')) as other:
                assert (await other.get("/brokers")).data == b"1"
                await other.create("/consumers/mine")
                for refused in (
                    other.get("/config/users/alice"),
                    other.get_many(["/config", "/config/users/alice"]),
                    other.set("/brokers", b"2", 0),
                    other.create("/config/topics"),
                ):
                    with pytest.raises(StoreError, match=r"ZooKeeper refuses access: its ACL is for another user"):
                        await refused

    run(scenario)


def test_without_acls_nodes_are_open(secured: ZooKeeper) -> None:
    async def scenario() -> None:
        async with session(f"{secured.connect_string}/open", login_line()) as store:
            await store.create("/node")
            assert await acls(store, "/open/node") == [OPEN]

    run(scenario)


def test_all_nodes_of_a_broker_belong_to_its_user(secured: ZooKeeper, tmp_path: Path) -> None:
    jaas_file = tmp_path / "jaas.conf"
    jaas_file.write_text(f"Client {{ {login_line()} }};")
    settings = BrokerSettings(
        zookeeper_connect=f"{secured.connect_string}/started",
        zookeeper_set_acl=True,
        broker_id=7,
        java_security_auth_login_config=str(jaas_file),
        zookeeper_connection_timeout_ms=60_000,
        listeners=("PLAINTEXT://127.0.0.1:0",),
        log_dirs=(str(tmp_path / "data"),),
    )

    async def paths(store: ZooKeeperStore, path: str) -> list[str]:
        children = await store.children(path or "/")
        return [path, *[each for child in children for each in await paths(store, f"{path}/{child}")]]

    async def scenario() -> None:
        broker = await Broker.start(settings)
        try:
            async with session(f"{secured.connect_string}/started", login_line()) as store:
                found = await paths(store, "")
                assert {"/brokers/ids/7", "/controller", "/config/changes"} <= set(found)
                for path in found:
                    rights = await acls(store, f"/started{path}")
                    is_secret = path.startswith(("/config/users", "/config/brokers", "/config/tidelog-"))
                    assert rights == [OPEN] if path == "/consumers" else OWNED_BY_KAFKA in rights, path
                    assert (READ_BY_ALL in rights) == (not is_secret and path != "/consumers"), path
        finally:
            await broker.stop()

    run(scenario)


@pytest.mark.parametrize(("user", "password"), [("kafka", "swordfish"), ("nobody", "swordfish")])
def test_a_failed_login_is_one_clear_sentence(secured: ZooKeeper, user: str, password: str, tmp_path: Path) -> None:
    connect = secured.connect_string
    settings = BrokerSettings(
        zookeeper_connect=connect,
        zookeeper_sasl_jaas_config=login_line(user, password),
        zookeeper_connection_timeout_ms=60_000,
        listeners=("PLAINTEXT://127.0.0.1:0",),
        log_dirs=(str(tmp_path),),
    )

    async def scenario() -> None:
        with pytest.raises(CannotStart) as refused:
            await Broker.start(settings)
        reason = f"ZooKeeper at {connect}: login of {user} failed: wrong user name or password"
        assert reason in str(refused.value)
        assert password not in str(refused.value)

    run(scenario)


def test_a_server_that_wants_a_login_and_a_broker_without_one(secured: ZooKeeper) -> None:
    async def scenario() -> None:
        with pytest.raises(
            StoreError, match="refuses access: the server serves only those that log in; name a JAAS file"
        ):
            async with session(f"{secured.connect_string}/x", None):
                pass

    run(scenario)


def test_a_server_without_logins_is_named(zookeeper: ZooKeeper) -> None:
    async def scenario() -> None:
        with pytest.raises(StoreError, match=r"login of kafka failed: the server knows no logins by SASL"):
            async with session(zookeeper.connect_string, login_line()):
                pass

    run(scenario)


def test_a_jaas_file_that_is_gone_is_named(secured: ZooKeeper, tmp_path: Path) -> None:
    async def scenario() -> None:
        path = str(tmp_path / "gone.conf")
        with pytest.raises(StoreError, match=r"^login to ZooKeeper: cannot read JAAS file .*gone\.conf: No such file"):
            async with session(secured.connect_string, None, java_security_auth_login_config=path):
                pass

    run(scenario)


def test_a_reconnect_logs_in_again(secured: ZooKeeper) -> None:
    async def scenario() -> None:
        proxy = Proxy(secured.port)
        await proxy.start()
        async with session(f"127.0.0.1:{proxy.port}/again", login_line(), zookeeper_set_acl=True) as store:
            await store.create("/owned")
            session_id = store.session_id
            lost = asyncio.Event()
            store.on_disconnected = lambda: (ZooKeeperStore.on_disconnected(store), lost.set())  # type: ignore[assignment, func-returns-value, method-assign]
            proxy.drop()
            await asyncio.wait_for(lost.wait(), 120)
            while True:
                try:
                    await store.set("/owned", b"changed", 0)
                    break
                except StoreUnavailable:  # not connected yet
                    await asyncio.sleep(0.05)
            assert store.session_id == session_id
        await proxy.close()

    run(scenario)

"""Logins of clients and of brokers, on virtual time."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.server.harness import Client, Harness, fetch_request
from tests.siege import sasl_fuzz
from tidelog.client.network.connection import ClientConnection
from tidelog.client.network.in_flight import LoginFailed
from tidelog.client.network.login import ClientLogin, Credentials, LoginNetwork
from tidelog.errors import (
    DuplicateResource,
    IllegalSaslState,
    InvalidRequest,
    ResourceNotFound,
    SaslAuthenticationFailed,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from tidelog.protocol.header import request_header
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.protocol.structs import Response
from tidelog.runtime.network import Channel, FrameReceiver
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import run_virtually
from tidelog.runtime.workers import InlineWorkers
from tidelog.sasl.oauthbearer import oauthbearer_message, unsecured_token
from tidelog.sasl.plain import plain_message
from tidelog.sasl.scram import SHA_256, SHA_512
from tidelog.server.broker import Broker, CannotStart
from tidelog.server.login import LOGIN_TIMEOUT_S, MAX_PENDING_LOGINS
from tidelog.server.session import Session

MODULES = "org.apache.kafka.common.security"
SETTINGS: dict[str, object] = {
    "listeners": ("SASL_PLAINTEXT://127.0.0.1:9092",),
    "security_inter_broker_protocol": "SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    "sasl_mechanism_inter_broker_protocol": "PLAIN",
    "listener_overrides": {
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required"
        ' username="broker" password="hunter2" user_broker="hunter2" user_alice="sesame";',
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule"
        ' required unsecuredValidatorAllowableClockSkewMs="0";',
    },
}
BROKER_RESOURCE, SET_CONFIG, DELETE_CONFIG = 4, 0, 1
GOOD, BAD = plain_message("alice", "sesame"), plain_message("alice", "wrong")


def with_sasl(scenario: Callable[[Harness, Broker, Client], Awaitable[None]], **settings: object) -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(**{**SETTINGS, **settings}) as broker:
            await scenario(harness, broker, await harness.connect())

    run_virtually(main())


async def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    return await client.ask(SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse)


async def authenticate(client: Client, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    return await client.ask(SaslAuthenticateRequest(auth_bytes=token), version, SaslAuthenticateResponse)


async def log_in(client: Client, token: bytes = GOOD) -> SaslAuthenticateResponse:
    assert (await handshake(client)).error_code == 0
    return await authenticate(client, token)


def sessions(broker: Broker) -> list[Session]:
    return [each.session for each in broker.acceptor.registry._connections]


async def is_closed(client: Client) -> bool:
    await asyncio.sleep(0.2)
    return client.closed_because is not None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_logs_in_and_is_served(version: int) -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        assert (await client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)).error_code == 0
        answer = await handshake(client)
        assert list(answer.mechanisms) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
        assert await authenticate(client, GOOD, version) == SaslAuthenticateResponse(error_message="")
        await client.create_topic("t")
        assert str(sessions(broker)[-1].principal) == "User:alice" or "User:alice" in map(
            str, (each.principal for each in sessions(broker))
        )
        late = await handshake(client)
        assert (late.error_code, list(late.mechanisms)) == (IllegalSaslState.code, [])
        assert (await authenticate(client, GOOD)).error_code == IllegalSaslState.code
        await client.create_topic("u")

    with_sasl(scenario)


@pytest.mark.parametrize("after", ["nothing", "versions", "handshake"])
def test_other_requests_before_the_login_close_the_connection(after: str) -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        if after == "versions":
            await client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        if after == "handshake":
            await handshake(client)
        client.start(MetadataRequest(topics=[]), 9)
        assert await is_closed(client)

    with_sasl(scenario)


def test_a_client_may_ask_for_versions_again_after_an_unsupported_one() -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        client.channel.send([b"\0\x12" + b"\0\x63" + b"\0\0\0\1" + b"\0\1x" + b"\0"])  # version 99
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        client._waiting[1] = (18, 0, answered)
        client.channel.flush()
        async with asyncio.timeout(5):
            await answered
        client._next_id = 1
        assert (await client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)).error_code == 0
        client.start(ApiVersionsRequest(), 0)
        assert await is_closed(client)

    with_sasl(scenario)


def test_a_failed_login_is_answered_late_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await log_in(client, BAD)
        assert (answer.error_code, answer.error_message) == (
            SaslAuthenticationFailed.code,
            "Authentication failed: Invalid username or password",
        )
        assert loop.time() - began == pytest.approx(0.1, abs=0.01)
        assert await is_closed(client)
        assert broker.acceptor.logins.delayed_failures == 0
        assert len(broker.acceptor.logins) == 0

    with caplog.at_level(logging.INFO):
        with_sasl(scenario)
    lines = [record.getMessage() for record in caplog.records if record.name == "tidelog.audit"]
    assert lines == [
        "login failed peer=client listener=SASL_PLAINTEXT mechanism=PLAIN user=alice"
        " reason=Authentication failed: Invalid username or password"
    ]
    assert "wrong" not in caplog.text


def test_an_unknown_mechanism_is_answered_with_those_that_are_enabled() -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        answer = await handshake(client, "GSSAPI")
        assert answer.error_code == UnsupportedSaslMechanism.code
        assert list(answer.mechanisms) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
        assert await is_closed(client)

    with_sasl(scenario)


class RawClient:
    """An old client: after a handshake of version 0 its tokens are frames without a header."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.frames: list[bytes] = []
        self.closed_because: str | None = None

    def send(self, frame: bytes) -> None:
        self.channel.send([frame])
        self.channel.flush()

    def on_frame(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def on_frames_done(self) -> None: ...

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None:
        self.closed_because = reason


async def raw_client(harness: Harness) -> RawClient:
    clients: list[RawClient] = []

    def attach(channel: Channel) -> FrameReceiver:
        clients.append(RawClient(channel))
        return clients[0]

    await harness.network.connect("127.0.0.1", 9092, attach)
    return clients[0]


@pytest.mark.parametrize(("token", "is_good"), [(GOOD, True), (BAD, False)])
def test_old_clients_send_tokens_without_a_header(token: bytes, is_good: bool) -> None:
    async def scenario(harness: Harness, broker: Broker, _: Client) -> None:
        client = await raw_client(harness)
        client.send(request_header(17, 0, 1, "old") + b"\0\5PLAIN")
        client.send(token)
        await asyncio.sleep(0.05)
        assert client.frames[1:] == ([b""] if is_good else [])
        client.send(request_header(3, 0, 2, "old") + b"\0\0\0\0")
        await asyncio.sleep(0.3)
        assert len(client.frames) == (3 if is_good else 1)
        assert (client.closed_because is None) is is_good

    with_sasl(scenario)


def test_sessions_expire_and_can_be_renewed() -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        assert (await log_in(client)).session_lifetime_ms == 10_000
        await asyncio.sleep(9)
        waiting = client.start(MetadataRequest(topics=[]), 9)  # a request in flight is answered first
        assert (await log_in(client)).session_lifetime_ms == 10_000
        assert waiting.done()
        await asyncio.sleep(9)
        await client.ask(MetadataRequest(topics=[]), 9, MetadataResponse)
        await asyncio.sleep(2)
        client.start(MetadataRequest(topics=[]), 9)
        assert await is_closed(client)

    with_sasl(scenario, connections_max_reauth_ms=10_000)


def test_an_expired_session_can_still_be_renewed() -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        await log_in(client)
        await asyncio.sleep(20)
        await log_in(client)
        await client.ask(MetadataRequest(topics=[]), 9, MetadataResponse)

    with_sasl(scenario, connections_max_reauth_ms=10_000)


def test_a_token_limits_the_session() -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        await handshake(client, "OAUTHBEARER")
        token = unsecured_token("bob", harness.clock.now_ms(), 5_000)
        answer = await authenticate(client, oauthbearer_message(token))
        assert 4_900 <= answer.session_lifetime_ms <= 5_000
        assert "User:bob" in [str(each.principal) for each in sessions(broker)]

    with_sasl(scenario)


def test_signed_tokens_are_verified_with_the_keys_of_a_file(tmp_path: Path) -> None:
    """A client gets its token from a file, too, as in Kafka."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    keys, token = tmp_path / "keys.json", tmp_path / "token"
    keys.write_text(json.dumps({"keys": [{**public, "kid": "one"}]}))

    async def scenario(harness: Harness, broker: Broker, _: Client) -> None:
        now_s = harness.clock.now_ms() // 1000
        good = {"sub": "carol", "iat": now_s, "exp": now_s + 3600, "aud": "kafka"}
        for claims, reason in ((good, None), ({**good, "aud": "other"}, "invalid_token")):
            token.write_text(jwt.encode(claims, key, "ES256", headers={"kid": "one"}))
            credentials = Credentials("OAUTHBEARER", {}, f"file://{token}")
            if reason is None:
                connection = await own_connection(harness, credentials)
                await connection.ask(MetadataRequest(topics=[]), MetadataResponse)
                assert "User:carol" in [str(each.principal) for each in sessions(broker)]
            else:
                with pytest.raises(LoginFailed, match=reason):
                    await own_connection(harness, credentials)

    with_sasl(
        scenario, sasl_oauthbearer_jwks_endpoint_url=f"file://{keys}", sasl_oauthbearer_expected_audience=("kafka",)
    )


def test_a_broker_does_not_start_without_the_keys_of_tokens(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(CannotStart, match="cannot read file:///no/such/keys"):
            await Harness().start(**{**SETTINGS, "sasl_oauthbearer_jwks_endpoint_url": "file:///no/such/keys"})

    run_virtually(main())


def test_our_client_logs_in_again_before_its_session_ends() -> None:
    async def scenario(harness: Harness, broker: Broker, _: Client) -> None:
        connection = await own_connection(harness, Credentials("PLAIN", {"username": "alice", "password": "sesame"}))
        for _second in range(100):
            await asyncio.sleep(1)
            asked = [connection.ask(MetadataRequest(topics=[]), MetadataResponse) for _ in range(3)]
            await asyncio.gather(*asked)
        assert not connection.is_closed

    with_sasl(scenario, connections_max_reauth_ms=10_000)


def test_a_fetcher_goes_on_while_its_connection_logs_in_again() -> None:
    """It sends its next request when none is in flight: requests of a login are not its own, held ones are."""

    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        await log_in(client)
        await client.create_topic("t")
        connection = await own_connection(harness, Credentials("PLAIN", {"username": "alice", "password": "sesame"}))
        loop = asyncio.get_running_loop()
        received, lost, longest_s = [loop.time()], list[Exception](), 0.0

        def fetch() -> None:
            assert connection.requests_in_flight == 0
            connection.send(fetch_request("t", 0, max_wait_ms=500), on_response, lost.append, version=12)
            assert connection.requests_in_flight == 1

        def on_response(_: Response) -> None:
            received.append(loop.time())
            if not connection.requests_in_flight:
                fetch()

        fetch()
        await asyncio.sleep(60)
        longest_s = max(after - before for before, after in zip(received, [*received[1:], loop.time()], strict=True))
        assert not lost
        assert longest_s < 1.1, longest_s

    with_sasl(scenario, connections_max_reauth_ms=1700)


async def own_connection(harness: Harness, credentials: Credentials) -> ClientConnection:
    login = ClientLogin(credentials, SeededRandomness(7), InlineWorkers(), harness.clock)
    return await ClientConnection.open(LoginNetwork(harness.network, login), "127.0.0.1", 9092, "own")


def upsertion(
    user: str, password: str = "pencil", mechanism: int = 1, iterations: int = 4096
) -> ScramCredentialUpsertion:
    derived = (SHA_256, SHA_512)[mechanism == 2].derive(password, b"salt", 4096)
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=derived
    )


async def alter(
    client: Client,
    upsertions: list[ScramCredentialUpsertion] | None = None,
    deletions: list[ScramCredentialDeletion] | None = None,
) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(deletions=deletions or [], upsertions=upsertions or [])
    response = await client.ask(request, 0, AlterUserScramCredentialsResponse)
    return {result.user: result.error_code for result in response.results}


@pytest.mark.parametrize(("number", "mechanism"), [(1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512")])
def test_users_of_the_store_log_in_by_scram(number: int, mechanism: str) -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        await log_in(client)
        assert await alter(client, [upsertion("carol,=x", mechanism=number)]) == {"carol,=x": 0}
        node = harness.store_state.find("/config/users/carol%2C%3Dx")
        assert node is not None
        assert f'"{mechanism}":"salt=c2FsdA==,stored_key='.encode() in node.data
        good = Credentials(mechanism, {"username": "carol,=x", "password": "pencil"})
        connection = await own_connection(harness, good)
        await connection.ask(MetadataRequest(topics=[]), MetadataResponse)
        for user, password in (("carol,=x", "wrong"), ("nobody", "pencil")):
            with pytest.raises(LoginFailed, match="invalid credentials with SASL mechanism") as failed:
                await own_connection(harness, Credentials(mechanism, {"username": user, "password": password}))
            assert "pencil" not in str(failed.value)
        deletion = ScramCredentialDeletion(name="carol,=x", mechanism=number)
        assert await alter(client, deletions=[deletion]) == {"carol,=x": 0}
        await connection.ask(MetadataRequest(topics=[]), MetadataResponse)  # as in Kafka, its session goes on
        with pytest.raises(LoginFailed):
            await own_connection(harness, good)

    with_sasl(scenario)


def test_users_survive_a_restart_and_a_deleted_user_cannot_log_in_again() -> None:
    async def main() -> None:
        harness = Harness()
        good = Credentials("SCRAM-SHA-256", {"username": "carol", "password": "pencil"})
        async with harness.broker(**SETTINGS):
            client = await harness.connect()
            await log_in(client)
            await alter(client, [upsertion("carol")])
        async with harness.broker(**{**SETTINGS, "connections_max_reauth_ms": 10_000}):
            connection = await own_connection(harness, good)
            client = await harness.connect()
            await log_in(client)
            await alter(client, deletions=[ScramCredentialDeletion(name="carol", mechanism=1)])
            await asyncio.sleep(20)
            assert connection.is_closed  # its re-authentication failed

    run_virtually(main())


def test_changes_of_users_are_checked_as_in_kafka() -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        await log_in(client)
        assert await alter(client, [upsertion("a", iterations=4095)]) == {"a": UnacceptableCredential.code}
        assert await alter(client, [upsertion("a", iterations=16385)]) == {"a": UnacceptableCredential.code}
        assert await alter(client, [upsertion("")]) == {"": UnacceptableCredential.code}
        assert await alter(client, [upsertion("a", mechanism=3)]) == {"a": UnsupportedSaslMechanism.code}
        assert await alter(client, [upsertion("a"), upsertion("a")]) == {"a": DuplicateResource.code}
        missing = ScramCredentialDeletion(name="a", mechanism=1)
        assert await alter(client, [upsertion("b"), upsertion("b", mechanism=2)], [missing]) == {
            "a": ResourceNotFound.code,
            "b": 0,
        }
        request = DescribeUserScramCredentialsRequest(users=[UserName(name) for name in ("b", "a", "c", "c")])
        described = await client.ask(request, 0, DescribeUserScramCredentialsResponse)
        assert {each.user: (each.error_code, len(each.credential_infos)) for each in described.results} == {
            "b": (0, 2),
            "a": (ResourceNotFound.code, 0),
            "c": (DuplicateResource.code, 0),
        }
        every = await client.ask(DescribeUserScramCredentialsRequest(), 0, DescribeUserScramCredentialsResponse)
        assert [(each.user, each.credential_infos[0].iterations) for each in every.results] == [("b", 4096)]

    with_sasl(scenario)


def test_connections_that_never_log_in_are_closed() -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        await log_in(client)
        idle = await harness.connect()
        await asyncio.sleep(LOGIN_TIMEOUT_S + 2)
        assert idle.closed_because is not None
        assert client.closed_because is None
        many = [await harness.connect() for _ in range(MAX_PENDING_LOGINS + 10)]
        await asyncio.sleep(0.1)
        assert [each.closed_because is not None for each in many].count(True) == 10
        assert len(broker.acceptor.logins) == MAX_PENDING_LOGINS
        late = await harness.connect()
        assert (await log_in(late)).error_code == 0
        await client.create_topic("t")

    with_sasl(scenario)


def test_mechanisms_of_a_listener_change_at_run_time() -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        async def alter(value: str | None) -> int:
            operation = SET_CONFIG if value is not None else DELETE_CONFIG
            change = AlterableConfig("listener.name.sasl_plaintext.sasl.enabled.mechanisms", operation, value)
            resource = AlterConfigsResource(BROKER_RESOURCE, str(broker.broker_id), [change])
            request = IncrementalAlterConfigsRequest([resource])
            answer = await client.ask(request, 1, IncrementalAlterConfigsResponse)
            await asyncio.sleep(1.5)
            return answer.responses[0].error_code

        async def offered() -> list[str]:
            other = await harness.connect()
            return list((await handshake(other, "NONE")).mechanisms)

        await log_in(client)
        assert await alter("PLAIN,SCRAM-SHA-512") == 0
        assert await offered() == ["PLAIN", "SCRAM-SHA-512"]
        assert await alter("SCRAM-SHA-512") == InvalidRequest.code  # brokers log in to each other by PLAIN
        assert await offered() == ["PLAIN", "SCRAM-SHA-512"]
        assert await alter(None) == 0
        assert await offered() == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
        late = await harness.connect()
        await handshake(late, "OAUTHBEARER")
        token = oauthbearer_message(unsecured_token("bob", harness.clock.now_ms()))
        assert (await authenticate(late, token)).error_code == 0
        await client.create_topic("t")

    with_sasl(scenario)


def test_mutated_logins_break_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The long form is `python -m tests.siege.sasl_fuzz`."""
    verdict = asyncio.run(sasl_fuzz.besiege(tmp_path / "first", 200))
    assert (verdict.failures, verdict.left_open, verdict.intruders) == ([], 0, 0)
    monkeypatch.setattr(sasl_fuzz, "WRONG", sasl_fuzz.PASSWORD)
    assert asyncio.run(sasl_fuzz.besiege(tmp_path / "second", 500)).intruders > 0  # they would be noticed


def test_a_large_request_before_the_login_closes_the_connection() -> None:
    async def scenario(harness: Harness, broker: Broker, client: Client) -> None:
        await handshake(client)
        client.start(SaslAuthenticateRequest(auth_bytes=bytes(600_000)), 1)
        assert await is_closed(client)

    with_sasl(scenario)

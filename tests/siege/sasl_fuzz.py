"""Mutated SASL logins against a broker: nothing fails in it, nothing is left, nobody gets in without the password.

`python -m tests.siege.sasl_fuzz --connections 100000` attacks a broker of its own: handshakes of both versions, tokens
of all mechanisms with and without SaslAuthenticate, half of them with a wrong password; one message of each is changed.
"""

import argparse
import asyncio
import logging
import random
import resource
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.siege.tls_fuzz import AT_ONCE, Failures, left_open_connections, mutated
from tests.siege.wire import Asking, frame
from tidelog.config.broker import BrokerSettings
from tidelog.protocol.codec import decode
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.header import read_response_header
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tidelog.sasl.exchange import SaslFailure
from tidelog.sasl.oauthbearer import oauthbearer_message, unsecured_token
from tidelog.sasl.plain import plain_message
from tidelog.sasl.scram import SHA_256, SHA_512, ScramClient, ScramMechanism
from tidelog.server.broker import Broker

TIMEOUT_S = 30.0
GIVE_UP_S = 0.2
"""A broker that waits for the rest of a frame says nothing: the attacker leaves."""
LENGTH_BYTES = 4
USER, PASSWORD, WRONG = "alice", "sesame", "xxxxxxxx"
SALT, ITERATIONS = b"pepper", 4096
SCRAM = {each.name: each for each in (SHA_256, SHA_512)}
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
MODULES = "org.apache.kafka.common.security"
PROOF_OF_LOGIN = frame(MetadataRequest(topics=[]), 1, correlation_id=99)


class Verdict(NamedTuple):
    connections: int
    tolerated: int
    """Logged in with the right password in spite of a change: of a client id, say, or behind the request."""
    intruders: int
    left_open: int
    failures: list[str]


class Attempt:
    """One login, with one changed message."""

    def __init__(self, chance: random.Random, *, is_good: bool = False) -> None:
        self._chance = chance
        self.mechanism = chance.choice(MECHANISMS)
        self.is_right = is_good or chance.random() < 0.5
        self._password = PASSWORD if self.is_right else WRONG
        self._handshake_version = chance.randrange(2)
        self._changed = -1 if is_good else chance.randrange(4 if self.mechanism in SCRAM else 3)
        self._sent = 0
        self.is_changed = False

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether a request after the login was answered."""
        self._send(writer, frame(SaslHandshakeRequest(mechanism=self.mechanism), self._handshake_version))
        await self._receive(reader)
        tokens = self._tokens()
        token: bytes | None = next(tokens)
        while token is not None:
            answer = await self._authenticate(reader, writer, token)
            try:
                token = tokens.send(answer)
            except StopIteration:
                token = None
        self._send(writer, PROOF_OF_LOGIN)
        return int.from_bytes((await self._receive(reader))[:4], "big") == 99

    def _tokens(self) -> Generator[bytes, bytes, None]:
        """Gets the server's answers."""
        if self.mechanism == "PLAIN":
            yield plain_message(USER, self._password)
        elif self.mechanism == "OAUTHBEARER":
            yield oauthbearer_message(unsecured_token(USER, int(time.time() * 1000)))
        else:
            client = ScramClient(SCRAM[self.mechanism], USER, f"nonce{self._chance.getrandbits(64):016x}")
            derivation = client.on_server_first((yield client.first_message))
            salted = _salted(self.mechanism, self._password, derivation.salt, derivation.iterations)
            yield client.final_message(salted)

    async def _authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> bytes:
        if self._handshake_version == 0:
            self._send(writer, len(token).to_bytes(LENGTH_BYTES, "big") + token)
            return await self._receive(reader)
        request, version = SaslAuthenticateRequest(auth_bytes=token), self._chance.randrange(3)
        self._send(writer, frame(request, version))
        body = await self._receive(reader)
        _, position = read_response_header(memoryview(body), request.__api_key__, version)
        answer = decode(SaslAuthenticateResponse, version, body[position:])
        if answer.error_code:
            raise ConnectionError(answer.error_message)
        return answer.auth_bytes

    def _send(self, writer: asyncio.StreamWriter, message: bytes) -> None:
        if self._sent == self._changed:
            changed = mutated(message[LENGTH_BYTES:], self._chance)
            if self._chance.random() < 0.8:
                changed = len(changed).to_bytes(LENGTH_BYTES, "big") + changed
            else:
                changed = mutated(message, self._chance)
            self.is_changed = changed != message
            message = changed
        self._sent += 1
        writer.write(message)

    async def _receive(self, reader: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(GIVE_UP_S if self.is_changed else TIMEOUT_S):
            size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
            return await reader.readexactly(size)


@cache
def _salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return SCRAM[mechanism].derive(password, salt, iterations)


async def attack(port: int, connections: int, seed: int = 1) -> tuple[int, int]:
    """Tolerated logins and intruders. A good client among each hundred must be served."""
    chance, left, tolerated, intruders = random.Random(seed), connections, 0, 0

    async def client() -> None:
        nonlocal left, tolerated, intruders
        while left > 0:
            left -= 1
            if left % 100 == 0:
                assert await _connect(port, Attempt(chance, is_good=True)), "a good client is refused"
            attempt = Attempt(chance)
            if await _connect(port, attempt):
                # Anybody can write a token without a signature.
                is_earned = attempt.is_right or attempt.mechanism == "OAUTHBEARER"
                tolerated += is_earned and attempt.is_changed
                intruders += not is_earned

    async with asyncio.TaskGroup() as group:
        for _ in range(min(AT_ONCE, connections)):
            group.create_task(client())
    return tolerated, intruders


async def _connect(port: int, attempt: Attempt) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(OSError, EOFError, TimeoutError, SaslFailure, MalformedMessage):
            return await attempt.run(reader, writer)
        return False
    finally:
        writer.transport.abort()


def _settings(directory: Path) -> BrokerSettings:
    plain = f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    bearer = f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredValidatorAllowableClockSkewMs="9000";'
    return BrokerSettings(
        log_dirs=(str(directory / "data"),),
        coordination_store=str(directory / "coordination.sqlite"),
        listeners=tuple(f"{name}://127.0.0.1:0" for name in ("BROKERS", "ADMINS", "CLIENTS")),
        listener_security_protocol_map="BROKERS:PLAINTEXT,ADMINS:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        inter_broker_listener_name="BROKERS",
        sasl_enabled_mechanisms=MECHANISMS,
        connection_failed_authentication_delay_ms=5,
        listener_overrides={
            "listener.name.clients.plain.sasl.jaas.config": plain,
            "listener.name.clients.oauthbearer.sasl.jaas.config": bearer,
        },
    )


def _upsertion(mechanism: ScramMechanism) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=USER,
        mechanism=mechanism.type,
        iterations=ITERATIONS,
        salt=SALT,
        salted_password=mechanism.derive(PASSWORD, SALT, ITERATIONS),
    )


def _add_user(address: str) -> None:
    with Asking(address) as client:
        request = AlterUserScramCredentialsRequest(upsertions=[_upsertion(each) for each in SCRAM.values()])
        answer = client.ask(request, 0, AlterUserScramCredentialsResponse)
        assert [each.error_code for each in answer.results] == [0]


async def _wait_for_the_user(port: int) -> None:
    """Until the broker has heard of the change of users."""
    chance = random.Random(1)
    for _ in range(1000):
        attempt = Attempt(chance, is_good=True)
        if await _connect(port, attempt) and attempt.mechanism in SCRAM:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the new user cannot log in")


async def besiege(directory: Path, connections: int) -> Verdict:
    failures = Failures()
    logging.getLogger("tidelog").addHandler(failures)
    broker = await Broker.start(_settings(directory))
    try:
        _, admins, clients = broker.acceptor.listeners
        await asyncio.to_thread(_add_user, f"127.0.0.1:{admins.port}")
        port = clients.port
        await _wait_for_the_user(port)
        tolerated, intruders = await attack(port, connections)
        return Verdict(connections, tolerated, intruders, await left_open_connections(broker), failures.lines)
    finally:
        await broker.stop()
        logging.getLogger("tidelog").removeHandler(failures)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.siege.sasl_fuzz", description=__doc__)
    parser.add_argument("--connections", type=int, default=100_000)
    options = parser.parse_args()
    logging.getLogger("tidelog").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="tidelog-sasl-") as temporary:
        began = time.monotonic()
        verdict = asyncio.run(besiege(Path(temporary), options.connections))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{verdict.connections} logins, {verdict.tolerated} tolerated, {verdict.intruders} intruders", end="")
    print(f", {verdict.left_open} left open, {time.monotonic() - began:.0f} s", end="")
    print(f", peak memory with the attacker {peak_mb:.0f} MB")
    for line in verdict.failures:
        print(line)
    sys.exit(1 if verdict.failures or verdict.left_open or verdict.intruders else 0)


if __name__ == "__main__":
    main()

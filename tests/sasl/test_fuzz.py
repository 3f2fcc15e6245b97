"""Mutated messages of logins: never an exception, and never a login that was not earned."""

import random
from collections.abc import Callable

import pytest

from tidelog.sasl.exchange import ServerExchange
from tidelog.sasl.oauthbearer import (
    ClaimRules,
    OAuthBearerServer,
    UnsecuredValidator,
    oauthbearer_message,
    unsecured_token,
)
from tidelog.sasl.plain import PlainServer, plain_message
from tidelog.sasl.scram import SHA_256, ScramClient, ScramServer, decoy_credential
from tidelog.sasl.server_login import LoginState, Mechanism, ServerLogin

MUTATIONS = 100_000
NOW_MS = 1_700_000_000_000
SALTED = SHA_256.derive("sesame", b"salt", 4096)
CREDENTIAL = SHA_256.credential(b"salt", SALTED, 4096)


def scram_server() -> ScramServer:
    return ScramServer(
        SHA_256,
        lambda user: CREDENTIAL if user == "alice" else None,
        lambda user: decoy_credential(SHA_256, b"secret", user),
        "servernonce",
    )


MECHANISMS: dict[str, Callable[[], ServerExchange]] = {
    "PLAIN": lambda: PlainServer({"alice": "sesame"}),
    "SCRAM-SHA-256": scram_server,
    "OAUTHBEARER": lambda: OAuthBearerServer(UnsecuredValidator(ClaimRules(clock_skew_ms=0))),
}


def messages(mechanism: str) -> list[bytes]:
    """What a client with the right password sends."""
    if mechanism == "PLAIN":
        return [plain_message("alice", "sesame")]
    if mechanism == "OAUTHBEARER":
        return [oauthbearer_message(unsecured_token("alice", NOW_MS)), b"\x01"]
    client = ScramClient(SHA_256, "alice", "clientnonce")
    client.on_server_first(scram_server().evaluate(client.first_message, NOW_MS))
    return [client.first_message, client.final_message(SALTED)]


def mutated(message: bytes, chance: random.Random) -> bytes:
    data = bytearray(message)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0:
                data[position:position] = chance.randbytes(chance.randint(1, 8))
            case 1:
                del data[position : position + chance.randint(1, 8)]
            case 2 if position < len(data):
                data[position] ^= 1 << chance.randrange(8)
            case 3 if position < len(data):
                data[position] = chance.choice(b",=\0\x01nrcpv")
            case 4:
                data = data[:position]
            case _:
                data += data[: chance.randrange(64)]
    return bytes(data)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_mutated_messages_never_break_a_login(mechanism: str) -> None:
    chance, good = random.Random(17), messages(mechanism)
    begin = {name: Mechanism(make) for name, make in MECHANISMS.items()}
    for _ in range(MUTATIONS // len(MECHANISMS)):
        login = ServerLogin(begin)
        login.on_handshake(mechanism, 1, NOW_MS)
        which = chance.randrange(len(good))
        for index, message in enumerate(good):
            sent = mutated(message, chance) if index == which else message
            answer = login.on_token(sent, NOW_MS)
            if login.state is not LoginState.TOKENS:
                break
        if login.is_logged_in and mechanism != "OAUTHBEARER":  # anybody can write a token without a signature
            assert login.user == "alice"
            assert index == len(good) - 1
        assert answer.is_failure == (login.state is LoginState.FAILED)
        assert "sesame" not in str(answer)


def test_the_messages_are_right_without_mutations() -> None:
    for mechanism in MECHANISMS:
        login = ServerLogin({mechanism: Mechanism(MECHANISMS[mechanism])})
        login.on_handshake(mechanism, 1, NOW_MS)
        for message in messages(mechanism):
            if not login.is_logged_in:
                login.on_token(message, NOW_MS)
        assert login.user == "alice"
        assert login.is_logged_in

"""Logins that fail, token by token: error codes and texts, auth bytes, and closed connections."""

import re
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from compat.answers.conversation import CLOSED, ConnectionClosed, Line, wait_until
from compat.answers.logins import PASSWORD
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.protocol.structs import Request
from tidelog.sasl.scram import SHA_256, ScramClient

if TYPE_CHECKING:
    from compat.answers.permissions import Guarded

USER = "scrammy"
ITERATIONS = 4096
CLOSING_LIMIT_S = 4.0
SCRAM = SHA_256.name
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
Step = tuple[Request, int] | Callable[[bytes], tuple[Request, int]]
"""A request with its version, or one that is made of the last auth bytes."""


def handshake(mechanism: str, version: int = 1) -> Step:
    return SaslHandshakeRequest(mechanism=mechanism), version


def token(data: bytes) -> Step:
    return SaslAuthenticateRequest(auth_bytes=data), 1


def plain(data: bytes) -> Sequence[Step]:
    return handshake("PLAIN"), token(data)


def scram(
    first: bytes, final: Callable[[ScramClient, bytes], bytes] | None = None, password: str = PASSWORD
) -> Sequence[Step]:
    """`final` changes the last message of a client who knows the password."""
    steps: list[Step] = [handshake(SCRAM), token(first)]
    if final is None:
        return steps

    def answer(server_first: bytes) -> tuple[Request, int]:
        user = re.search(rb"n=([^,]*)", first)
        client = ScramClient(SHA_256, user[1].decode() if user else "", "abc")
        wanted = client.on_server_first(server_first)
        good = client.final_message(SHA_256.derive(password, wanted.salt, wanted.iterations))
        return SaslAuthenticateRequest(auth_bytes=final(client, good)), 1

    return [*steps, answer]


FIRST = f"n,,n={USER},r=abc".encode()
GOOD = f"\0admin\0{PASSWORD}".encode()
LOGINS: dict[str, Sequence[Step]] = {
    "an unknown mechanism": [handshake("KERBEROS")],
    "an unknown mechanism, in version 0": [handshake("KERBEROS", 0)],
    "a mechanism in small letters": [handshake("plain")],
    "a token before the handshake": [token(GOOD)],
    "a request before the login": [(MetadataRequest(topics=[]), 4)],
    "a request instead of the token": [handshake("PLAIN"), (MetadataRequest(topics=[]), 4)],
    "versions, twice": [(ApiVersionsRequest(), 0), (ApiVersionsRequest(), 0)],
    "two handshakes": [handshake("PLAIN"), handshake("PLAIN")],
    "PLAIN": plain(GOOD),
    "PLAIN, then a handshake": [*plain(GOOD), handshake("PLAIN")],
    "PLAIN, then a token": [*plain(GOOD), token(GOOD)],
    "PLAIN with a wrong password": plain(b"\0admin\0wrong"),
    "PLAIN with an unknown user": plain(b"\0nobody\0wrong"),
    "PLAIN without a user": plain(b"\0\0wrong"),
    "PLAIN without a password": plain(b"\0admin\0"),
    "PLAIN for another user": plain(f"nobody\0admin\0{PASSWORD}".encode()),
    "PLAIN for oneself": plain(f"admin\0admin\0{PASSWORD}".encode()),
    "PLAIN with two tokens": plain(b"admin\0wrong"),
    "PLAIN with four tokens": plain(b"\0admin\0wrong\0more"),
    "PLAIN without anything": plain(b""),
    "SCRAM": scram(FIRST, lambda _, good: good),
    "SCRAM with a wrong password": scram(FIRST, lambda _, good: good, "wrong"),
    "SCRAM with an empty user": scram(b"n,,n=,r=abc"),
    "SCRAM for another user": scram(f"n,a=nobody,n={USER},r=abc".encode()),
    "SCRAM with channel binding": scram(f"p=tls-unique,,n={USER},r=abc".encode()),
    "SCRAM without a nonce": scram(f"n,,n={USER}".encode()),
    "SCRAM with nonsense": scram(b"nonsense"),
    "SCRAM without anything": scram(b""),
    "SCRAM with a bad name": scram(b"n,,n=a=b,r=abc"),
    "SCRAM with an extension that is mandatory": scram(f"n,,m=x,n={USER},r=abc".encode()),
    "SCRAM with another nonce at the end": scram(FIRST, lambda _, good: good.replace(b"r=abc", b"r=abd")),
    "SCRAM without a proof": scram(FIRST, lambda _, good: good.partition(b",p=")[0]),
    "SCRAM with a short proof": scram(FIRST, lambda _, good: good.partition(b",p=")[0] + b",p=YWJj"),
    "SCRAM with nonsense at the end": scram(FIRST, lambda _, good: b"nonsense"),
}
KNOWN_LOGINS = {
    "a request instead of the token": "Kafka answers a request in the middle of a login with an error before it closes"
    " the connection, Tidelog closes it",
    "SCRAM with an extension that is mandatory": "Kafka ignores mandatory extensions of SCRAM, against RFC 5802",
    "SCRAM with a short proof": "Kafka closes the connection without an answer if a proof of SCRAM has a wrong length",
}
"""Differences on purpose. SCRAM with an unknown user is not asked: Kafka ends it after the first message, which shows
who exists; Tidelog goes on with a salt."""


def ask_logins(talk: "Guarded", _: object) -> None:
    _create_user(talk)
    for what, steps in LOGINS.items():
        talk.note(what, _answers(talk._bootstrap, steps))


def _create_user(talk: "Guarded") -> None:
    salted = SHA_256.derive(PASSWORD, b"salt", ITERATIONS)
    change = ScramCredentialUpsertion(USER, SHA_256.type, ITERATIONS, b"salt", salted)
    request = AlterUserScramCredentialsRequest(upsertions=[change])
    response = talk.ask_quietly(request, 0, AlterUserScramCredentialsResponse)
    assert response.results[0].error_code == 0, response
    wait_until(lambda: "0" in str(_answers(talk._bootstrap, LOGINS["SCRAM"])[-1][0]), "the user is known")


def _is_closed(line: Line) -> bool:
    line._socket.settimeout(CLOSING_LIMIT_S)
    try:
        return not line._socket.recv(1)
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def _answers(bootstrap: str, steps: Sequence[Step]) -> list[Any]:
    line, auth_bytes, found = Line(bootstrap, "login"), b"", list[Any]()
    try:
        for step in steps:
            request, version = step(auth_bytes) if callable(step) else step
            line.send(request, version)
            response = line.receive()
            if isinstance(response, SaslAuthenticateResponse):
                auth_bytes = bytes(response.auth_bytes)
                shown = re.sub(rb"r=[^,]*", b"r=<nonce>", re.sub(rb"^v=.*", b"v=<signature>", auth_bytes))
                found.append([response.error_code, response.error_message, shown, response.session_lifetime_ms])
            elif isinstance(response, SaslHandshakeResponse):
                found.append([response.error_code, sorted(response.mechanisms)])
            else:
                found.append(type(response).__name__)
            if isinstance(found[-1], list) and found[-1][0]:
                found.append(CLOSED if _is_closed(line) else "the connection stays open")
                break
    except (ConnectionClosed, ConnectionResetError, struct.error):
        found.append(CLOSED)
    finally:
        line.close()
    return found

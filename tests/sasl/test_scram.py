"""SCRAM against the example of RFC 7677, and what a hostile client may send."""

import base64
from collections.abc import Callable

import pytest

from tidelog.sasl.exchange import SaslFailure
from tidelog.sasl.scram import (
    SHA_256,
    SHA_512,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    decoy_credential,
    new_salt,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def server(
    password: str = "pencil", mechanism: ScramMechanism = SHA_256, users: tuple[str, ...] = ("user",)
) -> ScramServer:
    credential = mechanism.credential(SALT, mechanism.derive(password, SALT, 4096), 4096)
    decoy: Callable[[str], ScramCredential] = lambda user: decoy_credential(mechanism, b"secret", user)  # noqa: E731
    return ScramServer(mechanism, lambda user: credential if user in users else None, decoy, SERVER_NONCE)


def test_the_example_of_the_rfc() -> None:
    exchange = server()
    assert exchange.evaluate(FIRST, 0) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.evaluate(FINAL, 0) == SERVER_FINAL
    assert exchange.is_complete
    assert exchange.user == "user"


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_our_client_and_our_server(mechanism: ScramMechanism) -> None:
    exchange, client = server("se,cret=ä", mechanism, ("a=b,c",)), ScramClient(mechanism, "a=b,c", "abc")
    wanted = client.on_server_first(exchange.evaluate(client.first_message, 0))
    final = client.final_message(mechanism.derive("se,cret=ä", wanted.salt, wanted.iterations))
    client.on_server_final(exchange.evaluate(final, 0))
    assert exchange.is_complete


@pytest.mark.parametrize(("password", "user"), [("wrong", "user"), ("pencil", "nobody")])
def test_an_unknown_user_fails_like_a_wrong_password(password: str, user: str) -> None:
    exchange, client = server(), ScramClient(SHA_256, user, "abc")
    wanted = client.on_server_first(exchange.evaluate(client.first_message, 0))
    assert wanted.iterations == 4096
    with pytest.raises(SaslFailure) as failed:
        exchange.evaluate(client.final_message(SHA_256.derive(password, wanted.salt, 4096)), 0)
    assert failed.value.reason_for_client is None
    assert not exchange.is_complete


def test_an_unknown_user_has_always_the_same_salt() -> None:
    first, again = (decoy_credential(SHA_256, b"secret", "nobody").salt for _ in range(2))
    assert first == again != decoy_credential(SHA_256, b"secret", "other").salt
    assert abs(len(first) - len(new_salt(bytes(range(200, 217))))) <= 2


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=us=41,r=abc",
        b"n,,n=,r=abc",
        b"n,,m=ext,n=user,r=abc",
    ],
)
def test_a_malformed_first_message_fails(message: bytes) -> None:
    with pytest.raises(SaslFailure):
        server().evaluate(message, 0)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        FINAL.replace(b"biws", b"eSws"),
        FINAL.replace(b"hNlF$k0", b"hNlF$k1"),
        FINAL.replace(b",p=", b",p=AAAA"),
        FINAL[:-4],
        FINAL.replace(b"p=dHz", b"p=dHy"),
    ],
)
def test_a_wrong_final_message_fails(message: bytes) -> None:
    exchange = server()
    exchange.evaluate(FIRST, 0)
    with pytest.raises(SaslFailure):
        exchange.evaluate(message, 0)


def test_a_client_checks_the_server() -> None:
    client = ScramClient(SHA_256, "user", "abc")
    for message in (b"", b"r=other,s=AA==,i=4096", b"r=abcd,s=AA==,i=1", b"r=abcd,s=AA==,i=99999999"):
        with pytest.raises(SaslFailure):
            client.on_server_first(message)
    client.on_server_first(b"r=abcd,s=AAAA,i=4096")
    client.final_message(b"key")
    for message in (SERVER_FINAL, b"e=other-error", b""):
        with pytest.raises(SaslFailure):
            client.on_server_final(message)


def test_credentials_are_written_as_kafka_writes_them() -> None:
    credential = SHA_256.credential(SALT, SHA_256.derive("pencil", SALT, 4096), 4096)
    text = credential.to_text()
    assert text.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,")
    assert ScramCredential.from_text(text) == credential
    assert "WG5d" not in repr(credential)
    for malformed in ("", "salt=x", text.replace("iterations=4096", "iterations=x"), text + ",,"):
        with pytest.raises(ValueError, match=r"not a SCRAM|invalid literal"):
            ScramCredential.from_text(malformed)

"""Tokens of OAUTHBEARER: signed and unsigned, expired, for others, and forged."""

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tidelog.sasl.exchange import SaslFailure
from tidelog.sasl.oauthbearer import (
    ClaimRules,
    InvalidToken,
    OAuthBearerServer,
    UnsecuredValidator,
    ValidToken,
    oauthbearer_message,
    unsecured_rules,
    unsecured_token,
)
from tidelog.sasl.signed_tokens import NoKeys, SignedTokenValidator, parse_keys

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
KEY, OTHER_KEY = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60, "iss": "https://id", "aud": ["kafka"]}
RULES = ClaimRules(audiences=("kafka",), issuer="https://id", needs_issue_time=True)


def keys(**by_id: Any) -> str:
    found = [
        {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": key_id, "use": "sig"}
        for key_id, key in by_id.items()
    ]
    return json.dumps({"keys": found})


def signed(key: Any = KEY, key_id: str | None = "one", algorithm: str = "ES256", **claims: Any) -> str:
    wanted = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(wanted, key, algorithm, headers={} if key_id is None else {"kid": key_id})


def validator() -> SignedTokenValidator:
    found = SignedTokenValidator(RULES)
    found.keys = parse_keys(keys(one=KEY))
    return found


def test_a_signed_token() -> None:
    token = validator().validate(signed(scope="read write"), NOW_MS)
    assert token == ValidToken("alice", NOW_MS + 60_000, frozenset({"read", "write"}))
    assert validator().validate(signed(key_id=None), NOW_MS).principal == "alice"


@pytest.mark.parametrize(
    "token",
    [
        signed(OTHER_KEY),
        signed(key_id="two"),
        signed(exp=NOW_S - 31),
        signed(exp=None),
        signed(iat=None),
        signed(nbf=NOW_S + 40),
        signed(iss="https://other"),
        signed(aud="other"),
        signed(sub=None),
        signed(rsa.generate_private_key(65537, 2048), algorithm="RS256"),
        jwt.encode(CLAIMS, "x" * 32, "HS256", headers={"kid": "one"}),
        unsecured_token("alice", NOW_MS),
        "nonsense",
        "a.b.c",
        "x" * 100_000,
    ],
)
def test_other_tokens_are_invalid(token: str) -> None:
    with pytest.raises(InvalidToken) as invalid:
        validator().validate(token, NOW_MS)
    assert token not in str(invalid.value)


def test_an_unknown_key_asks_for_new_keys() -> None:
    found = validator()
    with pytest.raises(InvalidToken):
        found.validate(signed(key_id="two"), NOW_MS)
    assert found.has_unknown_key


def test_keys_that_cannot_be_read() -> None:
    for text in ("", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "oct"}]}'):
        with pytest.raises(NoKeys):
            parse_keys(text)


def test_the_exchange() -> None:
    exchange = OAuthBearerServer(validator())
    assert exchange.evaluate(oauthbearer_message(signed()), NOW_MS) == b""
    assert (exchange.is_complete, exchange.user, exchange.expires_at_ms) == (True, "alice", NOW_MS + 60_000)


def test_an_invalid_token_is_refused_in_two_steps() -> None:
    exchange = OAuthBearerServer(validator())
    assert exchange.evaluate(oauthbearer_message(signed(OTHER_KEY)), NOW_MS) == b'{"status":"invalid_token"}'
    with pytest.raises(SaslFailure, match="cannot be verified") as failed:
        exchange.evaluate(b"\x01", NOW_MS)
    assert failed.value.reason_for_client == '{"status":"invalid_token"}'
    assert not exchange.is_complete


@pytest.mark.parametrize(
    "message", [b"", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer \x01\x01"]
)
def test_a_malformed_message_fails(message: bytes) -> None:
    with pytest.raises(SaslFailure):
        OAuthBearerServer(validator()).evaluate(message, NOW_MS)


def test_unsigned_tokens_where_they_are_allowed() -> None:
    rules = unsecured_rules({"unsecuredValidatorAllowableClockSkewMs": "1000"})
    assert UnsecuredValidator(rules).validate(unsecured_token("bob", NOW_MS), NOW_MS + 1).principal == "bob"
    for token in (signed(), "a.b.", "..", "W10.W10."):
        with pytest.raises(InvalidToken):
            UnsecuredValidator(rules).validate(token, NOW_MS)


def test_a_token_of_deep_brackets_is_refused() -> None:
    header = base64.urlsafe_b64encode(b"[" * 100_000).decode().rstrip("=")
    with pytest.raises(InvalidToken):
        SignedTokenValidator(ClaimRules()).validate(f"{header[:60_000]}.e30.AA", 0)


def test_a_signed_token_with_deep_claims_is_refused() -> None:
    """Of an issuer that signs whatever it is sent."""
    header = json.dumps({"alg": "ES256", "kid": "one"}).encode()
    claims = b'{"sub":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    parts = b".".join(base64.urlsafe_b64encode(each).rstrip(b"=") for each in (header, claims))
    signature = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(parts, KEY)
    token = b".".join((parts, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()
    with pytest.raises(InvalidToken):
        validator().validate(token, NOW_MS)

"""OAUTHBEARER (RFC 7628): messages of both sides, and tokens without a signature."""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tidelog.numerals import natural_number
from tidelog.sasl.exchange import SaslFailure

_NAME = r"(?:[^=,\0\x01]|=2C|=3D)+"
_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x00\x01]*\x01)*)\x01", re.DOTALL)
_BEARER = re.compile(r"bearer +(?P<token>[-._~+/A-Za-z0-9]+=*)", re.IGNORECASE)
INVALID_TOKEN = '{"status":"invalid_token"}'
END_OF_FAILURE = b"\x01"


class InvalidToken(Exception):
    """The message never contains the token."""


class ValidToken(NamedTuple):
    principal: str
    expires_at_ms: int
    scopes: frozenset[str] = frozenset()


class TokenValidator(Protocol):
    def validate(self, token: str, now_ms: int) -> ValidToken:
        """Raises InvalidToken."""
        ...


class OAuthBearerServer:
    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._failure: str | None = None
        self.is_complete = False
        self.user = ""
        self.expires_at_ms: int | None = None

    def evaluate(self, message: bytes, now_ms: int) -> bytes:
        if self._failure is not None:  # whatever the client sends; it should be one byte
            raise SaslFailure(self._failure, reason_for_client=INVALID_TOKEN)
        match = _FIRST.fullmatch(message.decode(errors="replace"))
        if match is None:
            raise SaslFailure("Invalid OAUTHBEARER client first message")
        pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise SaslFailure("Invalid OAUTHBEARER client first message: 'auth' not specified")
        try:
            token = self._validator.validate(bearer["token"], now_ms)
        except InvalidToken as error:
            self._failure = str(error)
            return INVALID_TOKEN.encode()
        self.user = token.principal
        authorization_id = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
        if authorization_id and authorization_id != token.principal:
            raise SaslFailure(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different"
                f" from the token's principal name ({token.principal})",
                is_for_client=True,
            )
        self.is_complete, self.expires_at_ms = True, token.expires_at_ms
        return b""


def oauthbearer_message(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def decoded_part(part: str) -> Mapping[str, Any]:
    """Header or claims of a token. Raises InvalidToken."""
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidToken("not a JSON web token") from None
    if not isinstance(found, dict):
        raise InvalidToken("not a JSON web token")
    return found


class ClaimRules(NamedTuple):
    """What the claims of a token must say."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_ms: int = 30_000
    audiences: Sequence[str] = ()
    issuer: str | None = None
    required_scopes: frozenset[str] = frozenset()
    needs_issue_time: bool = False

    def check(self, claims: Mapping[str, Any], now_ms: int) -> ValidToken:
        """Raises InvalidToken."""
        expires_at_ms = _time_ms(claims, "exp")
        if expires_at_ms is None:
            raise InvalidToken("the token never expires")
        if expires_at_ms + self.clock_skew_ms <= now_ms:
            raise InvalidToken("the token has expired")
        issued_at_ms, not_before_ms = _time_ms(claims, "iat"), _time_ms(claims, "nbf")
        if issued_at_ms is None and self.needs_issue_time:
            raise InvalidToken("the token has no time of issue (iat)")
        if max(issued_at_ms or 0, not_before_ms or 0) - self.clock_skew_ms > now_ms:
            raise InvalidToken("the token is not valid yet")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidToken("the token has another issuer")
        if self.audiences and not _texts(claims.get("aud")) & set(self.audiences):
            raise InvalidToken("the token is for another audience")
        scopes = _scopes(claims.get(self.scope_claim))
        if not scopes >= self.required_scopes:
            raise InvalidToken("the token lacks a scope")
        principal = claims.get(self.principal_claim)
        if not isinstance(principal, str) or not principal.strip():
            raise InvalidToken(f"the token has no claim {self.principal_claim}")
        return ValidToken(principal, expires_at_ms, scopes)


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise InvalidToken(f"the claim {name} is not a time")
    return int(value * 1000)


def _texts(value: object) -> set[str]:
    values = value if isinstance(value, list) else [value]
    return {each for each in values if isinstance(each, str)}


def _scopes(value: object) -> frozenset[str]:
    return frozenset(scope for text in _texts(value) for scope in text.split())


class UnsecuredValidator:
    """Tokens without a signature: anybody can write one. For development, as Kafka's default."""

    def __init__(self, rules: ClaimRules) -> None:
        self._rules = rules

    def validate(self, token: str, now_ms: int) -> ValidToken:
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise InvalidToken("the token has a signature, and only tokens without one are accepted here")
        if decoded_part(parts[0]).get("alg") != "none":
            raise InvalidToken("the algorithm of the token is not none")
        return self._rules.check(decoded_part(parts[1]), now_ms)


def unsecured_rules(options: Mapping[str, str]) -> ClaimRules:
    """From the options `unsecuredValidator...` of a login module. Raises ValueError."""
    return ClaimRules(
        principal_claim=options.get("unsecuredValidatorPrincipalClaimName", "sub"),
        scope_claim=options.get("unsecuredValidatorScopeClaimName", "scope"),
        clock_skew_ms=_clock_skew_ms(options.get("unsecuredValidatorAllowableClockSkewMs", "0")),
        required_scopes=frozenset(options.get("unsecuredValidatorRequiredScope", "").split()),
    )


def _clock_skew_ms(text: str) -> int:
    found = natural_number(text)
    if found is None:
        raise ValueError(f"unsecuredValidatorAllowableClockSkewMs needs a number of milliseconds, found {text!r}")
    return found


def unsecured_token(subject: str, now_ms: int, lifetime_ms: int = 3_600_000) -> str:
    """A token without a signature, as Kafka's unsecured login module makes it."""
    claims = {"sub": subject, "iat": now_ms / 1000, "exp": (now_ms + lifetime_ms) / 1000}
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."

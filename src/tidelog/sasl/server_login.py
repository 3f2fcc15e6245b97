"""Login of one connection, server side: the order of requests and tokens (SaslServerAuthenticator).

Before the login is complete, a connection may send ApiVersions, then SaslHandshake, then tokens: in SaslAuthenticate
requests after a handshake of version 1, as frames without a header after one of version 0.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from tidelog.errors import NO_ERROR, IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from tidelog.sasl.exchange import SaslFailure, ServerExchange

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
MIN_REAUTHENTICATION_INTERVAL_MS = 1000
RAW_TOKENS_VERSION = 0


class LoginState(Enum):
    NEW = auto()  # nothing received
    HANDSHAKE = auto()  # ApiVersions is answered
    TOKENS = auto()  # a mechanism is chosen
    RAW_TOKENS = auto()  # the same, by a handshake of version 0
    COMPLETE = auto()
    TOKENS_AGAIN = auto()  # logged in, and a re-authentication has begun
    FAILED = auto()


EXPECTED: Mapping[LoginState, frozenset[int]] = {
    LoginState.NEW: frozenset({API_VERSIONS, SASL_HANDSHAKE}),
    LoginState.HANDSHAKE: frozenset({SASL_HANDSHAKE}),
    LoginState.TOKENS: frozenset({SASL_AUTHENTICATE, SASL_HANDSHAKE}),
    LoginState.RAW_TOKENS: frozenset(),
    LoginState.TOKENS_AGAIN: frozenset({SASL_AUTHENTICATE, SASL_HANDSHAKE}),
    LoginState.FAILED: frozenset(),
}
"""API keys of the requests that a state allows; all after the login is complete."""


class Mechanism(NamedTuple):
    """An enabled mechanism of a listener."""

    begin: Callable[[], ServerExchange]
    max_lifetime_ms: int = 0
    """connections.max.reauth.ms; 0: a session never expires by itself."""


class HandshakeAnswer(NamedTuple):
    error_code: int
    mechanisms: tuple[str, ...] = ()


class TokenAnswer(NamedTuple):
    """Response to a token; `reason` is for the log, and never has a secret in it."""

    auth_bytes: bytes = b""
    error_code: int = NO_ERROR
    error_message: str = ""
    lifetime_ms: int = 0
    reason: str = ""

    @property
    def is_failure(self) -> bool:
        return self.error_code != NO_ERROR


class ServerLogin:
    def __init__(self, mechanisms: Mapping[str, Mechanism]) -> None:
        self._mechanisms = mechanisms
        self.state = LoginState.NEW
        self.mechanism = ""
        self.user = ""
        """Logged in, or claimed while the login goes on."""
        self.expires_at_ms: int | None = None
        self._exchange: ServerExchange | None = None
        self._refusal_of_mechanism: str | None = None
        self._principal: str | None = None
        self._reauthenticated_at_ms: int | None = None

    @property
    def is_logged_in(self) -> bool:
        return self._principal is not None and self.state is not LoginState.FAILED

    def refusal(self, api_key: int, now_ms: int) -> str | None:
        """Why the connection must be closed instead of serving this request; None: serve it."""
        if self.state is LoginState.COMPLETE:
            if api_key == SASL_HANDSHAKE or self.expires_at_ms is None or now_ms < self.expires_at_ms:
                return None
            return "the session has expired (connections.max.reauth.ms)"
        if api_key in EXPECTED[self.state]:
            return None
        stage = "handshake" if self.state in (LoginState.NEW, LoginState.HANDSHAKE) else "authentication"
        return f"unexpected request with API key {api_key} during SASL {stage}"

    def on_api_versions(self) -> None:
        """ApiVersions is answered without an error."""
        if self.state is LoginState.NEW:
            self.state = LoginState.HANDSHAKE

    def on_handshake(self, mechanism: str, version: int, now_ms: int) -> HandshakeAnswer:
        if self.state in (LoginState.TOKENS, LoginState.TOKENS_AGAIN):  # as in Kafka, answered before the login fails
            self.state = LoginState.FAILED
            return HandshakeAnswer(IllegalSaslState.code)
        is_reauthentication = self.is_logged_in
        if is_reauthentication and not self._may_reauthenticate(now_ms):
            return HandshakeAnswer(IllegalSaslState.code)
        enabled = tuple(self._mechanisms)
        if mechanism not in self._mechanisms:
            self.state = LoginState.FAILED
            return HandshakeAnswer(UnsupportedSaslMechanism.code, enabled)
        if is_reauthentication and mechanism != self.mechanism:
            self._refusal_of_mechanism = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism"
                f" '{self.mechanism}'"
            )
        if is_reauthentication:
            self._reauthenticated_at_ms = now_ms
        else:
            self.mechanism = mechanism
        self._exchange = self._mechanisms[mechanism].begin()
        if is_reauthentication:
            self.state = LoginState.TOKENS_AGAIN
        else:
            self.state = LoginState.RAW_TOKENS if version == RAW_TOKENS_VERSION else LoginState.TOKENS
        return HandshakeAnswer(NO_ERROR, enabled)

    def _may_reauthenticate(self, now_ms: int) -> bool:
        """Only where sessions expire, and once per second."""
        last = self._reauthenticated_at_ms
        return self.expires_at_ms is not None and (last is None or now_ms - last >= MIN_REAUTHENTICATION_INTERVAL_MS)

    def on_token(self, token: bytes, now_ms: int) -> TokenAnswer:
        if self.state not in (LoginState.TOKENS, LoginState.TOKENS_AGAIN, LoginState.RAW_TOKENS):
            message = "SaslAuthenticate request received after successful authentication"
            return TokenAnswer(error_code=IllegalSaslState.code, error_message=message, reason=message)
        exchange = self._exchange
        assert exchange is not None
        try:
            if self._refusal_of_mechanism is not None:
                raise SaslFailure(self._refusal_of_mechanism, is_for_client=True)
            response = exchange.evaluate(token, now_ms)
            lifetime_ms = self._complete(exchange, now_ms) if exchange.is_complete else 0
        except SaslFailure as failure:
            return self._fail(failure, exchange)
        return TokenAnswer(response, lifetime_ms=lifetime_ms)

    def _complete(self, exchange: ServerExchange, now_ms: int) -> int:
        """Returns the lifetime of the session. Raises SaslFailure."""
        if self._principal is not None and exchange.user != self._principal:
            raise SaslFailure(
                f"Cannot change principals during re-authentication from User.{self._principal}: User.{exchange.user}",
                is_for_client=True,
            )
        lifetimes_ms = [] if exchange.expires_at_ms is None else [max(0, exchange.expires_at_ms - now_ms)]
        if self._mechanisms[self.mechanism].max_lifetime_ms > 0:
            lifetimes_ms.append(self._mechanisms[self.mechanism].max_lifetime_ms)
        lifetime_ms = min(lifetimes_ms, default=0)
        self.expires_at_ms = now_ms + lifetime_ms if lifetimes_ms else None
        self._principal = self.user = exchange.user
        self._exchange, self.state = None, LoginState.COMPLETE
        return lifetime_ms

    def _fail(self, failure: SaslFailure, exchange: ServerExchange) -> TokenAnswer:
        kind = "re-authentication" if self._principal is not None else "authentication"
        self.user = exchange.user or self.user
        self._exchange, self.state = None, LoginState.FAILED
        message = failure.reason_for_client or (
            f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {self.mechanism}"
        )
        return TokenAnswer(b"", SaslAuthenticationFailed.code, message, reason=str(failure))

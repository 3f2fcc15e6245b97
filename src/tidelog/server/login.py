"""Login of one connection (SASL): performs what `sasl/server_login.py` decides."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from tidelog.config.principal_mapping import NoMatchingRule
from tidelog.errors import IllegalSaslState
from tidelog.protocol.apis import API_KEYS, API_VERSIONS_KEY
from tidelog.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeResponse
from tidelog.runtime.clock import Clock
from tidelog.runtime.deferred import Deferred
from tidelog.runtime.network import Channel
from tidelog.sasl.server_login import LoginState, Mechanism, ServerLogin
from tidelog.server.audit_log import AuditLog
from tidelog.server.session import USER, Principal, Session

MAX_PENDING_LOGINS = 1000
"""Connections that have not logged in. A further one replaces the oldest of the host that has the most of them."""

LOGIN_TIMEOUT_S = 30.0
"""A connection that has not logged in after this time is closed."""

MAX_DELAYED_FAILURES = 1000
"""Failed logins whose response is held back. Further ones are closed at once, without a response."""


class Peer(Protocol):
    """The connection that logs in, or shows a certificate."""

    channel: Channel
    session: Session
    login: "Login | CertificateName | None"


class SaslListener(NamedTuple):
    """SASL of one listener."""

    name: str
    mechanisms: Mapping[str, Mechanism]
    max_receive_bytes: int
    max_frame_bytes: int
    """After the login."""
    failure_delay_s: float


class Logins:
    """All connections of a broker that have not logged in, and failed logins that wait for their response."""

    def __init__(self, clock: Clock, audit: AuditLog) -> None:
        self.clock = clock
        self.audit = audit
        self.delayed_failures = 0
        self._pending: dict[Login, float] = {}
        """With their start, oldest first."""
        self._by_host: dict[str, dict[Login, None]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def begin(self, peer: Peer, listener: SaslListener) -> "Login":
        if len(self._pending) >= MAX_PENDING_LOGINS:
            self._close_one()
        login = Login(peer, listener, self)
        self._pending[login] = self.clock.monotonic()
        self._by_host.setdefault(login.host, {})[login] = None
        return login

    def end(self, login: "Login") -> None:
        if self._pending.pop(login, None) is None:
            return
        of_host = self._by_host[login.host]
        del of_host[login]
        if not of_host:
            del self._by_host[login.host]

    def _close_one(self) -> None:
        """Not simply the oldest: one host that opens many would push out slow logins of all others."""
        most = max(self._by_host.values(), key=len)
        oldest = next(iter(most))
        self.end(oldest)
        oldest.close("too many connections have not logged in")

    def close_late(self, now: float) -> None:
        """Close connections that have not logged in for LOGIN_TIMEOUT_S."""
        for login in [each for each, since in self._pending.items() if since <= now - LOGIN_TIMEOUT_S]:
            login.close(f"no login after {LOGIN_TIMEOUT_S:g} s")


class CertificateName:
    """Check of the name in a certificate, on a listener without SASL whose rules do not name every peer.

    A peer without a name is not served. Stays with a connection until its first request: then the TLS handshake is
    complete.
    """

    __slots__ = ("_audit", "_peer")

    def __init__(self, peer: Peer, audit: AuditLog) -> None:
        self._peer = peer
        self._audit = audit

    def admits(self, _: memoryview) -> bool:
        peer = self._peer
        peer.login = None
        channel, session = peer.channel, peer.session
        try:
            session.name_peer()
        except NoMatchingRule as error:
            self._audit.login_failed(
                host=channel.peer_host,
                listener=session.listener,
                mechanism="",
                user=channel.peer_subject or "",
                reason=str(error),
            )
            channel.close(str(error))
            return False
        return True

    def on_closed(self) -> None: ...


class Login:
    """Stays with a connection until the login is complete, or, where sessions expire, until its end."""

    __slots__ = ("_core", "_is_closed", "_listener", "_logins", "_peer")

    def __init__(self, peer: Peer, listener: SaslListener, logins: Logins) -> None:
        self._peer = peer
        self._listener = listener
        self._logins = logins
        self._is_closed = False
        self._core = ServerLogin(listener.mechanisms)
        peer.channel.limit_frames(listener.max_receive_bytes)

    def admits(self, frame: memoryview) -> bool:
        """Whether to serve the request. If not, it was a token without a header, or the connection is closed."""
        core = self._core
        if len(frame) > self._listener.max_receive_bytes and not core.is_logged_in:
            self._refuse("the request is larger than sasl.server.max.receive.size")
            return False
        if core.state is LoginState.RAW_TOKENS:
            self._on_raw_token(bytes(frame))
            return False
        api_key = int.from_bytes(frame[:2], "big", signed=True)
        refusal = core.refusal(api_key, self._logins.clock.now_ms())
        if refusal is not None:
            self._refuse(refusal)
            return False
        if api_key == API_VERSIONS_KEY and int.from_bytes(frame[2:4], "big") in API_KEYS[API_VERSIONS_KEY].versions:
            core.on_api_versions()
        return True

    @property
    def host(self) -> str:
        return self._peer.channel.peer_host

    # ---- requests

    def handshake(self, mechanism: str, version: int) -> "SaslHandshakeResponse | Deferred[Any]":
        answer = self._core.on_handshake(mechanism, version, self._logins.clock.now_ms())
        response = SaslHandshakeResponse(error_code=answer.error_code, mechanisms=list(answer.mechanisms))
        if self._core.state is not LoginState.FAILED:
            return response
        is_second = answer.error_code == IllegalSaslState.code
        self._log_failure("a second handshake" if is_second else "mechanism is not enabled")
        return self._late(response)

    def authenticate(self, token: bytes) -> "SaslAuthenticateResponse | Deferred[Any]":
        answer = self._core.on_token(token, self._logins.clock.now_ms())
        response = SaslAuthenticateResponse(
            error_code=answer.error_code,
            error_message=answer.error_message,
            auth_bytes=answer.auth_bytes,
            session_lifetime_ms=answer.lifetime_ms,
        )
        if self._core.state is LoginState.FAILED:
            self._log_failure(answer.reason)
            return self._late(response)
        self._complete_if_done()
        return response

    def _on_raw_token(self, token: bytes) -> None:
        answer = self._core.on_token(token, self._logins.clock.now_ms())
        if answer.is_failure:
            self._log_failure(answer.reason)
            self._peer.channel.pause_reading()
            self._delay(lambda: self.close("login failed"))
            return
        self._peer.channel.send([answer.auth_bytes])
        self._complete_if_done()

    def _complete_if_done(self) -> None:
        core, peer = self._core, self._peer
        if core.state is not LoginState.COMPLETE:
            return
        peer.session.authenticate(Principal(USER, core.user))
        peer.channel.limit_frames(self._listener.max_frame_bytes)
        self._logins.end(self)
        if core.expires_at_ms is None:
            peer.login = None

    # ---- failures

    def _late(self, response: Any) -> "Deferred[Any]":
        """The response after connection.failed.authentication.delay.ms, and then the end of the connection."""
        deferred: Deferred[Any] = Deferred()
        self._peer.channel.pause_reading()
        self._delay(partial(self._fail, deferred, response))
        return deferred

    def _fail(self, deferred: "Deferred[Any]", response: Any) -> None:
        if not self._is_closed:
            deferred.resolve(response)
            asyncio.get_running_loop().call_soon(self.close, "login failed")

    def _delay(self, finish: Callable[[], None]) -> None:
        logins, loop = self._logins, asyncio.get_running_loop()
        if logins.delayed_failures >= MAX_DELAYED_FAILURES:
            loop.call_soon(self.close, "login failed")
            return
        logins.delayed_failures += 1

        def done() -> None:
            logins.delayed_failures -= 1
            finish()

        loop.call_later(self._listener.failure_delay_s, done)

    def _refuse(self, reason: str) -> None:
        self._log_failure(reason)
        self.close(reason)

    def _log_failure(self, reason: str) -> None:
        self._logins.audit.login_failed(
            host=self.host,
            listener=self._listener.name,
            mechanism=self._core.mechanism,
            user=self._core.user,
            reason=reason,
        )

    def close(self, reason: str) -> None:
        self._peer.channel.close(reason)

    def on_closed(self) -> None:
        self._is_closed = True
        self._logins.end(self)

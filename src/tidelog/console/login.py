"""Login to the console with credentials of the cluster: a session acts with the permissions of its user."""

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.client.network.bootstrap import Address
from tidelog.client.network.in_flight import LoginFailed
from tidelog.client.network.secured_network import resolved_network
from tidelog.client.routing.cluster import Cluster
from tidelog.config.client import (
    MECHANISM,
    PASSWORD,
    PROTOCOL,
    USERNAME,
    BadClientSettings,
    ClientSecurity,
    ResolvedSecurity,
)
from tidelog.config.listeners import TLS_PROTOCOLS
from tidelog.config.sasl import JAAS_CONFIG, OAUTHBEARER, SASL_PROTOCOLS
from tidelog.console.sessions import FailedLogins, Session, Sessions
from tidelog.console.workspace import Workspace
from tidelog.runtime.randomness import SystemRandomness

logger = logging.getLogger(__name__)

MAX_FRAME_BYTES = 256 * 1024 * 1024
SWEEP_INTERVAL_S = 30.0
MAX_CREDENTIAL_CHARACTERS = 1024


class WrongCredentials(Exception):
    """The cluster refused the login."""


class TooManyFailures(Exception):
    """Too many failed logins from one address. The message says when it may try again."""


class LoginSettings(NamedTuple):
    bootstrap: Sequence[Address]
    security: ResolvedSecurity
    """Protocol, mechanism and TLS, without a user."""


def login_settings(bootstrap: Sequence[Address], security: ClientSecurity) -> LoginSettings:
    """Settings without the user and password of the console itself. Raises BadClientSettings."""
    given = {name: value for name, value in security.settings if name not in (JAAS_CONFIG, USERNAME, PASSWORD)}
    protocol = given.get(PROTOCOL, "PLAINTEXT").strip().upper()
    mechanism = given.pop(MECHANISM, "").upper()
    if protocol not in SASL_PROTOCOLS or not mechanism:
        raise BadClientSettings(
            f"--login needs {PROTOCOL} (SASL_SSL or SASL_PLAINTEXT) and {MECHANISM} in the file of --command-config"
        )
    if mechanism == OAUTHBEARER:
        raise BadClientSettings("--login takes a user and a password: PLAIN or SCRAM, not OAUTHBEARER")
    given[PROTOCOL] = "SSL" if protocol in TLS_PROTOCOLS else "PLAINTEXT"
    transport = ClientSecurity(tuple(given.items())).resolve()
    return LoginSettings(bootstrap, transport._replace(protocol=protocol, mechanism=mechanism))


class Logins:
    """Sessions of logged-in users, each with a connection to the cluster under its own name."""

    def __init__(self, settings: LoginSettings) -> None:
        self._settings = settings
        self._sessions: Sessions[Workspace] = Sessions()
        self._failures = FailedLogins()

    def find(self, secret: str | None) -> Session[Workspace] | None:
        return self._sessions.find(secret, time.monotonic())

    async def log_in(self, user: str, password: str, address: str) -> str:
        """Returns the secret of the new session. Raises WrongCredentials, TooManyFailures or a client error."""
        wait_s = self._failures.blocked_for_s(address, time.monotonic())
        if wait_s:
            raise TooManyFailures(f"too many failed logins; try again in {wait_s:.0f} s")
        if not user or max(len(user), len(password)) > MAX_CREDENTIAL_CHARACTERS:
            raise WrongCredentials("a user and a password are needed")
        # Counted as a failure before the cluster answers, so that concurrent attempts are limited, too.
        self._failures.note(address, time.monotonic())
        workspace = Workspace(await self._connected(user, password))
        self._failures.clear(address)
        secret = secrets.token_urlsafe(32)
        workspace.start()
        self._end(self._sessions.open(secret, user, workspace, time.monotonic()))
        return secret

    async def _connected(self, user: str, password: str) -> Cluster:
        # Not as settings, which resolve placeholders such as ${env:NAME}: this text is untrusted.
        options = {"username": user, "password": password}
        network = resolved_network(self._settings.security._replace(options=options), MAX_FRAME_BYTES)
        cluster = Cluster(network, self._settings.bootstrap, SystemRandomness())
        try:
            await cluster.refresh()
        except LoginFailed as failed:
            cluster.close()
            logger.warning("login refused user=%r reason=%s", user, failed)
            raise WrongCredentials("the cluster does not accept this user and password") from None
        except BaseException:
            cluster.close()
            raise
        return cluster

    def log_out(self, secret: str) -> None:
        ended = self._sessions.close(secret)
        self._end([] if ended is None else [ended])

    async def run(self) -> None:
        """Close expired sessions periodically; all sessions when it is cancelled."""
        try:
            while True:
                await asyncio.sleep(SWEEP_INTERVAL_S)
                now_s = time.monotonic()
                for session in self._sessions.all():
                    if session.content.observer.is_watched:  # a page is open, though it sends no requests
                        session.used_s = now_s
                self._end(self._sessions.end_expired(now_s))
        finally:
            self._end(self._sessions.end_all())

    def _end(self, sessions: Sequence[Session[Workspace]]) -> None:
        for session in sessions:
            session.content.close()

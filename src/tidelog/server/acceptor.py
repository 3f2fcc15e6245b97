"""Listeners of a broker, and the connections that they accept (Acceptor)."""

import asyncio
import logging

from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import Endpoint
from tidelog.config.principal_mapping import PrincipalMapper
from tidelog.runtime.network import Channel, FrameReceiver, Listener
from tidelog.server.audit_log import AuditLog
from tidelog.server.connection import Connection, ConnectionRegistry
from tidelog.server.dispatch import Dispatcher
from tidelog.server.login import CertificateName, Logins
from tidelog.server.sasl_listeners import SaslListeners
from tidelog.server.seams import Seams
from tidelog.server.session import Session
from tidelog.server.user_credentials import UserCredentials

logger = logging.getLogger(__name__)

IDLE_CHECKS_PER_LIMIT = 10
MIN_IDLE_CHECK_S = 0.1
UNREAD_CHECK_S = 1.0
LOGIN_CHECK_S = 1.0
DRAIN_S = 1.0
DRAIN_POLL_S = 0.01


class CannotListen(OSError):
    """An address cannot be bound. The message is one sentence for the operator."""


class Acceptor:
    """Binds the listeners first, so that a taken address stops the start, and accepts connections last."""

    dispatcher: Dispatcher
    """Takes the requests of all connections. Set before `start`."""

    def __init__(self, settings: BrokerSettings, seams: Seams) -> None:
        self._settings = settings
        self._listeners_of_brokers = {settings.inter_broker_listener, settings.control_plane_listener}
        self._network = seams.network
        self._clock = seams.clock
        self._tls = seams.tls
        self._workers = seams.workers
        self.credentials = UserCredentials()
        self._sasl = SaslListeners(settings, self.credentials, seams.randomness)
        self.logins = Logins(seams.clock, AuditLog())
        self._mappers = _mappers(settings)
        self.listeners: list[Listener] = []
        self.registry = ConnectionRegistry(settings)

    def use_scram_secret(self, secret: bytes) -> None:
        self._sasl.scram_secret = secret

    async def bind(self) -> None:
        for keys in self._sasl.token_keys:
            await keys.load(self._workers)
        for endpoint in self._settings.endpoints:
            self.listeners.append(await self._bind(endpoint))

    async def _bind(self, endpoint: Endpoint) -> Listener:
        def accept(channel: Channel) -> FrameReceiver | None:
            return self.accept(channel, endpoint.listener_name)

        try:
            tls = self._tls.get(endpoint.listener_name)
            return await self._network.listen(endpoint.host, endpoint.port, accept, tls)
        except OSError as error:
            raise CannotListen(
                f"cannot listen on {endpoint.host}:{endpoint.port}: {error.strerror or error};"
                " choose another address with --set listeners=PLAINTEXT://HOST:PORT"
            ) from error

    def reconfigure(self, settings: BrokerSettings) -> None:
        """New connections get the limits, certificates and mechanisms of the new settings."""
        self.registry.reconfigure(settings)
        self._sasl.reconfigure(settings)
        for name, tls in self._tls.items():
            tls.reconfigure(settings.for_listener(name))

    @property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """An empty host becomes the machine's name, port 0 the port that was bound."""
        bound = {
            endpoint.listener_name: listener
            for endpoint, listener in zip(self._settings.endpoints, self.listeners, strict=True)
        }
        found = []
        for endpoint in self._settings.advertised_endpoints:
            listener = bound.get(endpoint.listener_name)
            port = endpoint.port or (listener.port if listener else 0)
            found.append(endpoint._replace(host=endpoint.host or self._network.host_name(), port=port))
        return tuple(found)

    def start(self) -> None:
        for listener in self.listeners:
            listener.start()

    @property
    def _has_listener_for_clients(self) -> bool:
        return any(each.listener_name not in self._listeners_of_brokers for each in self._settings.endpoints)

    def accept(self, channel: Channel, listener_name: str) -> FrameReceiver | None:
        """Accept a new connection, or return None to refuse it."""
        is_inter_broker = listener_name in self._listeners_of_brokers
        is_only_for_brokers = is_inter_broker and self._has_listener_for_clients
        rejection = self.registry.rejection(channel.peer_host, listener_name, is_only_for_brokers=is_only_for_brokers)
        if rejection is not None:
            if self.registry.peer_errors.should_log(channel.peer_host):
                logger.warning("connection refused peer=%s reason=%s", channel.peer_host, rejection)
            return None
        rates, now_s = self.registry.rates, self._clock.monotonic()
        if rates.is_active:
            wait_s = rates.record_for_address(channel.peer_host, now_s)
            if wait_s > 0:
                return _Refused(channel, wait_s)
        session = Session(
            channel,
            listener_name,
            self._mappers[listener_name],
            is_inter_broker=is_inter_broker,
            is_only_for_brokers=is_only_for_brokers,
        )
        connection = Connection(channel, self.dispatcher, self.registry, session)
        self.registry.add(connection)
        if rates.is_active and not is_inter_broker:
            wait_s = rates.record_for_listener(listener_name, now_s)
            if wait_s > 0:
                connection.mute(wait_s)
        sasl = self._sasl.get(listener_name)
        if sasl is not None:
            connection.login = self.logins.begin(connection, sasl)
        elif not self._mappers[listener_name].names_everybody:
            connection.login = CertificateName(connection, self.logins.audit)
        return connection

    async def close_idle_connections(self) -> None:
        """Background work: close connections without activity for `connections.max.idle.ms`."""
        limit_s = self._settings.connections_max_idle_ms / 1000
        if limit_s < 0:
            return
        while True:
            await asyncio.sleep(max(limit_s / IDLE_CHECKS_PER_LIMIT, MIN_IDLE_CHECK_S))
            self.registry.close_idle(self._clock.monotonic() - limit_s)

    async def close_unread_connections(self) -> None:
        """Background work: close connections whose clients do not read, while their responses hold much memory."""
        while True:
            await asyncio.sleep(UNREAD_CHECK_S)
            self.registry.close_unread(self._clock.monotonic())

    async def close_late_logins(self) -> None:
        """Background work: close connections that do not log in."""
        while self._settings.sasl_endpoints:
            await asyncio.sleep(LOGIN_CHECK_S)
            self.logins.close_late(self._clock.monotonic())

    async def refresh_token_keys(self) -> None:
        """Background work: read the keys of tokens again."""
        await asyncio.gather(*(keys.run(self._workers) for keys in self._sasl.token_keys))

    def close_listeners(self) -> None:
        """Accept no new connections; existing ones stay."""
        for listener in self.listeners:
            listener.close()

    async def close_connections(self) -> None:
        """Wait briefly for responses that are being sent, not for fetches that wait for data. Then close all."""
        deadline = self._clock.monotonic() + DRAIN_S
        while self.registry.has_unsent_answers and self._clock.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_POLL_S)
        self.registry.close_all("broker is shutting down")


class _Refused:
    """A connection of an address that connects too often: nothing is read, and it is closed after a while.

    Closed at once, the client would connect again at once.
    """

    def __init__(self, channel: Channel, wait_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            wait_s, channel.close, "connection_creation_rate is exceeded"
        )
        asyncio.get_running_loop().call_soon(channel.pause_reading)

    def on_frame(self, frame: memoryview) -> None: ...

    def on_frames_done(self) -> None: ...

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None:
        self._timer.cancel()


def _mappers(settings: BrokerSettings) -> dict[str, PrincipalMapper]:
    """By listener: the names of principals in certificates."""
    return {
        each.listener_name: PrincipalMapper(settings.for_listener(each.listener_name).ssl_principal_mapping_rules)
        for each in settings.endpoints
    }

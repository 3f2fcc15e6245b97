"""Connection to one partition leader, with reconnects and exponential backoff."""

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from tidelog.client.network.bootstrap import Address
from tidelog.client.network.broker_connection import BrokerConnection
from tidelog.client.network.connection import ClientConnection, ConnectionLost
from tidelog.config.broker import BrokerSettings
from tidelog.protocol.structs import Request, Response
from tidelog.replication.assignment import LeaderAddress
from tidelog.replication.follower import backoff_ms
from tidelog.replication.quota import ReplicationQuota
from tidelog.runtime.clock import Clock
from tidelog.runtime.network import Network
from tidelog.types import BrokerId

logger = logging.getLogger(__name__)


class FetchingBroker(NamedTuple):
    """Identity, settings and seams of the broker that fetches."""

    broker_id: BrokerId
    broker_epoch: Callable[[], int]
    network: Network
    clock: Clock
    settings: Callable[[], BrokerSettings]
    quota: ReplicationQuota
    """Of throttled replicas that this broker fetches (R24)."""


class LeaderLink:
    """Reports connects and disconnects to its owner. The backoff grows with each failure in a row."""

    def __init__(
        self,
        broker: FetchingBroker,
        address: LeaderAddress,
        client_id: str,
        on_connected: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._broker = broker
        self.address = address
        self.client_id = client_id
        self._on_connected = on_connected
        self._on_lost = on_lost
        self._kept = BrokerConnection(broker.network, client_id, lambda: Address(self.address.host, self.address.port))
        self.connection: ClientConnection | None = None
        """Set while connected, after the owner was notified."""
        self.failures = 0
        """Failures in a row; the owner resets it to 0 after a response."""
        self.lost_at = -inf
        """When the leader closed the connection; -inf while connected."""
        self._sent_at = 0.0
        self._hurry = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._keep_connected())

    # ---- requests

    @property
    def is_free(self) -> bool:
        """Connected, with no request in flight."""
        return self.connection is not None and not self.connection.requests_in_flight

    def version_of(self, request_type: type[Request]) -> int:
        assert self.connection is not None
        return self.connection.version_of(request_type)

    def send(self, request: Request, on_response: Callable[[Response], None]) -> None:
        assert self.connection is not None
        self._sent_at = self._broker.clock.monotonic()
        self.connection.send(request, on_response, _leave_it_to_on_closed)

    # ---- connection

    def hurry(self) -> None:
        """End a backoff early, because there is something new to fetch."""
        self._hurry.set()

    def retarget(self, address: LeaderAddress) -> None:
        """Reconnect to the leader's new address."""
        self._task.cancel()
        self._drop("the leader has a new address")
        self.address = address
        self.failures = 0
        self._task = asyncio.get_running_loop().create_task(self._keep_connected())

    async def close(self) -> None:
        self._task.cancel()
        self._drop("the fetcher was closed")
        await asyncio.gather(self._task, return_exceptions=True)

    def _drop(self, reason: str) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.on_closed = None
            connection.close(reason)
            self._on_lost()

    async def _keep_connected(self) -> None:
        while True:
            try:
                await self._use_one_connection()
            except ConnectionLost as lost:
                await self._pause(str(lost))
            except Exception as error:
                logger.exception("fetcher failed fetcher=%s leader=%d", self.client_id, self.address.broker_id)
                self._drop("the fetcher failed")
                await self._pause(repr(error))

    async def _use_one_connection(self) -> None:
        """Connect and stay connected. Raises ConnectionLost when the connection ends."""
        broker_id, host, port = self.address
        connection = await self._kept.connected(self._timeout_s())
        logger.info("fetcher connected fetcher=%s leader=%d address=%s:%d", self.client_id, broker_id, host, port)
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_closed(reason: str) -> None:
            self.lost_at = self._broker.clock.monotonic()
            lost.set_result(reason)

        connection.on_closed = on_closed
        self.connection = connection
        self.lost_at = -inf
        self._sent_at = self._broker.clock.monotonic()
        self._on_connected()
        while not lost.done():
            await asyncio.wait([lost], timeout=self._remaining_s())
            if not lost.done() and self._remaining_s() <= 0:
                connection.on_closed = lost.set_result
                connection.close("the leader did not answer for replica.socket.timeout.ms")
        self.connection = None
        self._on_lost()
        raise ConnectionLost(lost.result())

    def _timeout_s(self) -> float:
        return self._broker.settings().replica_socket_timeout_ms / 1000

    def _remaining_s(self) -> float:
        """Time until the response is overdue."""
        if self.is_free:
            return self._timeout_s()
        return self._sent_at + self._timeout_s() - self._broker.clock.monotonic()

    async def _pause(self, reason: str) -> None:
        self.failures += 1
        delay_ms = backoff_ms(self.failures, self._broker.settings().replica_fetch_backoff_ms)
        logger.log(
            logging.WARNING if self.failures == 1 else logging.DEBUG,
            "fetcher lost connection to leader fetcher=%s leader=%d failures=%d retry_in_ms=%d reason=%s",
            self.client_id,
            self.address.broker_id,
            self.failures,
            delay_ms,
            reason,
        )
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await self._hurry.wait()
        except TimeoutError:
            pass
        self._hurry.clear()


def _leave_it_to_on_closed(lost: ConnectionLost) -> None: ...

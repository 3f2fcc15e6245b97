"""A connection to one leader that is made again whenever it is lost."""

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
from tidelog.runtime.clock import Clock
from tidelog.runtime.network import Network
from tidelog.types import BrokerId

logger = logging.getLogger(__name__)


class FetchingBroker(NamedTuple):
    """Who fetches, and by which means."""

    broker_id: BrokerId
    broker_epoch: Callable[[], int]
    network: Network
    clock: Clock
    settings: Callable[[], BrokerSettings]


class LeaderLink:
    """Tells its owner when it is connected and when no longer; waits longer after each failure in a row."""

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
        """While it is connected, and the owner knows it."""
        self.failures = 0
        """In a row; the owner sets it to 0 when the leader has answered."""
        self.lost_at = -inf
        """When the leader ended the connection, until there is another one."""
        self._sent_at = 0.0
        self._hurry = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._keep_connected())

    # ---- asking

    @property
    def is_free(self) -> bool:
        """Connected, and no answer is awaited."""
        return self.connection is not None and not self.connection.requests_in_flight

    def version_of(self, request_type: type[Request]) -> int:
        assert self.connection is not None
        return self.connection.version_of(request_type)

    def send(self, request: Request, on_answer: Callable[[Response], None]) -> None:
        assert self.connection is not None
        self._sent_at = self._broker.clock.monotonic()
        self.connection.send(request, on_answer, _leave_it_to_on_closed)

    # ---- connecting

    def hurry(self) -> None:
        """There is something new to ask: end a wait after failures."""
        self._hurry.set()

    def retarget(self, address: LeaderAddress) -> None:
        """The leader has another address now."""
        self._task.cancel()
        self._drop("the leader has another address now")
        self.address = address
        self.failures = 0
        self._task = asyncio.get_running_loop().create_task(self._keep_connected())

    async def close(self) -> None:
        self._task.cancel()
        self._drop("nothing is fetched any more")
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
        """Raises ConnectionLost at its end."""
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
        """Until an answer is overdue."""
        if self.is_free:
            return self._timeout_s()
        return self._sent_at + self._timeout_s() - self._broker.clock.monotonic()

    async def _pause(self, reason: str) -> None:
        self.failures += 1
        delay_ms = backoff_ms(self.failures, self._broker.settings().replica_fetch_backoff_ms)
        logger.log(
            logging.WARNING if self.failures == 1 else logging.DEBUG,
            "fetcher lost its leader fetcher=%s leader=%d failures=%d retry_in_ms=%d reason=%s",
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

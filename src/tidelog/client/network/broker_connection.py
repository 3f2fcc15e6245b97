"""Persistent connection to one broker: opened on demand, reopened if it was lost or the broker has moved."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tidelog.client.network.bootstrap import Address
from tidelog.client.network.connection import ClientConnection, ConnectionLost
from tidelog.errors import UnsupportedVersion
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.network import Network

ResponseT = TypeVar("ResponseT", bound=Response)

CONNECT_TIMEOUT_S = 10.0


class BrokerConnection:
    """Shared by all users of this broker; requests are pipelined.

    Owners add the rest: order of control requests, one Fetch in flight, retries and backoff.
    """

    def __init__(
        self,
        network: Network,
        client_id: str,
        address: Callable[[], Address],
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        """`address` returns the current address of the broker, or raises ConnectionLost."""
        self._network = network
        self._client_id = client_id
        self._address = address
        self._connect_timeout_s = connect_timeout_s
        self._opening = asyncio.Lock()
        self._connection: ClientConnection | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.is_closed

    async def connected(self, timeout_s: float | None = None) -> ClientConnection:
        """Raises ConnectionLost."""
        connection = self._usable()
        if connection is not None:
            return connection
        async with self._opening:
            return self._usable() or await self._open(self._connect_timeout_s if timeout_s is None else timeout_s)

    def _usable(self) -> ClientConnection | None:
        connection, address = self._connection, self._address()
        if connection is None or connection.is_closed or (connection.host, connection.port) != address:
            return None
        return connection

    async def _open(self, timeout_s: float) -> ClientConnection:
        self.close("the address of the broker has changed")
        self._connection = await ClientConnection.open(
            self._network, *self._address(), self._client_id, timeout_s=timeout_s
        )
        return self._connection

    async def ask(self, request: Request, response_type: type[ResponseT], timeout_s: float) -> ResponseT:
        """Raises ConnectionLost for any reason without a response."""
        connection = await self.connected()
        try:
            return await connection.ask(request, response_type, timeout_s=timeout_s)
        except UnsupportedVersion as error:
            raise ConnectionLost(error.message or str(error)) from error

    def close(self, reason: str = "no longer needed") -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(reason)

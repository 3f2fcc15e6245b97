"""The connections of one client: one to each broker, opened when needed and again when lost; and some to borrow."""

import asyncio

from tidelog.client.bootstrap import Address
from tidelog.client.connection import ClientConnection
from tidelog.runtime.network import Network

CONNECT_TIMEOUT_S = 10.0
MAX_SPARE_PER_BROKER = 4


class Connections:
    def __init__(self, network: Network, client_id: str, *, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self._network = network
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self._open: dict[Address, ClientConnection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}

    def is_open(self, address: Address) -> bool:
        connection = self._open.get(address)
        return connection is not None and not connection.is_closed

    async def to(self, address: Address) -> ClientConnection:
        """Shared by everybody who asks; raises ConnectionLost."""
        if self.is_open(address):
            return self._open[address]
        async with self._opening.setdefault(address, asyncio.Lock()):
            if not self.is_open(address):
                self._open[address] = await ClientConnection.open(
                    self._network, *address, self._client_id, timeout_s=self._connect_timeout_s
                )
        return self._open[address]

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()


class SpareConnections:
    """To be borrowed by one at a time, for requests that a broker may hold back."""

    def __init__(self, network: Network, client_id: str) -> None:
        self._network = network
        self._client_id = client_id
        self._spare: dict[Address, list[ClientConnection]] = {}

    async def take(self, address: Address) -> ClientConnection:
        """Raises ConnectionLost."""
        spare = self._spare.get(address, [])
        while spare:
            connection = spare.pop()
            if not connection.is_closed:
                return connection
        return await ClientConnection.open(self._network, *address, self._client_id, timeout_s=CONNECT_TIMEOUT_S)

    def give_back(self, connection: ClientConnection) -> None:
        """One that still waits for an answer is of no use to the next."""
        spare = self._spare.setdefault(Address(connection.host, connection.port), [])
        if connection.is_closed or connection.requests_in_flight or len(spare) >= MAX_SPARE_PER_BROKER:
            connection.close()
        else:
            spare.append(connection)

    def close(self) -> None:
        for spare in self._spare.values():
            for connection in spare:
                connection.close()
        self._spare.clear()

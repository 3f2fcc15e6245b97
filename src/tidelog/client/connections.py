"""The connections of one client: one to each broker, opened when needed and again when lost."""

import asyncio

from tidelog.client.bootstrap import Address
from tidelog.client.connection import ClientConnection
from tidelog.runtime.network import Network

CONNECT_TIMEOUT_S = 10.0


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

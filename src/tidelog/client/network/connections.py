"""Connections of one client: a shared one to each broker, and spare ones for exclusive use."""

from tidelog.client.network.bootstrap import Address
from tidelog.client.network.broker_connection import CONNECT_TIMEOUT_S, BrokerConnection
from tidelog.client.network.connection import ClientConnection
from tidelog.runtime.network import Network

MAX_SPARE_PER_BROKER = 4


class Connections:
    def __init__(self, network: Network, client_id: str) -> None:
        self._network = network
        self._client_id = client_id
        self._by_address: dict[Address, BrokerConnection] = {}

    def is_open(self, address: Address) -> bool:
        connection = self._by_address.get(address)
        return connection is not None and connection.is_open

    async def to(self, address: Address, timeout_s: float = CONNECT_TIMEOUT_S) -> ClientConnection:
        """The shared connection to a broker. Raises ConnectionLost."""
        connection = self._by_address.get(address)
        if connection is None:
            connection = BrokerConnection(self._network, self._client_id, lambda: address)
            self._by_address[address] = connection
        return await connection.connected(timeout_s)

    def close(self) -> None:
        for connection in self._by_address.values():
            connection.close()
        self._by_address.clear()


class SpareConnections:
    """For exclusive use, for requests whose response a broker may delay."""

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
        """A connection with requests in flight is closed: its next user would wait for them."""
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

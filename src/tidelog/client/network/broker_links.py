"""Connections of a broker to other brokers and to itself, for transaction markers and verification."""

from collections.abc import Callable
from typing import TypeVar

from tidelog.client.network.bootstrap import Address
from tidelog.client.network.broker_connection import BrokerConnection
from tidelog.client.network.connection import ConnectionLost
from tidelog.cluster.image import ClusterImage
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.network import Network
from tidelog.types import BrokerId

ResponseT = TypeVar("ResponseT", bound=Response)

CONNECT_TIMEOUT_S = 5.0


class BrokerLinks:
    """Finds brokers by id in the current image, and connects to their inter-broker listener."""

    def __init__(
        self, network: Network, client_id: str, image: Callable[[], ClusterImage], listener_name: str | None = None
    ) -> None:
        self._network = network
        self._client_id = client_id
        self._image = image
        self._listener_name = listener_name
        self._connections: dict[BrokerId, BrokerConnection] = {}

    async def ask(
        self, broker_id: BrokerId, request: Request, response_type: type[ResponseT], timeout_s: float
    ) -> ResponseT:
        """Raises ConnectionLost for any reason without a response."""
        connection = self._connections.get(broker_id)
        if connection is None:
            connection = self._connections[broker_id] = BrokerConnection(
                self._network,
                self._client_id,
                lambda: self._address_of(broker_id),
                connect_timeout_s=CONNECT_TIMEOUT_S,
            )
        return await connection.ask(request, response_type, timeout_s)

    def _address_of(self, broker_id: BrokerId) -> Address:
        broker = self._image().brokers.get(broker_id)
        endpoint = None if broker is None else broker.inter_broker_endpoint(self._listener_name)
        if endpoint is None:
            raise ConnectionLost(f"broker {broker_id} is not alive")
        return Address(endpoint.host, endpoint.port)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

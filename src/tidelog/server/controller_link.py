"""Connection to the active controller, for forwarded requests and controlled shutdown.

It follows the controller to another broker, and retries until a deadline.
"""

from typing import TypeVar

from tidelog.client.network.bootstrap import Address
from tidelog.client.network.broker_connection import BrokerConnection
from tidelog.client.network.connection import ClientConnection, ConnectionLost
from tidelog.cluster.image import ClusterImage
from tidelog.config.listeners import Endpoint
from tidelog.errors import NotController, RequestTimedOut, UnsupportedVersion
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.clock import Clock
from tidelog.runtime.network import Network
from tidelog.server.cluster_state import ClusterState
from tidelog.types import BrokerId

ResponseT = TypeVar("ResponseT", bound=Response)

CLIENT_ID_PREFIX = "tidelog-broker-to-controller-"
"""Prefix of the client id of such connections. Requests with it are not forwarded a second time."""

BACKOFF_S = 0.1
MIN_CONNECT_S = 1.0
"""Minimum time for a connection attempt: so that a slow controller is not taken for a dead one."""


class ControllerLink:
    """A persistent connection to the broker that is the controller."""

    def __init__(self, network: Network, clock: Clock, cluster: ClusterState, broker_id: BrokerId) -> None:
        self._clock = clock
        self._cluster = cluster
        self._connection = BrokerConnection(network, f"{CLIENT_ID_PREFIX}{broker_id}", self._address)

    async def ask(
        self,
        request: Request,
        response_type: type[ResponseT],
        timeout_s: float,
        *,
        reach_timeout_s: float | None = None,
    ) -> ResponseT:
        """Raises NotController if no controller was reached in time, RequestTimedOut if it did not respond in time.

        No connection attempt starts after `reach_timeout_s` (default: `timeout_s`).
        """
        began = self._clock.monotonic()
        connection = await self._reach(began + (timeout_s if reach_timeout_s is None else reach_timeout_s))
        left_s = began + timeout_s - self._clock.monotonic()
        try:
            return await connection.ask(request, response_type, timeout_s=max(left_s, BACKOFF_S))
        except (ConnectionLost, UnsupportedVersion) as error:
            raise RequestTimedOut(f"the controller did not respond: {error}") from error

    async def _reach(self, deadline: float) -> ClientConnection:
        while True:
            left_s = deadline - self._clock.monotonic()
            try:
                return await self._connection.connected(max(left_s, MIN_CONNECT_S))
            except ConnectionLost as error:
                left_s = deadline - self._clock.monotonic()
                if left_s <= 0:
                    raise NotController(f"the controller cannot be reached: {error}") from error
                await self._wait_for_another(min(BACKOFF_S, left_s))

    async def _wait_for_another(self, timeout_s: float) -> None:
        tried = self._current_endpoint()
        await self._cluster.wait_until(lambda image: self._endpoint_in(image) not in (tried, None), timeout_s)

    def _address(self) -> Address:
        endpoint = self._current_endpoint()
        if endpoint is None:
            raise ConnectionLost("no controller is known")
        return Address(endpoint.host, endpoint.port)

    def _current_endpoint(self) -> Endpoint | None:
        return self._endpoint_in(self._cluster.image)

    def _endpoint_in(self, image: ClusterImage) -> Endpoint | None:
        controller = image.brokers.get(image.controller_id)
        if controller is None:
            return None
        return controller.inter_broker_endpoint(self._cluster.static_settings.listener_of_peers)

    def close(self) -> None:
        self._connection.close("broker is shutting down")

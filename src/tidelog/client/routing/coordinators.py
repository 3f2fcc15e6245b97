"""Coordinators of groups and transactional ids: lookup with FindCoordinator, and requests with retries."""

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import NamedTuple, TypeVar

from tidelog.client.network.bootstrap import Address
from tidelog.client.network.connection import ClientConnection
from tidelog.client.network.connections import Connections
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import NO_ERROR, ConcurrentTransactions, KafkaError, error_of
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

T = TypeVar("T")

BATCHES_FROM_VERSION = 4


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class _Key(NamedTuple):
    key_type: KeyType
    key: str


class Coordinators:
    """Caches coordinators until an error shows that they have moved."""

    def __init__(self, cluster: Cluster, connections: Connections | None = None) -> None:
        self._cluster = cluster
        self._connections = connections or cluster.connections
        self._found: dict[_Key, Address] = {}

    async def ask(
        self,
        key_type: KeyType,
        key: str,
        what: str,
        timeout_s: float,
        attempt: Callable[[ClientConnection], Awaitable[T]],
    ) -> T:
        """The result of `attempt` with a connection to the coordinator, retried after retriable errors.

        Raises the first other error, or GaveUp.
        """
        attempts = self._cluster.attempts(what, timeout_s)
        while True:
            try:
                return await attempt(await self.connection(key_type, key))
            except (KafkaError, ConnectionLost) as error:
                if not isinstance(error, ConcurrentTransactions):
                    self.forget(key_type, key)
                await attempts.after(error)

    async def connection(self, key_type: KeyType, key: str) -> ClientConnection:
        address = self._found.get(_Key(key_type, key))
        if address is None:
            address = self._found[_Key(key_type, key)] = await self._find(key_type, key)
        return await self._connections.to(address)

    def forget(self, key_type: KeyType, key: str) -> None:
        self._found.pop(_Key(key_type, key), None)

    async def _find(self, key_type: KeyType, key: str) -> Address:
        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        response = await self._cluster.ask_any(request, FindCoordinatorResponse)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code != NO_ERROR:
            raise error_of(found.error_code, f"looking for the coordinator of {key}", found.error_message)
        return Address(found.host, found.port)

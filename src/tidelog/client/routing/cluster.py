"""Cluster from a client's view: metadata, connections, and requests to any broker, a leader or the controller."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeVar

from tidelog.client.network.bootstrap import Address
from tidelog.client.network.connections import Connections, SpareConnections
from tidelog.client.network.in_flight import ConnectionLost, LoginFailed
from tidelog.client.network.retries import Attempts, Report
from tidelog.client.routing.metadata import ClusterMetadata
from tidelog.errors import NO_ERROR, LeaderNotAvailable, NotController, error_of
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.network import Network
from tidelog.runtime.randomness import Randomness
from tidelog.types import BrokerId

ResponseT = TypeVar("ResponseT", bound=Response)

REQUEST_TIMEOUT_S = 30.0
METADATA_TIMEOUT_S = 5.0
"""Short, since every broker can answer Metadata at once."""


class Cluster:
    """Shared by the admin, producer and consumer of one program. Its creator closes it."""

    def __init__(
        self,
        network: Network,
        bootstrap: Sequence[Address],
        randomness: Randomness,
        *,
        client_id: str = "tidelog",
        client_rack: str = "",
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        report_waiting: Report | None = None,
    ) -> None:
        """`report_waiting` gets the reason if brokers do not answer for some seconds."""
        self._bootstrap = list(bootstrap)
        self.randomness = randomness
        self.request_timeout_s = request_timeout_s
        self.client_rack = client_rack
        """client.rack: brokers send consumers to a replica in this rack (KIP-392)."""
        self.report_waiting = report_waiting
        self.network = network
        self._client_id = client_id
        self.connections = self.new_connections()
        self.spare_connections = SpareConnections(network, client_id)
        self.metadata = ClusterMetadata()
        self._topics: dict[str, None] = {}
        self._refreshing = asyncio.Lock()

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connections.close()
        self.spare_connections.close()

    def new_connections(self) -> Connections:
        """Separate connections for requests that brokers delay: on shared ones all other responses would wait."""
        return Connections(self.network, self._client_id)

    def attempts(self, what: str, timeout_s: float) -> Attempts:
        return Attempts(what, timeout_s, self.randomness, report=self.report_waiting)

    # ---- metadata

    async def refresh(self, seen_version: int | None = None) -> ClusterMetadata:
        """Refresh metadata of the topics in use, unless it was refreshed since `seen_version`."""
        async with self._refreshing:
            if seen_version is None or self.metadata.version <= seen_version:
                await self.ask_topics(self._topics)
        return self.metadata

    async def topics_in_use(self, topics: Iterable[str], *, may_create: bool = False) -> ClusterMetadata:
        """Add topics to those in use; requests metadata if one of them is new."""
        new = [topic for topic in topics if topic not in self._topics]
        if new:
            self._topics |= dict.fromkeys(new)
            async with self._refreshing:
                await self.ask_topics(self._topics, may_create=may_create)
        return self.metadata

    async def ask_topics(self, topics: Iterable[str] | None, *, may_create: bool = False) -> ClusterMetadata:
        """Request metadata of these topics, or of all if None."""
        wanted = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=may_create)
        response = await self.ask_any(request, MetadataResponse, timeout_s=METADATA_TIMEOUT_S)
        if response.error_code != NO_ERROR:
            raise error_of(response.error_code, "metadata")
        self.metadata = self.metadata.updated(response, has_all_topics=topics is None)
        return self.metadata

    # ---- requests

    async def ask_any(
        self, request: Request, response_type: type[ResponseT], *, timeout_s: float | None = None
    ) -> ResponseT:
        """The response of the first broker that responds. Raises ConnectionLost with the reasons of all."""
        reasons = []
        for address in self._candidates():
            try:
                return await self.ask_address(address, request, response_type, timeout_s=timeout_s)
            except LoginFailed:
                raise  # the others would refuse it, too
            except ConnectionLost as lost:
                reasons.append(str(lost))
        raise ConnectionLost("; ".join(reasons))

    def _candidates(self) -> list[Address]:
        """Connected brokers first, then other brokers in random order, then the bootstrap servers."""
        known = [broker.address for broker in self.metadata.brokers.values()]
        if known:
            start = self.randomness.below(len(known))
            known = known[start:] + known[:start]
        known.sort(key=lambda address: not self.connections.is_open(address))
        return list(dict.fromkeys(known + self._bootstrap))

    async def ask_address(
        self, address: Address, request: Request, response_type: type[ResponseT], *, timeout_s: float | None = None
    ) -> ResponseT:
        connection = await self.connections.to(address)
        return await connection.ask(request, response_type, timeout_s=timeout_s or self.request_timeout_s)

    async def ask_broker(self, broker_id: BrokerId, request: Request, response_type: type[ResponseT]) -> ResponseT:
        return await self.ask_address(self.address_of(broker_id), request, response_type)

    def address_of(self, broker_id: BrokerId) -> Address:
        broker = self.metadata.brokers.get(broker_id)
        if broker is None:
            raise LeaderNotAvailable(f"broker {broker_id} is not in the cluster at the moment")
        return broker.address

    async def ask_controller(self, request: Request, response_type: type[ResponseT]) -> ResponseT:
        """Looks up the controller each time. Raises a retriable error if there is none."""
        metadata = await self.ask_topics([])
        controller = metadata.brokers.get(metadata.controller_id)
        if controller is None:
            raise NotController("the cluster has no controller at the moment")
        return await self.ask_address(controller.address, request, response_type)

"""Answers of each single broker: a client asks any of them, so a test first waits until all say the same."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

from tests.clients.driver import TIMEOUT_S
from tidelog.client.network.connection import ClientConnection
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.socket_network import SocketNetwork

TOPIC_RESOURCE = 2
MAX_FRAME_BYTES = 100_000_000
ResponseT = TypeVar("ResponseT", bound=Response)


def leaders_by_broker(bootstrap: str, topic: str) -> list[dict[int, int]]:
    """The leader by partition, as each broker reports it; none where it does not know the topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return [
        {one.partition_index: one.leader_id for found in response.topics for one in found.partitions}
        for response in ask_each(bootstrap, request, MetadataResponse)
    ]


def configs_by_broker(bootstrap: str, topic: str) -> list[Mapping[str, str | None]]:
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC_RESOURCE, topic, None)])
    return [
        {entry.name: entry.value for found in response.results for entry in found.configs}
        for response in ask_each(bootstrap, request, DescribeConfigsResponse)
    ]


def ask_each(bootstrap: str, request: Request, response_type: type[ResponseT]) -> Sequence[ResponseT]:
    return asyncio.run(_ask_each(bootstrap.split(","), request, response_type))


async def _ask_each(addresses: Sequence[str], request: Request, response_type: type[ResponseT]) -> Sequence[ResponseT]:
    return await asyncio.gather(*(_ask(address, request, response_type) for address in addresses))


async def _ask(address: str, request: Request, response_type: type[ResponseT]) -> ResponseT:
    host, _, port = address.partition(":")
    connection = await ClientConnection.open(SocketNetwork(MAX_FRAME_BYTES), host, int(port), "each-broker")
    try:
        return await connection.ask(request, response_type, timeout_s=TIMEOUT_S)
    finally:
        connection.close()

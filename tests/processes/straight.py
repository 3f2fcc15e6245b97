"""Writes straight to one broker, also if another leads, as a client with old metadata does."""

import asyncio
from collections.abc import Callable

from tests.processes.load import TOPIC
from tidelog.client.network.connection import ClientConnection
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.protocol.records import Record, build_batch
from tidelog.runtime.socket_network import SocketNetwork

VERSION = 12
"""The last one that calls topics by their names."""
ACKS = (1, -1)
TIMEOUT_S = 120.0
MAX_FRAME_BYTES = 1_000_000


def write_straight(
    address: str, partition: int, before: Callable[[], None] | None = None, after: Callable[[], None] | None = None
) -> list[int]:
    """The error codes of a write with acks=1 and one with acks=all.

    `before` is done when the connection stands and nothing is written, `after` when both are on their way.
    """
    return asyncio.run(_write(address, partition, before or _nothing, after or _nothing))


def _nothing() -> None:
    return


async def _write(address: str, partition: int, before: Callable[[], None], after: Callable[[], None]) -> list[int]:
    host, _, port = address.partition(":")
    connection = await ClientConnection.open(SocketNetwork(MAX_FRAME_BYTES), host, int(port), "straight")
    try:
        before()
        responses = [asyncio.create_task(_ask(connection, partition, acks)) for acks in ACKS]
        await asyncio.sleep(0.05)
        await connection.drained()
        after()
        return [_error_code(response) for response in await asyncio.gather(*responses)]
    finally:
        connection.close()


async def _ask(connection: ClientConnection, partition: int, acks: int) -> ProduceResponse:
    batch = memoryview(build_batch([Record(0, 0, None, b"written behind everybody's back", ())]))
    topic = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(partition, batch)])
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])
    return await connection.ask(request, ProduceResponse, timeout_s=TIMEOUT_S, version=VERSION)


def _error_code(response: ProduceResponse) -> int:
    return response.responses[0].partition_responses[0].error_code

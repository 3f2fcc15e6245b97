"""Large topics for the console, and what it asks for to show some of their records."""

import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

from crc32c import crc32c

from bench import wire
from tidelog.cli.client_command import command_network
from tidelog.client.network.bootstrap import parse_bootstrap
from tidelog.client.network.connection import ClientConnection
from tidelog.client.routing.cluster import Cluster as ClientCluster
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.runtime.randomness import SystemRandomness
from tidelog.testing import Cluster

IN_BATCH = 500
TIMESTAMPS_AT = 27
"""In a batch: its base timestamp, and its greatest."""
STEP_MS = 10
"""Between two batches."""
BEGAN_MS = time.time_ns() // 1_000_000 - 24 * 3_600_000


def fill(connection: wire.Connection, topic: str, batches: int) -> None:
    batch = wire.record_batch([b"a value of some bytes"] * IN_BATCH, BEGAN_MS)
    for number in range(batches):
        frame = wire.produce_frame(topic, {0: _written_at(batch, BEGAN_MS + number * STEP_MS)})
        assert wire.produce_error(connection.ask(frame)) == wire.ERROR_NONE


def _written_at(batch: bytes, timestamp_ms: int) -> bytes:
    """The same batch at another time."""
    checked = bytearray(batch[wire.CHECKED_FROM :])
    struct.pack_into(">qq", checked, TIMESTAMPS_AT - wire.CHECKED_FROM, timestamp_ms, timestamp_ms)
    return batch[: wire.CRC_AT] + struct.pack(">I", crc32c(bytes(checked))) + bytes(checked)


class Cost:
    """What a console asks for: requests by their names, and bytes of records."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.record_bytes = 0

    def counted(self, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counting(connection: ClientConnection, request: Any, *arguments: Any, **named: Any) -> Any:
            self.requests[type(request).__name__.removesuffix("Request")] += 1
            response = await ask(connection, request, *arguments, **named)
            if isinstance(response, FetchResponse):
                self.record_bytes += sum(
                    len(data.records or b"") for topic in response.responses for data in topic.partitions
                )
            return response

        return counting


async def cost_of(kafka: Cluster, work: Callable[[ClientCluster], Awaitable[Any]]) -> tuple[Any, Cost]:
    """What was found, and what it cost."""
    cost = Cost()
    network, addresses = command_network(None), parse_bootstrap(kafka.bootstrap_servers)
    async with ClientCluster(network, addresses, SystemRandomness()) as client:
        await client.refresh()
        with patch.object(ClientConnection, "ask", cost.counted(ClientConnection.ask)):
            return await work(client), cost

"""The client over TCP against a broker of the production classes, with answers larger than any receive buffer."""

import asyncio
from pathlib import Path

from tests.server.harness import fetch_request
from tidelog.client.admin.admin import Admin
from tidelog.client.consumer.consumer import BEGINNING, Consumer
from tidelog.client.network.bootstrap import Address
from tidelog.client.network.connection import ClientConnection, ConnectionLost
from tidelog.client.producer.producer import Producer, ProducerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.config.broker import BrokerSettings
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.record_batch import crc_matches, split_batches
from tidelog.protocol.structs import Response
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.receive_buffers import BUFFER_BYTES
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.server.broker import Broker
from tidelog.types import TopicPartition

VALUE_BYTES = 900_000
COUNT = 12
MAX_FRAME_BYTES = 100 * 1024 * 1024


async def fetch_in_one_answer(connection: ClientConnection) -> list[int]:
    """The sizes of the batches in the answer, looked at while its frame is there."""
    done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

    def look(response: Response) -> None:
        assert isinstance(response, FetchResponse)
        records = response.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        assert len(records) > 10 * BUFFER_BYTES
        batches = list(split_batches(records))
        assert all(crc_matches(batch, header) for header, batch in batches)
        done.set_result([header.size_bytes for header, _ in batches])

    def lost(error: ConnectionLost) -> None:
        done.set_exception(error)

    request = fetch_request("big", 0, max_bytes=20_000_000, partition_max_bytes=20_000_000)
    connection.send(request, look, lost, version=12)
    return await asyncio.wait_for(done, 30)


def test_answers_of_many_megabytes_arrive_whole(tmp_path: Path) -> None:
    async def main() -> None:
        settings = BrokerSettings(
            broker_id=0, log_dirs=(str(tmp_path),), listeners=("PLAINTEXT://127.0.0.1:0",), num_partitions=1
        )
        broker = await Broker.start(settings)
        network = SocketNetwork(MAX_FRAME_BYTES)
        address = Address("127.0.0.1", broker.listeners[0].port)
        values = [bytes([65 + number]) * VALUE_BYTES for number in range(COUNT)]
        async with Cluster(network, [address], SystemRandomness()) as cluster:
            await Admin(cluster).create_topic("big", partitions=1)
            async with Producer(cluster, SystemClock(), ProducerSettings(linger_s=0.0)) as producer:
                for value in values:
                    await producer.send("big", value)
            connection = await cluster.connections.to(address)
            for _ in range(2):
                sizes = await fetch_in_one_answer(connection)
                assert len(sizes) == COUNT
            async with Consumer(cluster) as consumer:
                await consumer.assign({TopicPartition("big", 0): BEGINNING})
                assert [(await anext(consumer)).value for _ in range(COUNT)] == values
        await broker.stop()

    asyncio.run(main())

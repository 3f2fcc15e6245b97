"""A whole broker of the production classes in one process, on virtual time, over memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from tidelog.config.broker import BrokerSettings
from tidelog.protocol.apis import API_KEYS
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.header import read_response_header, request_header
from tidelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.record_batch import split_batches
from tidelog.protocol.records import Record, build_batch, records_of
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.network import Channel, FrameReceiver
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import EPOCH_MS, VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.runtime.workers import InlineWorkers, Workers
from tidelog.server.broker import Broker
from tidelog.server.seams import Seams
from tidelog.server.tracing import Tracing
from tidelog.store.interface import Store
from tidelog.store.memory import MemoryStore, MemoryStoreState

T = TypeVar("T")

PRODUCE_VERSION = 9
FETCH_VERSION = 12


class Harness:
    """What survives a broker: its disk and the store. Brokers can be started in it one after another."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.clock = VirtualClock(loop)
        self.disk = MemoryDisk(self.clock)
        self.network = MemoryNetwork()
        self.store_state = MemoryStoreState()
        self.stores: list[MemoryStore] = []
        self.workers: Workers = InlineWorkers()
        self.tracing: Tracing | None = None

    async def _open_store(self) -> Store:
        self.stores.append(MemoryStore(self.store_state))
        return self.stores[-1]

    async def start(self, **settings: object) -> Broker:
        values = {"broker_id": 0, "log_dirs": ("/logs",), "listeners": ("PLAINTEXT://127.0.0.1:9092",), **settings}
        seams = Seams(
            clock=self.clock,
            disk=self.disk,
            network=self.network,
            randomness=SeededRandomness(1),
            workers=self.workers,
            open_store=self._open_store,
            tracing=self.tracing,
        )
        return await Broker.start(BrokerSettings(**values), seams)  # type: ignore[arg-type]

    @asynccontextmanager
    async def broker(self, **settings: object) -> AsyncIterator[Broker]:
        broker = await self.start(**settings)
        yield broker
        await broker.stop()

    async def crash(self) -> None:
        """The machine stops in the middle of everything: what was not synced is lost, and so are all sessions."""
        for store in self.stores:
            self.store_state.expire(store.session_id)
        await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.network = MemoryNetwork()
        self.disk.crash()

    async def connect(self, client_id: str = "test", port: int = 9092) -> "Client":
        clients: list[Client] = []

        def attach(channel: Channel) -> FrameReceiver:
            clients.append(Client(channel, client_id))
            return clients[0]

        await self.network.connect("127.0.0.1", port, attach)
        return clients[0]

    async def connect_as_broker(self, broker: Broker, client_id: str = "test", port: int = 9092) -> "Client":
        """A client that has proved to be a broker: it may play followers."""
        earlier = set(broker.acceptor.registry._connections)
        client = await self.connect(client_id, port)
        (connection,) = set(broker.acceptor.registry._connections) - earlier
        connection.trust()
        return client


class Client:
    """Sends requests and hands out the answers by correlation id; pipelines as many as one likes."""

    def __init__(self, channel: Channel, client_id: str) -> None:
        self.channel = channel
        self.client_id = client_id
        self.closed_because: str | None = None
        self.order_of_responses: list[int] = []
        self._next_id = 0
        self.broker_epoch = -1  # for requests of a controller
        self._waiting: dict[int, tuple[int, int, asyncio.Future[Response]]] = {}

    def start(self, request: Request, version: int) -> asyncio.Future[Response]:
        self._next_id += 1
        key = request.__api_key__
        response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[self._next_id] = (key, version, response)
        self.channel.send([request_header(key, version, self._next_id, self.client_id), encode(request, version)])
        self.channel.flush()
        return response

    async def ask(self, request: Request, version: int, response_type: type[T]) -> T:
        async with asyncio.timeout(120):
            response = await self.start(request, version)
        assert isinstance(response, response_type)
        return response

    def send_raw(self, frame: bytes) -> None:
        self.channel.send([frame])
        self.channel.flush()

    def on_frame(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        key, version, response = self._waiting.pop(correlation_id)
        self.order_of_responses.append(correlation_id)
        _, position = read_response_header(frame, key, version)
        response.set_result(decode(API_KEYS[key].response, version, bytes(frame[position:])))

    def on_frames_done(self) -> None: ...

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None:
        self.closed_because = reason

    # -- what most tests do

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        from tidelog.protocol.messages.create_topics import CreateTopicsResponse

        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        response = await self.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        assert [result.error_code for result in response.topics] == [0], response

    async def create_internal_topic(self, name: str) -> None:
        """As brokers make it: somebody asks for it, and it has as many partitions as the settings say."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        await self.ask(request, 9, MetadataResponse)

    async def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = -1) -> PartitionProduceResponse:
        response = await self.ask(produce_request(topic, batch_of(*values), partition, acks), 9, ProduceResponse)
        return response.responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int, **options: int) -> PartitionData:
        response = await self.ask(fetch_request(topic, offset, **options), FETCH_VERSION, FetchResponse)
        return response.responses[0].partitions[0]

    async def values(self, topic: str, offset: int = 0, partition: int = 0) -> list[bytes | None]:
        """Everything from `offset` on that a consumer can read now."""
        found: list[bytes | None] = []
        while True:
            data = await self.fetch(topic, offset, partition=partition, max_wait_ms=0)
            assert data.error_code == 0, data
            batches = list(split_batches(bytes(data.records or b"")))  # type: ignore[arg-type]
            if not batches:
                return found
            for header, batch in batches:
                found += [record.value for record in records_of(batch) if record.offset >= offset]
                offset = header.end_offset


def batch_of(*values: bytes, timestamp: int = EPOCH_MS, **options: int) -> bytes:
    records = [Record(index, timestamp, None, value, ()) for index, value in enumerate(values)]
    return bytes(build_batch(records, **options))  # type: ignore[arg-type]


def produce_request(topic: str, batch: bytes, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_000_000,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchRequest:
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=current_leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def with_broker(scenario: Callable[[Harness, Client], Awaitable[None]], **settings: object) -> None:
    """Run a scenario with one broker and one client."""

    async def main() -> None:
        harness = Harness()
        async with harness.broker(**settings):
            await scenario(harness, await harness.connect())

    run_virtually(main())

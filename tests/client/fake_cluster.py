"""Brokers that keep one log per partition in common, so that leadership can move between them at a word."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from tidelog.client.network.bootstrap import Address
from tidelog.client.routing.cluster import Cluster
from tidelog.protocol.apis import API_KEYS, APIS
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.header import read_request_header, response_header
from tidelog.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset as EpochEnd,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.record_batch import BatchHeader, place, read_header, split_batches
from tidelog.protocol.records import records_of
from tidelog.protocol.structs import Message, Request, Response
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.network import Channel, Listener, Network
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import run_virtually

TOPIC = "t"
TOPIC_ID = bytes(range(16))
HOST = "127.0.0.1"
FIRST_PORT = 9000
EMPTY_FETCH_S = 0.02
TOO_LARGE = 10
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, OUT_OF_ORDER, FENCED, UNKNOWN_EPOCH = 1, 3, 6, 45, 74, 75


class FakePartition:
    """A log, and who leads it."""

    def __init__(self) -> None:
        self.leader = 1
        self.leader_epoch = 0
        self.batches: list[bytes] = []
        self.start = 0
        self.end = 0
        self.largest_batch_bytes = 1_000_000
        self.stable_end: int | None = None
        """Where an open transaction begins."""

    def move(self, leader: int) -> None:
        self.leader, self.leader_epoch = leader, self.leader_epoch + 1

    def truncate(self, end: int) -> None:
        """What an unclean election does: records after `end` are gone."""
        self.batches = [batch for batch in self.batches if read_header(batch).end_offset <= end]
        self.end = end

    def append(self, batch: bytes) -> tuple[int, int]:
        """The error code and the base offset."""
        header = read_header(batch)
        if len(batch) > self.largest_batch_bytes:
            return TOO_LARGE, -1
        before = [known for known in map(read_header, self.batches) if known.producer_id == header.producer_id >= 0]
        for known in before:
            if (known.base_sequence, known.last_sequence) == (header.base_sequence, header.last_sequence):
                return 0, known.base_offset
        expected = before[-1].last_sequence + 1 if before else 0
        if header.producer_id >= 0 and header.base_sequence != expected:
            return OUT_OF_ORDER, -1
        placed = bytearray(batch)
        place(placed, self.end, self.leader_epoch)
        self.batches.append(bytes(placed))
        self.end += header.last_offset_delta + 1
        return 0, self.end - header.last_offset_delta - 1

    def rejection(self, broker_id: int, current_leader_epoch: int = -1) -> int:
        if self.leader != broker_id:
            return NOT_LEADER
        if 0 <= current_leader_epoch < self.leader_epoch:
            return FENCED
        return UNKNOWN_EPOCH if current_leader_epoch > self.leader_epoch else 0

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        found, end = -1, 0
        for header in map(read_header, self.batches):
            if header.leader_epoch <= epoch:
                found, end = header.leader_epoch, header.end_offset
        return found, end

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in records_of(batch)]


class FakeCluster:
    def __init__(self, brokers: int = 2, partitions: int = 1) -> None:
        self.brokers = {number: FakeBroker(self, number) for number in range(1, brokers + 1)}
        self.partitions = [FakePartition() for _ in range(partitions)]
        self.producer_ids = 0

    async def listen(self, network: Network) -> None:
        for broker in self.brokers.values():
            await broker.listen(network)

    @property
    def bootstrap(self) -> list[Address]:
        return [broker.address for broker in self.brokers.values()]


def with_cluster(
    scenario: Callable[[FakeCluster, Cluster], Awaitable[None]], *, brokers: int = 2, partitions: int = 1
) -> None:
    """Runs it on virtual time, with a client of the brokers."""

    async def main() -> None:
        network, fakes = MemoryNetwork(), FakeCluster(brokers, partitions)
        await fakes.listen(network)
        async with Cluster(network, fakes.bootstrap, SeededRandomness(1)) as cluster:
            await scenario(fakes, cluster)

    run_virtually(main())


class FakeBroker:
    def __init__(self, cluster: FakeCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.address = Address(HOST, FIRST_PORT + broker_id)
        self.connections: list[FakeConnection] = []
        self._listener: Listener | None = None
        self.requests: list[Request] = []
        self.responses_to_lose: dict[type[Request], int] = {}
        """So many requests of the type are carried out, and the connection closed instead of an answer."""
        self.stale_metadata: MetadataResponse | None = None
        self.max_batch_bytes = 1_000_000

    async def listen(self, network: Network) -> None:
        self._listener = await network.listen(*self.address, self._accept)
        self._listener.start()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in self.connections:
            connection.channel.close("the broker ends")

    def _accept(self, channel: Channel) -> "FakeConnection":
        self.connections.append(FakeConnection(channel, self))
        return self.connections[-1]

    def seen(self, kind: type[Request]) -> list[Request]:
        return [request for request in self.requests if type(request) is kind]

    def answer(self, request: Request) -> Response:
        match request:
            case ApiVersionsRequest():
                served = [api for api in APIS if api.key in (0, 1, 2, 3, 18, 22, 23)]
                return ApiVersionsResponse(
                    api_keys=[ApiVersion(api.key, api.versions.first, api.versions.last) for api in served]
                )
            case MetadataRequest():
                return self.stale_metadata or self.metadata()
            case InitProducerIdRequest():
                self.cluster.producer_ids += 1
                return InitProducerIdResponse(producer_id=self.cluster.producer_ids)
            case ProduceRequest():
                return self._produce(request)
            case FetchRequest():
                return self._fetch(request)
            case ListOffsetsRequest():
                return self._list_offsets(request)
            case OffsetForLeaderEpochRequest():
                return self._ends_of_epochs(request)
        raise AssertionError(request)

    def metadata(self) -> MetadataResponse:
        brokers = [
            MetadataResponseBroker(node_id=broker.broker_id, host=broker.address.host, port=broker.address.port)
            for broker in self.cluster.brokers.values()
        ]
        partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )
            for index, partition in enumerate(self.cluster.partitions)
        ]
        topic = MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=partitions)
        return MetadataResponse(brokers=brokers, controller_id=1, topics=[topic])

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        (data,) = request.topic_data[0].partition_data
        partition = self.cluster.partitions[data.index]
        error, offset = partition.rejection(self.broker_id), -1
        if not error and len(data.records or b"") > self.max_batch_bytes:
            error = 10
        if not error:
            error, offset = partition.append(bytes(data.records or b""))
        response = PartitionProduceResponse(index=data.index, error_code=error, base_offset=offset)
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=[response])]
        )

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        responses = []
        for topic in request.topics:
            for wanted in topic.partitions:
                partition = self.cluster.partitions[wanted.partition]
                data = PartitionData(partition_index=wanted.partition, high_watermark=partition.end, records=b"")
                data.error_code = partition.rejection(self.broker_id, wanted.current_leader_epoch)
                if not data.error_code and not partition.start <= wanted.fetch_offset <= partition.end:
                    data.error_code = OFFSET_OUT_OF_RANGE
                if not data.error_code:
                    stable_end = partition.end if partition.stable_end is None else partition.stable_end
                    data.last_stable_offset = stable_end
                    end = stable_end if request.isolation_level else partition.end
                    data.records = b"".join(_between(partition.batches, wanted.fetch_offset, end))
                responses.append(data)
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=responses)]
            if responses
            else []
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        responses = []
        for wanted in request.topics[0].partitions:
            partition = self.cluster.partitions[wanted.partition_index]
            responses.append(
                ListOffsetsPartitionResponse(
                    partition_index=wanted.partition_index,
                    error_code=partition.rejection(self.broker_id, wanted.current_leader_epoch),
                    offset=partition.start if wanted.timestamp == -2 else partition.end,
                )
            )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=responses)])

    def _ends_of_epochs(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        responses = []
        for wanted in request.topics[0].partitions:
            partition = self.cluster.partitions[wanted.partition]
            error = partition.rejection(self.broker_id, wanted.current_leader_epoch)
            epoch, end = partition.end_of_epoch(wanted.leader_epoch)
            responses.append(EpochEnd(error_code=error, partition=wanted.partition, leader_epoch=epoch, end_offset=end))
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=responses)])


class FakeConnection:
    def __init__(self, channel: Channel, broker: FakeBroker) -> None:
        self.channel = channel
        self.is_closed = False
        self._broker = broker

    def on_frame(self, frame: memoryview) -> None:
        header, position = read_request_header(frame)
        request = cast("Request", decode(_request_type(header.api_key), header.api_version, bytes(frame[position:])))
        self._broker.requests.append(request)
        response = self._broker.answer(request)
        if self._broker.responses_to_lose.get(type(request), 0) > 0:
            self._broker.responses_to_lose[type(request)] -= 1
            self.channel.close("the answer is lost")
            return
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        answer = head + encode(response, header.api_version)
        if isinstance(response, FetchResponse) and not _has_news(response):
            asyncio.get_running_loop().call_later(EMPTY_FETCH_S, self._send, answer)
        else:
            self.channel.send([answer])

    def _send(self, response: bytes) -> None:
        self.channel.send([response])
        self.channel.flush()

    def on_frames_done(self) -> None:
        self.channel.flush()

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None:
        self.is_closed = True


def _request_type(api_key: int) -> type[Message]:
    return API_KEYS[api_key].request


def _has_news(response: FetchResponse) -> bool:
    return any(data.records or data.error_code for topic in response.responses for data in topic.partitions)


def _between(batches: Sequence[bytes], offset: int, end: int) -> list[bytes]:
    return [batch for batch in batches if offset < read_header(batch).end_offset <= end]


def headers_of(partition: FakePartition) -> list[BatchHeader]:
    return [header for header, _ in split_batches(b"".join(partition.batches))]

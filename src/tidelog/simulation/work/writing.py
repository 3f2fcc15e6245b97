"""Work of producers: with long delivery timeouts, with short ones, and single requests without retries."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from tidelog.client.network.connection import ClientConnection
from tidelog.client.producer.producer import Delivery, Producer, ProducerSettings
from tidelog.client.producer.producer_settings import ACKS_ALL
from tidelog.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTimestamp,
    MessageTooLarge,
    NotEnoughReplicas,
    RecordListTooLarge,
    raise_error,
)
from tidelog.protocol.compression import Codec
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.records import Record, build_batch
from tidelog.simulation.clients import ClientErrors, Writer, knows_partition
from tidelog.simulation.history import History, Write
from tidelog.simulation.work.base import SEEDS, Work, WorkContext, together
from tidelog.types import TopicPartition

ORDERS = "orders"
MAX_PAUSE_MS = 200
RECORDS_PER_BURST = 4
MAX_DELIVERY_TIMEOUT_MS = 4000
MAX_SESSION_MS = 15_000
CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP)
ONE_SHOT_TIMEOUTS_MS = (50, 500, 5000)
NAMED_VERSION = 12
"""Last version of Produce with topic names instead of ids."""

REJECTED_BEFORE_APPEND = (
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTimestamp,
    MessageTooLarge,
    NotEnoughReplicas,
    RecordListTooLarge,
)
"""Errors returned before anything is written. Others, such as NotLeaderOrFollower, may follow an append."""


async def orders(context: WorkContext) -> list[TopicPartition]:
    return await context.topic(ORDERS, 2)


class WorkOnOrders(Work):
    """Work with a client of its own, on the topic of orders."""

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._client = context.client(self.name)

    async def prepare(self) -> None:
        await orders(self.context)


async def acknowledged(history: History, delivery: Delivery, write: Write) -> None:
    """Record the acknowledgement; after an error the record may still exist."""
    with suppress(*ClientErrors):
        history.acknowledge(write, (await delivery).offset)


async def produce(
    connection: ClientConnection,
    target: TopicPartition,
    batch: bytes,
    timeout_ms: int,
    *,
    transactional_id: str | None = None,
    version: int = NAMED_VERSION,
) -> int:
    """Send one batch with acks=all. Returns its offset, or raises the broker's error."""
    data = PartitionProduceData(index=target.partition, records=memoryview(batch))
    topic = TopicProduceData(name=target.topic, partition_data=[data])
    request = ProduceRequest(
        transactional_id=transactional_id, acks=ACKS_ALL, timeout_ms=timeout_ms, topic_data=[topic]
    )
    response = await connection.ask(request, ProduceResponse, version=version, timeout_s=timeout_ms / 1000 + 1.0)
    (answer,) = response.responses[0].partition_responses
    raise_error(answer.error_code, str(target))
    return answer.base_offset


class PatientWrites(Work):
    """Acknowledged records of an idempotent producer exist once, in order. Records with acks=1 may be lost."""

    name = "writes"
    acks: Sequence[int] = (-1, -1, 1)

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._writers = [
            Writer(
                context.cluster,
                context.history,
                f"w{number}",
                self.randomness.below(SEEDS),
                acks,
                context.longest_pause_ms,
            )
            for number, acks in enumerate(self.acks)
        ]
        self._is_done = False

    async def prepare(self) -> None:
        await orders(self.context)

    async def run(self, is_over: Callable[[], bool]) -> None:
        partitions = await orders(self.context)
        await together(writer.run(partitions, is_over) for writer in self._writers)
        self._is_done = True

    def unsettled(self) -> Iterator[str]:
        if not self._is_done:
            yield "I7 a patient writer still waits"

    def violations(self) -> Iterator[str]:
        for writer in self._writers:
            yield from writer.failures


class ImpatientWrites(WorkOnOrders):
    """Idempotent producers with a short delivery timeout, replaced every now and then.

    A record that was given up exists at most once, possibly later.
    """

    name = "giving_up"
    value_prefix = "i"

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._sent = 0
        self._sessions = 0
        self._waiting: dict[asyncio.Task[None], None] = {}

    async def run(self, is_over: Callable[[], bool]) -> None:
        partitions = await orders(self.context)
        while not is_over():
            try:
                await self._session(partitions, is_over)
            except ClientErrors:
                await self.pace(MAX_PAUSE_MS)

    async def _session(self, partitions: Sequence[TopicPartition], is_over: Callable[[], bool]) -> None:
        delivery_timeout_s = 0.1 + self.randomness.below(MAX_DELIVERY_TIMEOUT_MS) / 1000
        settings = ProducerSettings(
            request_timeout_s=max(delivery_timeout_s / 2, 0.2),
            delivery_timeout_s=delivery_timeout_s,
            metadata_timeout_s=5.0,
            may_create_topics=False,
            compression=self.one_of(CODECS),
        )
        end = self.context.now + self.randomness.below(self.within_run_ms(MAX_SESSION_MS)) / 1000
        self._sessions += 1
        async with Producer(self._client, self.context.cluster.clock, settings) as producer:
            while not is_over() and self.context.now < end:
                target = self.one_of(partitions)
                if not await knows_partition(self._client, target):
                    continue
                for _ in range(1 + self.randomness.below(RECORDS_PER_BURST)):
                    write = self._begin(target)
                    delivery = await producer.enqueue(target.topic, write.value, partition=target.partition)
                    self._follow(delivery, write)
                await self.pace(MAX_PAUSE_MS)

    def _begin(self, target: TopicPartition) -> Write:
        self._sent += 1
        return self.history.begin(
            Write(target, f"{self.value_prefix}{self._sent}".encode(), f"{self.name}-{self._sessions}")
        )

    def _follow(self, delivery: Delivery, write: Write) -> None:
        task = asyncio.get_running_loop().create_task(acknowledged(self.history, delivery, write))
        self._waiting[task] = None
        task.add_done_callback(self._waiting.pop)


class OneShotWrites(WorkOnOrders):
    """Single Produce requests without retries: records that are certainly refused must never be seen."""

    name = "one_shot_writes"

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._sent = 0

    async def run(self, is_over: Callable[[], bool]) -> None:
        partitions = await orders(self.context)
        while not is_over():
            await self.pace(MAX_PAUSE_MS)
            await self._write(self.one_of(partitions))

    async def _write(self, target: TopicPartition) -> None:
        self._sent += 1
        value = f"o{self._sent}".encode()
        write = self.history.begin(Write(target, value, self.name, is_idempotent=False))
        seen_version = self._client.metadata.version
        try:
            self.history.acknowledge(write, await self._ask(write))
        except REJECTED_BEFORE_APPEND:
            self.history.reject(write)
        except ClientErrors:
            await self._refresh_metadata(seen_version)

    async def _ask(self, write: Write) -> int:
        await self._client.topics_in_use([write.topic_partition.topic])
        leader = self._client.metadata.leader_of(write.topic_partition)
        connection = await self._client.connections.to(leader.broker.address)
        record = Record(0, self.context.cluster.clock.now_ms(), None, write.value)
        return await produce(
            connection, write.topic_partition, bytes(build_batch([record])), self.one_of(ONE_SHOT_TIMEOUTS_MS)
        )

    async def _refresh_metadata(self, seen_version: int) -> None:
        await self.pace(MAX_PAUSE_MS)
        with suppress(*ClientErrors):
            await self._client.refresh(seen_version)

"""Work of producers with five requests in flight for a partition, as most Kafka clients have."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from tidelog.client.network.connection import ClientConnection
from tidelog.client.producer.producer import Delivery
from tidelog.client.producer.producer_batch import ProducerIdAndEpoch
from tidelog.client.producer.producer_identity import IdempotentIdentity, ProducerIdSource
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import (
    DuplicateSequenceNumber,
    KafkaError,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)
from tidelog.protocol.records import Record, build_batch
from tidelog.simulation.clients import ClientErrors
from tidelog.simulation.history import Transaction, Write
from tidelog.simulation.work.base import Work, WorkContext, together
from tidelog.simulation.work.transacting import Transactions
from tidelog.simulation.work.writing import (
    MAX_PAUSE_MS,
    NAMED_VERSION,
    ONE_SHOT_TIMEOUTS_MS,
    WorkOnOrders,
    orders,
    produce,
)
from tidelog.types import TopicPartition

MAX_IN_FLIGHT = 5
RECORDS_PER_BATCH = 3
BATCHES_PER_BURST = 8
DELIVERY_TIMEOUT_S = 5.0


class Batch:
    """A record batch that is sent again, with the same sequence, until it is acknowledged."""

    def __init__(self, writes: Sequence[Write], data: bytes) -> None:
        self.writes = writes
        self.data = data
        self.is_acknowledged = False


class Pipeline:
    """Batches of one producer for one partition. An error about a sequence counts as a violation (I5).

    After such an error librdkafka continues with another producer epoch in all partitions, and brokers take batches
    that it sends again for new ones.
    """

    def __init__(self, work: Work, client: Cluster, source: ProducerIdSource, target: TopicPartition) -> None:
        self._work = work
        self._client = client
        self._source = source
        self.target = target
        self.unacknowledged: deque[Batch] = deque()
        self.next_sequence = 0

    def add(self, identity: ProducerIdAndEpoch, writes: Sequence[Write]) -> Batch:
        """Append a new batch to those that `deliver` or the caller sends."""
        now_ms = self._work.context.cluster.clock.now_ms()
        data = build_batch(
            [Record(number, now_ms, None, write.value) for number, write in enumerate(writes)],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=self.next_sequence,
            is_transactional=identity.is_transactional,
        )
        self.next_sequence += len(writes)
        batch = Batch(writes, bytes(data))
        self.unacknowledged.append(batch)
        return batch

    async def connect(self) -> ClientConnection:
        await self._client.topics_in_use([self.target.topic])
        leader = self._client.metadata.leader_of(self.target)
        return await self._client.connections.to(leader.broker.address)

    async def send(self, connection: ClientConnection, batch: Batch, errors: list[Exception]) -> None:
        """Send the batch, unless an earlier one has failed: all requests in flight must end before one is repeated."""
        if errors:
            return
        work = self._work
        try:
            offset = await produce(
                connection,
                self.target,
                batch.data,
                work.one_of(ONE_SHOT_TIMEOUTS_MS),
                transactional_id=self._source.transactional_id,
                version=min(NAMED_VERSION, self._source.last_produce_version),
            )
        except (OutOfOrderSequenceNumber, DuplicateSequenceNumber, UnknownProducerId) as error:
            errors.append(error)
            work.noted.append(f"I5 {self.target} did not expect {batch.writes[0].value!r}: {error}")
        except ClientErrors as error:
            errors.append(error)
        else:
            batch.is_acknowledged = True
            for number, write in enumerate(batch.writes):
                work.history.acknowledge(write, offset + number)
            while self.unacknowledged and self.unacknowledged[0].is_acknowledged:
                self.unacknowledged.popleft()

    async def deliver(self, timeout_s: float) -> None:
        """Send all batches until they are acknowledged. Raises an error that is not retriable, or the last one."""
        end = self._work.context.now + timeout_s
        while self.unacknowledged:
            seen_version = self._client.metadata.version
            errors: list[Exception] = []
            try:
                connection = await self.connect()
            except ClientErrors as error:
                errors.append(error)
            else:
                in_flight = list(self.unacknowledged)[:MAX_IN_FLIGHT]
                await together(self.send(connection, batch, errors) for batch in in_flight)
            if errors:
                if not _is_retriable(errors[0]) or self._work.context.now > end:
                    raise errors[0]
                await self.refresh(seen_version)

    async def refresh(self, seen_version: int) -> None:
        await self._work.pace(MAX_PAUSE_MS)
        with suppress(*ClientErrors):
            await self._client.refresh(seen_version)


def _is_retriable(error: Exception) -> bool:
    return not isinstance(error, KafkaError) or error.retriable


class PipelinedWrites(WorkOnOrders):
    """Idempotent producers with five requests in flight: acknowledged records exist once, in order."""

    name = "pipelined_writes"

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._identity = IdempotentIdentity(self._client)
        self._is_done = False

    async def run(self, is_over: Callable[[], bool]) -> None:
        pipelines = [Pipeline(self, self._client, self._identity, each) for each in await orders(self.context)]
        await together(self._write(each, is_over) for each in pipelines)
        self._is_done = True

    def unsettled(self) -> Iterator[str]:
        if not self._is_done:
            yield "I7 a producer with five requests in flight still waits"

    async def _write(self, pipeline: Pipeline, is_over: Callable[[], bool]) -> None:
        while not is_over() or pipeline.unacknowledged:
            seen_version = self._client.metadata.version
            with suppress(*ClientErrors):
                identity = await self._identity.get(pipeline.target)
                await self._send_until_an_error(pipeline, identity, is_over)
            if not is_over() or pipeline.unacknowledged:
                await pipeline.refresh(seen_version)

    async def _send_until_an_error(
        self, pipeline: Pipeline, identity: ProducerIdAndEpoch, is_over: Callable[[], bool]
    ) -> None:
        connection, unacknowledged = await pipeline.connect(), pipeline.unacknowledged
        errors: list[Exception] = []
        async with asyncio.TaskGroup() as group:
            for batch in list(unacknowledged):
                group.create_task(pipeline.send(connection, batch, errors))
            while not errors and not is_over():
                for _ in range(1 + self.randomness.below(BATCHES_PER_BURST)):
                    if len(unacknowledged) < MAX_IN_FLIGHT:
                        batch = pipeline.add(identity, self._new_writes(pipeline))
                        group.create_task(pipeline.send(connection, batch, errors))
                await self.pace(MAX_PAUSE_MS)

    def _new_writes(self, pipeline: Pipeline) -> list[Write]:
        target, sequence = pipeline.target, pipeline.next_sequence
        return [
            self.history.begin(
                Write(target, f"p{target.partition}-{sequence + number}".encode(), f"{self.name}-{target.partition}")
            )
            for number in range(1 + self.randomness.below(RECORDS_PER_BATCH))
        ]


class PipelinedTransactions(Transactions):
    """Transactions whose batches are in flight together, also the first ones, which wait for their verification."""

    name = "pipelined_transactions"
    id_prefix = "piped"
    value_prefix = "y"

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._writing = context.client(f"{self.name}-writing")
        self._sequences: dict[tuple[TopicPartition, ProducerIdAndEpoch], int] = {}

    async def _write(
        self,
        producer: TransactionalProducer,
        partitions: Sequence[TopicPartition],
        transaction: Transaction,
        deliveries: list[tuple[Delivery, Write]],
    ) -> None:
        targets = [each for each in partitions if not self.is_one_in(3)] or [partitions[0]]
        try:
            for target in targets:
                await self._write_to(target, producer, transaction)
        except ClientErrors:
            producer.identity.is_failed = True
            raise

    async def _write_to(
        self, target: TopicPartition, producer: TransactionalProducer, transaction: Transaction
    ) -> None:
        identity = await producer.identity.get(target)
        pipeline = Pipeline(self, self._writing, producer.identity, target)
        pipeline.next_sequence = self._sequences.get((target, identity), 0)
        for _ in range(1 + self.randomness.below(BATCHES_PER_BURST)):
            count = 1 + self.randomness.below(RECORDS_PER_BATCH)
            pipeline.add(identity, [self.begin_write(target, transaction) for _ in range(count)])
        self._sequences[target, identity] = pipeline.next_sequence
        await pipeline.deliver(DELIVERY_TIMEOUT_S)

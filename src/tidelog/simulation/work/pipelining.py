"""Work of an idempotent producer with five requests in flight for a partition, as most Kafka clients have."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from tidelog.client.network.connection import ClientConnection
from tidelog.client.producer.producer_batch import ProducerIdAndEpoch
from tidelog.client.producer.producer_identity import IdempotentIdentity
from tidelog.errors import DuplicateSequenceNumber, OutOfOrderSequenceNumber, UnknownProducerId
from tidelog.protocol.records import Record, build_batch
from tidelog.simulation.clients import ClientErrors
from tidelog.simulation.history import Write
from tidelog.simulation.work.base import WorkContext, together
from tidelog.simulation.work.writing import MAX_PAUSE_MS, ONE_SHOT_TIMEOUTS_MS, WorkOnOrders, orders, produce
from tidelog.types import TopicPartition

MAX_IN_FLIGHT = 5
RECORDS_PER_BATCH = 3
BATCHES_PER_BURST = 8


class Batch:
    """Sent again with the same sequence until it is acknowledged."""

    def __init__(self, base_sequence: int, writes: list[Write], data: bytes) -> None:
        self.base_sequence = base_sequence
        self.writes = writes
        self.data = data
        self.is_acknowledged = False


class PipelinedWrites(WorkOnOrders):
    """Acknowledged records exist once, in order, and no broker finds a sequence unexpected.

    librdkafka would continue with another producer epoch, in all partitions, and brokers would take batches that it
    repeats there for new ones.
    """

    name = "pipelined_writes"

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._identity = IdempotentIdentity(self._client)
        self._unacknowledged: dict[TopicPartition, deque[Batch]] = {}
        self._next_sequences: dict[TopicPartition, int] = {}
        self._is_done = False

    async def run(self, is_over: Callable[[], bool]) -> None:
        partitions = list(await orders(self.context))
        await together(self._write(each, is_over) for each in partitions)
        self._is_done = True

    def unsettled(self) -> Iterator[str]:
        if not self._is_done:
            yield "I7 a producer with five requests in flight still waits"

    async def _write(self, target: TopicPartition, is_over: Callable[[], bool]) -> None:
        self._unacknowledged[target] = deque()
        self._next_sequences[target] = 0
        while not is_over() or self._unacknowledged[target]:
            seen_version = self._client.metadata.version
            with suppress(*ClientErrors):
                identity = await self._identity.get(target)
                await self._client.topics_in_use([target.topic])
                leader = self._client.metadata.leader_of(target)
                connection = await self._client.connections.to(leader.broker.address)
                await self._send_until_an_error(connection, identity, target, is_over)
            if not is_over() or self._unacknowledged[target]:
                await self.pace(MAX_PAUSE_MS)
                with suppress(*ClientErrors):
                    await self._client.refresh(seen_version)

    async def _send_until_an_error(
        self,
        connection: ClientConnection,
        identity: ProducerIdAndEpoch,
        target: TopicPartition,
        is_over: Callable[[], bool],
    ) -> None:
        """After an error nothing more is sent until all requests in flight are answered or lost."""
        unacknowledged = self._unacknowledged[target]
        errors: list[Exception] = []
        async with asyncio.TaskGroup() as group:
            for batch in list(unacknowledged):
                group.create_task(self._send(connection, target, batch, errors))
            while not errors and not is_over():
                for _ in range(1 + self.randomness.below(BATCHES_PER_BURST)):
                    if len(unacknowledged) < MAX_IN_FLIGHT:
                        batch = self._new_batch(identity, target)
                        unacknowledged.append(batch)
                        group.create_task(self._send(connection, target, batch, errors))
                await self.pace(MAX_PAUSE_MS)

    def _new_batch(self, identity: ProducerIdAndEpoch, target: TopicPartition) -> Batch:
        sequence = self._next_sequences[target]
        writer, now_ms = f"{self.name}-{target.partition}", self.context.cluster.clock.now_ms()
        writes = [
            self.history.begin(Write(target, f"p{target.partition}-{sequence + number}".encode(), writer))
            for number in range(1 + self.randomness.below(RECORDS_PER_BATCH))
        ]
        self._next_sequences[target] = sequence + len(writes)
        data = build_batch(
            [Record(number, now_ms, None, write.value) for number, write in enumerate(writes)],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
        )
        return Batch(sequence, writes, bytes(data))

    async def _send(
        self, connection: ClientConnection, target: TopicPartition, batch: Batch, errors: list[Exception]
    ) -> None:
        if errors:
            return
        unacknowledged = self._unacknowledged[target]
        try:
            offset = await produce(connection, target, batch.data, self.one_of(ONE_SHOT_TIMEOUTS_MS))
        except (OutOfOrderSequenceNumber, DuplicateSequenceNumber, UnknownProducerId) as error:
            errors.append(error)
            self.noted.append(f"I5 {target} did not expect {batch.writes[0].value!r}: {error}")
        except ClientErrors as error:
            errors.append(error)
        else:
            batch.is_acknowledged = True
            for number, write in enumerate(batch.writes):
                self.history.acknowledge(write, offset + number)
            while unacknowledged and unacknowledged[0].is_acknowledged:
                unacknowledged.popleft()

"""Writer of one partition: delivers batches in order, one in flight, to the current leader."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from tidelog.client.network.connection import ClientConnection
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import Attempts, GaveUp
from tidelog.client.producer.producer_batch import Batch, FillingBatch, ProducerIdAndEpoch, Written
from tidelog.client.producer.producer_identity import ProducerIdSource
from tidelog.client.producer.producer_settings import ProducerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import (
    NO_ERROR,
    DuplicateSequenceNumber,
    KafkaError,
    MessageTooLarge,
    RecordListTooLarge,
    error_of,
)
from tidelog.protocol.messages.produce import (
    TOPIC_IDS_FROM_VERSION,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.protocol.record_batch import add_sequence
from tidelog.terminal.plurals import plural
from tidelog.types import ZERO_UUID, TopicPartition

logger = logging.getLogger(__name__)

GRACE_S = 5.0
"""Extra time beyond the broker's timeout: the broker's error is more precise than a timeout here."""


class PartitionWriter:
    """One batch in flight keeps the order. Records that arrive meanwhile fill the next batch."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        cluster: Cluster,
        settings: ProducerSettings,
        identity: ProducerIdSource,
        on_done: Callable[[Batch], None],
    ) -> None:
        self._topic_partition = topic_partition
        self._cluster = cluster
        self._settings = settings
        self._producer_identity = identity
        self._on_done = on_done
        self._batches: deque[Batch] = deque()
        self.filling: FillingBatch | None = None
        """The batch that takes more records, the last one."""
        self._has_batches = asyncio.Event()
        self._identity: ProducerIdAndEpoch | None = None
        self._next_sequence = 0

    def new_batch(self) -> FillingBatch:
        """For a record that does not fit into the last one, which is sent now."""
        if self._batches:
            self._batches[-1].ready.set()
        loop = asyncio.get_running_loop()
        batch = self.filling = FillingBatch(self._topic_partition, loop.time(), self._settings.batch_bytes)
        if self._settings.linger_s > 0:
            loop.call_later(self._settings.linger_s, batch.ready.set)
        else:
            batch.ready.set()  # also takes the records that are added before the writer runs
        self.append_batch(batch)
        return batch

    def append_batch(self, batch: Batch) -> None:
        """Sent when it is ready, after all batches before it."""
        if batch is not self.filling:
            self.filling = None  # records that follow come after this batch
        self._batches.append(batch)
        self._has_batches.set()

    def send_now(self) -> None:
        for batch in self._batches:
            batch.ready.set()

    async def run(self) -> None:
        """Deliver batches until cancelled."""
        try:
            while True:
                while not self._batches:
                    self._has_batches.clear()
                    await self._has_batches.wait()
                await self._batches[0].ready.wait()
                batch = self._batches.popleft()
                if batch is self.filling:
                    self.filling = None
                await self._deliver(batch)
        finally:
            while self._batches:
                self._fail(self._batches.popleft(), _closed())

    # ---- one batch

    async def _deliver(self, batch: Batch) -> None:
        try:
            written = await self._try_until_written(batch)
        except (MessageTooLarge, RecordListTooLarge) as error:
            if batch.record_count == 1:
                size_bytes = len(batch.encoded(self._settings.compression))
                what = f"a record of {size_bytes} bytes for {self._topic_partition} is too large"
                self._fail(batch, type(error)(f"{what}: {error.message}"))
            else:
                self._batches.extendleft(reversed(batch.split()))
        except (KafkaError, ConnectionLost, GaveUp) as error:
            self._fail(batch, error)
        except BaseException:
            self._fail(batch, _closed())
            raise
        else:
            batch.outcome.set_result(written)
            self._on_done(batch)

    def _fail(self, batch: Batch, error: Exception) -> None:
        batch.outcome.set_exception(error)
        batch.outcome.exception()  # mark as retrieved: callers need not await the delivery
        if batch.identity is not None:
            # It may or may not be written, so the next sequence is unknown: continue with a new producer id.
            self._producer_identity.renew(batch.identity)
            self._identity = None
            # A part of a split batch that may be written would be written twice under another producer id.
            doubtful = [each for each in self._batches if each.identity is not None and each.may_be_written]
            self._batches = deque(each for each in self._batches if each not in doubtful)
            for waiting in self._batches:
                waiting.identity = None
            for each in doubtful:
                each.identity = None
                self._fail(each, error)
        self._on_done(batch)

    async def _try_until_written(self, batch: Batch) -> Written:
        attempts = self._attempts(batch)
        while True:
            seen_version = self._cluster.metadata.version
            try:
                return await self._write(batch, attempts)
            except DuplicateSequenceNumber:
                return Written()
            except (KafkaError, ConnectionLost) as error:
                logger.debug("write failed, retrying partition=%s reason=%s", self._topic_partition, error)
                if not isinstance(error, MessageTooLarge | RecordListTooLarge):
                    batch.may_be_written = True
                await attempts.after(error)
            await self._refresh_leader(seen_version, attempts)

    def _attempts(self, batch: Batch) -> Attempts:
        what = f"{plural(batch.record_count, 'record')} for {self._topic_partition}"
        timeout_s = self._settings.delivery_timeout_s
        attempts = Attempts(
            what,
            timeout_s,
            self._cluster.randomness,
            started_at=batch.created_at,
            report=self._cluster.report_waiting,
        )
        if attempts.remaining_s <= 0:
            raise GaveUp(f"{what}: not sent within {timeout_s:g} s because earlier records took too long")
        return attempts

    async def _refresh_leader(self, seen_version: int, attempts: Attempts) -> None:
        try:
            await self._cluster.refresh(seen_version)
        except (KafkaError, ConnectionLost) as error:
            await attempts.after(error)

    async def _write(self, batch: Batch, attempts: Attempts) -> Written:
        leader = self._cluster.metadata.leader_of(self._topic_partition)
        connection = await self._cluster.connections.to(leader.broker.address)
        if self._settings.is_idempotent and batch.identity is None:
            self._number(batch, await self._producer_identity.get(self._topic_partition))
        timeout_s = min(self._settings.request_timeout_s, attempts.remaining_s)
        version = connection.version_of(ProduceRequest)
        topic_id = self._cluster.metadata.topic(self._topic_partition.topic).topic_id
        if topic_id == ZERO_UUID:
            version = min(version, TOPIC_IDS_FROM_VERSION - 1)
        version = min(version, self._producer_identity.last_produce_version)
        request = self._request(batch, topic_id, timeout_s)
        if self._settings.acks == 0:
            return await _send_unacknowledged(connection, request, version)
        response = await connection.ask(request, ProduceResponse, timeout_s=timeout_s + GRACE_S, version=version)
        return _written(response, self._topic_partition)

    def _number(self, batch: Batch, identity: ProducerIdAndEpoch) -> None:
        if self._identity != identity:
            self._identity, self._next_sequence = identity, 0
        batch.assign(identity, self._next_sequence)
        self._next_sequence = add_sequence(self._next_sequence, batch.record_count)

    def _request(self, batch: Batch, topic_id: bytes, timeout_s: float) -> ProduceRequest:
        records = memoryview(batch.encoded(self._settings.compression))
        data = PartitionProduceData(index=self._topic_partition.partition, records=records)
        topic = TopicProduceData(name=self._topic_partition.topic, topic_id=topic_id, partition_data=[data])
        return ProduceRequest(
            transactional_id=self._producer_identity.transactional_id,
            acks=self._settings.acks,
            timeout_ms=int(timeout_s * 1000),
            topic_data=[topic],
        )


def _closed() -> ConnectionLost:
    return ConnectionLost("the producer was closed before the record was acknowledged")


async def _send_unacknowledged(connection: ClientConnection, request: ProduceRequest, version: int) -> Written:
    connection.send_without_answer(request, version=version)
    await connection.drained()
    return Written()


def _written(response: ProduceResponse, topic_partition: TopicPartition) -> Written:
    (answer,) = response.responses[0].partition_responses
    if answer.error_code != NO_ERROR:
        raise error_of(answer.error_code, str(topic_partition), answer.error_message)
    return Written(answer.base_offset, answer.log_append_time_ms)

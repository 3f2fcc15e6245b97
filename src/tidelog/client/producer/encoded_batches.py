"""Producer of encoded batches: assigns sequence numbers and delivers them."""

import asyncio
from typing import NamedTuple

from tidelog.client.producer.partition_writers import PartitionWriters
from tidelog.client.producer.producer_batch import Batch, ProducerIdAndEpoch, Written
from tidelog.client.producer.producer_identity import ProducerIdSource
from tidelog.client.producer.producer_settings import ProducerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import add_sequence, identify, read_header
from tidelog.protocol.records import Record, build_batch, codec_of, records_of
from tidelog.types import TopicPartition


class EncodedBatch(NamedTuple):
    """Modified in place when it is sent: the caller must not use it again."""

    data: bytearray
    """A v2 batch with base offset 0, without producer fields and CRC."""
    record_count: int


class BatchProducer:
    """`async with BatchProducer(cluster) as producer`. Batches of one partition keep the order of the calls."""

    def __init__(
        self, cluster: Cluster, settings: ProducerSettings | None = None, identity: ProducerIdSource | None = None
    ) -> None:
        self._writers = PartitionWriters(cluster, settings or ProducerSettings(), identity)

    async def __aenter__(self) -> "BatchProducer":
        await self._writers.open()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        await self._writers.close(error)

    @property
    def acknowledged_records(self) -> int:
        return self._writers.acknowledged_records

    async def send(self, topic_partition: TopicPartition, batch: EncodedBatch) -> None:
        """Returns when the batch is buffered. Raises the first failure of earlier batches."""
        await self._writers.wait_for_room()
        self._writers.raise_failure()
        topic = await self._writers.find_topic(topic_partition.topic)
        writer = self._writers.of(topic_partition, topic)
        sealed = _SealedBatch(topic_partition, asyncio.get_running_loop().time(), len(batch.data), batch)
        writer.append_batch(sealed)
        self._writers.add_buffered_bytes(sealed.size_bytes)

    async def flush(self) -> None:
        """Returns when everything sent so far is acknowledged; raises the first failure."""
        await self._writers.flush()


class _SealedBatch(Batch):
    """Complete from the start. The CRC is set with the sequence numbers, or before the first send."""

    def __init__(
        self, topic_partition: TopicPartition, created_at: float, size_bytes: int, batch: EncodedBatch
    ) -> None:
        super().__init__(topic_partition, created_at, size_bytes)
        self._batch = batch
        self._is_identified = False
        self.ready.set()

    @property
    def record_count(self) -> int:
        return self._batch.record_count

    def assign(self, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        super().assign(identity, base_sequence)
        self._is_identified = False

    def encoded(self, compression: Codec) -> bytearray:
        if not self._is_identified:
            identity = self.identity or ProducerIdAndEpoch()
            identify(
                self._batch.data,
                identity.producer_id,
                identity.producer_epoch,
                self.base_sequence,
                is_transactional=identity.is_transactional,
            )
            self._is_identified = True
        return self._batch.data

    def split(self) -> "tuple[_SealedBatch, _SealedBatch]":
        """Slow, through the records. Not needed if the producer respects the topic's max.message.bytes."""
        compression = codec_of(read_header(self._batch.data))
        records = list(records_of(self._batch.data))
        middle, half_bytes = len(records) // 2, self.size_bytes // 2
        first = self._part(records[:middle], 0, half_bytes, compression)
        second = self._part(records[middle:], middle, self.size_bytes - half_bytes, compression)
        self.outcome.set_result(Written())
        return first, second

    def _part(self, records: list[Record], start: int, size_bytes: int, compression: Codec) -> "_SealedBatch":
        renumbered = [record._replace(offset=index) for index, record in enumerate(records)]
        batch = EncodedBatch(build_batch(renumbered, compression=compression), len(records))
        part = _SealedBatch(self.topic_partition, self.created_at, size_bytes, batch)
        part.may_be_written = self.may_be_written
        if self.identity is not None:
            part.assign(self.identity, add_sequence(self.base_sequence, start))
        return part

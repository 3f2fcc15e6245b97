"""Writes records to topics: `await producer.send(...)` returns when they are where the settings want them."""

import asyncio

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicMetadata
from tidelog.client.partition_writer import PartitionWriter
from tidelog.client.partitioner import StickyPartitions, partition_of_key
from tidelog.client.pipeline import ConnectionLost
from tidelog.client.producer_batch import Acknowledgement, Batch, Delivery, record_bytes
from tidelog.client.producer_identity import ProducerIdentity
from tidelog.client.producer_settings import ProducerSettings
from tidelog.client.tasks import BackgroundTasks
from tidelog.errors import KafkaError, UnknownTopicOrPartition
from tidelog.protocol.records import Headers, Record
from tidelog.runtime.clock import Clock
from tidelog.types import TopicPartition

__all__ = ["Acknowledgement", "Delivery", "Producer", "ProducerSettings"]


class NoSuchPartition(UnknownTopicOrPartition):
    """The record names a partition that its topic does not have."""

    retriable = False


class Producer:
    """`async with Producer(cluster, clock) as producer`. Records of one partition stay in the order of the calls."""

    def __init__(self, cluster: Cluster, clock: Clock, settings: ProducerSettings | None = None) -> None:
        self._cluster = cluster
        self._clock = clock
        self.settings = settings or ProducerSettings()
        self._identity = ProducerIdentity(cluster)
        self._sticky = StickyPartitions(cluster.randomness)
        self._writers: dict[TopicPartition, PartitionWriter] = {}
        self._tasks = BackgroundTasks()
        self._unfinished_bytes = 0
        self._progress = asyncio.Event()
        self._failure: BaseException | None = None
        self.acknowledged_records = 0

    async def __aenter__(self) -> "Producer":
        await self._tasks.open()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self._tasks.close(error)

    # -- sending

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Acknowledgement:
        """Returns when the record is acknowledged; raises KafkaError, ConnectionLost or GaveUp."""
        delivery = await self.enqueue(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        return await delivery

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Returns when there is room for the record; await the delivery, or `flush`, for the rest."""
        while self._unfinished_bytes > self.settings.max_buffered_bytes:
            await self._next_progress()
        found = self._cluster.metadata.topics.get(topic) or await self._find_topic(topic)
        record = Record(0, self._clock.now_ms() if timestamp_ms is None else timestamp_ms, key, value, headers)
        chosen = self._choose(found, key, partition)
        writer = self._writer_of(TopicPartition(topic, chosen))
        size_bytes = record_bytes(record)
        delivery, batch_was_full = writer.append(record, size_bytes)
        self._unfinished_bytes += size_bytes
        if batch_was_full and key is None and partition is None:
            self._sticky.move_on(found)
        return delivery

    async def _find_topic(self, topic: str) -> TopicMetadata:
        attempts = self._cluster.attempts(f"looking for topic {topic}", self.settings.metadata_timeout_s)
        may_create = self.settings.may_create_topics
        while True:
            try:
                await self._cluster.topics_in_use([topic], may_create=may_create)
                return self._cluster.metadata.topic(topic)
            except (KafkaError, ConnectionLost) as error:
                await attempts.after(error)
            try:
                await self._cluster.ask_topics([topic], may_create=may_create)
            except (KafkaError, ConnectionLost) as error:
                await attempts.after(error)

    def _choose(self, topic: TopicMetadata, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            if partition not in topic.partitions:
                count = len(topic.partitions)
                raise NoSuchPartition(f"topic {topic.name} has {count} partitions, there is no partition {partition}")
            return partition
        if key is not None:
            return partition_of_key(key, len(topic.partitions))
        return self._sticky.choose(topic)

    def _writer_of(self, topic_partition: TopicPartition) -> PartitionWriter:
        writer = self._writers.get(topic_partition)
        if writer is None:
            writer = PartitionWriter(topic_partition, self._cluster, self.settings, self._identity, self._on_done)
            self._writers[topic_partition] = writer
            self._tasks.start(writer.run())
        return writer

    # -- the end of batches

    def _on_done(self, batch: Batch) -> None:
        self._unfinished_bytes -= batch.size_bytes
        error = batch.outcome.exception()
        if error is None:
            self.acknowledged_records += len(batch.records)
        else:
            self._failure = self._failure or error
        self._progress.set()

    async def flush(self) -> None:
        """Returns when everything sent so far is acknowledged; raises the first failure since the last flush."""
        for writer in self._writers.values():
            writer.hurry()
        while self._unfinished_bytes:
            await self._next_progress()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises the first failure since the last time this was asked."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _next_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()

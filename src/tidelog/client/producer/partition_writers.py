"""Partition writers of one producer: one per partition, with a common buffer limit and the first failure."""

import asyncio

from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.tasks import BackgroundTasks
from tidelog.client.producer.partition_writer import PartitionWriter
from tidelog.client.producer.producer_batch import Batch
from tidelog.client.producer.producer_identity import IdempotentIdentity, ProducerIdSource
from tidelog.client.producer.producer_settings import ProducerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import TopicMetadata
from tidelog.errors import KafkaError, UnknownTopicOrPartition
from tidelog.terminal.plurals import plural
from tidelog.types import TopicPartition


class NoSuchPartition(UnknownTopicOrPartition):
    """The partition of the record does not exist."""

    retriable = False


class PartitionWriters:
    def __init__(self, cluster: Cluster, settings: ProducerSettings, identity: ProducerIdSource | None = None) -> None:
        self._cluster = cluster
        self._settings = settings
        self._identity = identity or IdempotentIdentity(cluster)
        self._writers: dict[TopicPartition, PartitionWriter] = {}
        self._tasks = BackgroundTasks()
        self.unfinished_bytes = 0
        """Of records that are not acknowledged."""
        self._progress = asyncio.Event()
        self._failure: BaseException | None = None
        self.acknowledged_records = 0

    async def open(self) -> None:
        await self._tasks.open()

    async def close(self, error: BaseException | None) -> None:
        """Flush, unless the producer's block was left by an error."""
        try:
            if error is None:
                await self.flush()
        finally:
            await self._tasks.close(error)

    async def find_topic(self, topic: str) -> TopicMetadata:
        """Raises the broker's error, or GaveUp if the topic does not appear."""
        found = self._cluster.metadata.topics.get(topic)
        return found if found is not None else await self._look_for_topic(topic)

    async def _look_for_topic(self, topic: str) -> TopicMetadata:
        attempts = self._cluster.attempts(f"looking for topic {topic}", self._settings.metadata_timeout_s)
        may_create = self._settings.may_create_topics
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

    def of(self, topic_partition: TopicPartition, topic: TopicMetadata) -> PartitionWriter:
        """Raises NoSuchPartition."""
        writer = self._writers.get(topic_partition)
        if writer is None:
            if topic_partition.partition not in topic.partitions:
                raise _no_such_partition(topic_partition, topic)
            writer = PartitionWriter(topic_partition, self._cluster, self._settings, self._identity, self._on_done)
            self._writers[topic_partition] = writer
            self._tasks.start(writer.run())
        return writer

    # ---- buffered records

    async def wait_for_room(self) -> None:
        while self.unfinished_bytes > self._settings.max_buffered_bytes:
            await self._next_progress()

    def add_buffered_bytes(self, size_bytes: int) -> None:
        self.unfinished_bytes += size_bytes

    def _on_done(self, batch: Batch) -> None:
        self.unfinished_bytes -= batch.size_bytes
        error = batch.outcome.exception()
        if error is None:
            self.acknowledged_records += batch.record_count
        else:
            self._failure = self._failure or error
        self._progress.set()

    async def flush(self) -> None:
        """Wait until everything is acknowledged. Raises the first failure since the last flush."""
        for writer in self._writers.values():
            writer.send_now()
        while self.unfinished_bytes:
            await self._next_progress()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the first failure since the last call."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _next_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()


def _no_such_partition(key: TopicPartition, topic: TopicMetadata) -> NoSuchPartition:
    count = len(topic.partitions)
    return NoSuchPartition(
        f"topic {topic.name} has {plural(count, 'partition')}; partition {key.partition} does not exist"
    )

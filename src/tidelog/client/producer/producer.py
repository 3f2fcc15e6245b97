"""Producer: `await producer.send(...)` returns when the record is acknowledged according to `acks`."""

from tidelog.client.producer.partition_writer import PartitionWriter
from tidelog.client.producer.partition_writers import NoSuchPartition, PartitionWriters
from tidelog.client.producer.partitioner import StickyPartitions, partition_of_key
from tidelog.client.producer.producer_batch import Acknowledgement, Delivery, checked_fields, record_bytes
from tidelog.client.producer.producer_identity import ProducerIdSource
from tidelog.client.producer.producer_settings import ProducerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import TopicMetadata
from tidelog.protocol.records import Headers
from tidelog.runtime.clock import Clock
from tidelog.types import TopicPartition

__all__ = ["Acknowledgement", "Delivery", "NoSuchPartition", "Producer", "ProducerSettings"]


class Producer:
    """`async with Producer(cluster, clock) as producer`. Records of one partition keep the order of the calls."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        settings: ProducerSettings | None = None,
        identity: ProducerIdSource | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self.settings = settings or ProducerSettings()
        self._sticky = StickyPartitions(cluster.randomness)
        self._writers = PartitionWriters(cluster, self.settings, identity)
        self._sticky_topic: TopicMetadata | None = None
        self._sticky_writer: PartitionWriter | None = None
        """Writer of the last record without a key, of this version of the topic's metadata."""

    async def __aenter__(self) -> "Producer":
        await self._writers.open()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        await self._writers.close(error)

    # ---- sending

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
        """Returns when the record is buffered. Await the delivery, or `flush`, for the acknowledgement."""
        # Once for each record: nothing is awaited, and nothing created, that is not needed.
        writers = self._writers
        if writers.unfinished_bytes > self.settings.max_buffered_bytes:
            await writers.wait_for_room()
        found = self._cluster.metadata.topics.get(topic)
        if found is None:
            found = await writers.find_topic(topic)
        if headers or type(value) is not bytes or key is not None:
            key, value, headers = checked_fields(key, value, headers)
        is_sticky = key is None and partition is None
        if is_sticky and found is self._sticky_topic and self._sticky_writer is not None:
            writer = self._sticky_writer
        else:
            writer = self._writer_of(found, key, partition)
        size_bytes = record_bytes(key, value, headers)
        batch = writer.filling
        if batch is None or batch.room_bytes < size_bytes:
            if batch is not None and is_sticky:
                self._sticky.move_on(found)  # from the next record on: this one is the first of a new batch here
                self._sticky_topic = None
            batch = writer.new_batch()
        now_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        delivery = batch.add(now_ms, key, value, headers, size_bytes)
        writers.unfinished_bytes += size_bytes
        return delivery

    def _writer_of(self, topic: TopicMetadata, key: bytes | None, partition: int | None) -> PartitionWriter:
        if partition is not None:
            chosen = partition
        elif key is not None:
            chosen = partition_of_key(key, len(topic.partitions))
        else:
            chosen = self._sticky.choose(topic)
        writer = self._writers.of(TopicPartition(topic.name, chosen), topic)
        if key is None and partition is None:
            self._sticky_topic, self._sticky_writer = topic, writer
        return writer

    # ---- acknowledgements

    @property
    def acknowledged_records(self) -> int:
        return self._writers.acknowledged_records

    async def flush(self) -> None:
        """Wait until everything is acknowledged. Raises the first failure since the last flush."""
        await self._writers.flush()

    def raise_failure(self) -> None:
        """Raise the first failure since the last call."""
        self._writers.raise_failure()

"""Producer: `await producer.send(...)` returns when the record is acknowledged according to `acks`."""

from tidelog.client.producer.partition_writers import NoSuchPartition, PartitionWriters
from tidelog.client.producer.partitioner import StickyPartitions, partition_of_key
from tidelog.client.producer.producer_batch import Acknowledgement, Delivery, record_bytes
from tidelog.client.producer.producer_identity import ProducerIdSource
from tidelog.client.producer.producer_settings import ProducerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import TopicMetadata
from tidelog.protocol.records import Headers, Record
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
        await self._writers.wait_for_room()
        found = await self._writers.find_topic(topic)
        record = Record(0, self._clock.now_ms() if timestamp_ms is None else timestamp_ms, key, value, headers)
        chosen = self._choose(found, key, partition)
        writer = self._writers.of(TopicPartition(topic, chosen), found)
        size_bytes = record_bytes(record)
        delivery, batch_was_full = writer.append(record, size_bytes)
        self._writers.add_buffered_bytes(size_bytes)
        if batch_was_full and key is None and partition is None:
            self._sticky.move_on(found)
        return delivery

    def _choose(self, topic: TopicMetadata, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            return partition
        if key is not None:
            return partition_of_key(key, len(topic.partitions))
        return self._sticky.choose(topic)

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

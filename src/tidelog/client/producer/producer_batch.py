"""Batches of a producer for one partition, with the delivery of each record."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from typing import Any, NamedTuple

from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import add_sequence
from tidelog.protocol.records import Headers, PlainRecord, build_batch
from tidelog.types import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
    TopicPartition,
)

RECORD_OVERHEAD_BYTES = 20
HEADER_OVERHEAD_BYTES = 4


class ProducerIdAndEpoch(NamedTuple):
    """Producer id and epoch, by which brokers recognise repeated batches."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_transactional: bool = False


class Written(NamedTuple):
    """Response of the leader to a batch; -1 where it has no value."""

    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP


class Acknowledgement(NamedTuple):
    """Partition and offset of a record. With acks=0 the offset is -1."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Batch(ABC):
    """Unit of delivery; its outcome is the outcome of its records."""

    def __init__(self, topic_partition: TopicPartition, created_at: float, size_bytes: int = 0) -> None:
        self.topic_partition = topic_partition
        self.created_at = created_at
        self.size_bytes = size_bytes
        self.ready = asyncio.Event()
        self.outcome: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        self.identity: ProducerIdAndEpoch | None = None
        self.base_sequence = NO_SEQUENCE
        self.may_be_written = False
        """An attempt to write it (or the batch it was split from) failed without proof that it was not written."""

    @property
    @abstractmethod
    def record_count(self) -> int: ...

    def assign(self, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        """Fix producer id and sequence: every attempt sends the same bytes, so that brokers detect duplicates."""
        self.identity = identity
        self.base_sequence = base_sequence

    @abstractmethod
    def encoded(self, compression: Codec) -> Buffer:
        """Encoded bytes; `compression` applies to records that are not encoded yet."""

    @abstractmethod
    def split(self) -> "tuple[Batch, Batch]":
        """Split into two halves. The batch must not have been written."""


class FillingBatch(Batch):
    """Accepts records until it is full or in flight."""

    def __init__(self, topic_partition: TopicPartition, created_at: float, room_bytes: int = 0) -> None:
        super().__init__(topic_partition, created_at)
        self.room_bytes = room_bytes
        """What still fits, beyond the first record."""
        self.records: list[PlainRecord] = []
        self.halves: tuple[FillingBatch, FillingBatch] | None = None
        self._encoded: bytes | None = None

    @property
    def record_count(self) -> int:
        return len(self.records)

    def add(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers, size_bytes: int
    ) -> "Delivery":
        records = self.records
        index = len(records)
        records.append((index, timestamp_ms, key, value, headers))
        self.size_bytes += size_bytes
        self.room_bytes -= size_bytes
        return Delivery(self, index)

    def assign(self, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        super().assign(identity, base_sequence)
        self._encoded = None

    def encoded(self, compression: Codec) -> bytes:
        if self._encoded is None:
            identity = self.identity or ProducerIdAndEpoch()
            self._encoded = bytes(
                build_batch(
                    self.records,
                    compression=compression,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    base_sequence=self.base_sequence,
                    is_transactional=identity.is_transactional,
                )
            )
        return self._encoded

    def split(self) -> "tuple[FillingBatch, FillingBatch]":
        middle = len(self.records) // 2
        first, second = self._part(0, middle), self._part(middle, len(self.records))
        self.halves = (first, second)
        self.outcome.set_result(Written())
        return first, second

    def _part(self, start: int, end: int) -> "FillingBatch":
        part = FillingBatch(self.topic_partition, self.created_at)
        for record in self.records[start:end]:
            _, timestamp_ms, key, value, headers = record
            part.add(timestamp_ms, key, value, headers, record_bytes(key, value, headers))
        part.may_be_written = self.may_be_written
        if self.identity is not None:
            part.assign(self.identity, add_sequence(self.base_sequence, start))
        part.ready.set()
        return part


class Delivery:
    """Delivery of one record; await it for the acknowledgement."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: FillingBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __await__(self) -> Generator[Any, None, Acknowledgement]:
        written = yield from asyncio.shield(self._batch.outcome).__await__()
        while self._batch.halves is not None:
            self._descend(*self._batch.halves)
            written = yield from asyncio.shield(self._batch.outcome).__await__()
        return self._acknowledgement(written)

    def _descend(self, first: FillingBatch, second: FillingBatch) -> None:
        if self._index < len(first.records):
            self._batch = first
        else:
            self._batch, self._index = second, self._index - len(first.records)

    def _acknowledgement(self, written: Written) -> Acknowledgement:
        offset = NO_OFFSET if written.base_offset == NO_OFFSET else written.base_offset + self._index
        timestamp = self._batch.records[self._index][1]
        if written.log_append_time_ms != NO_TIMESTAMP:
            timestamp = written.log_append_time_ms
        return Acknowledgement(*self._batch.topic_partition, offset, timestamp)


def checked_fields(
    key: Buffer | None, value: Buffer | None, headers: Iterable[tuple[str, Buffer | None]]
) -> tuple[bytes | None, bytes | None, Headers]:
    """Fields of a record as they are encoded later, when it is too late to report a mistake. Raises TypeError."""
    named = tuple((name, _bytes(f"header {name!r}", content)) for name, content in headers)
    for name, _ in named:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header must be str, not {type(name).__name__}")
    return _bytes("key", key), _bytes("value", value), named


def _bytes(what: str, content: Buffer | None) -> bytes | None:
    if content is None or type(content) is bytes:
        return content
    if not isinstance(content, bytes | bytearray | memoryview):
        raise TypeError(f"{what} must be bytes or None, not {type(content).__name__}")
    return bytes(content)


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Upper bound of the uncompressed size of a record in a batch."""
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + len(name) * 4 + len(content or b"")
    return size

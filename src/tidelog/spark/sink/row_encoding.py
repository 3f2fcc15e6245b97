"""Row encoder of the sink: rows to record batches by partition. Independent of Spark and the network."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.protocol.compression import Codec
from tidelog.spark.records.arrow_columns import (
    bytes_column,
    headers_column,
    no_bytes,
    no_headers,
    no_numbers,
    numbers_column,
)
from tidelog.spark.records.encoding import BatchEncoder, FullBatch, RecordColumns
from tidelog.spark.records.kernels import Ints, Longs
from tidelog.spark.records.targets import Targets
from tidelog.types import NO_TIMESTAMP, TopicPartition

_MICROSECONDS = pa.timestamp("us", "UTC")


class BadRow(ValueError):
    """A row that cannot become a record; the message names the column and what to do."""


class PartitionBatch(NamedTuple):
    topic_partition: TopicPartition
    data: bytearray
    """A batch of format v2 with base offset 0, without producer and CRC."""
    record_count: int


class RowEncoder:
    """Add the topics that `new_topics` returns before the rows that need them; `counts` has the rows so far."""

    def __init__(self, topic: str | None, compression: Codec, batch_bytes: int, first_partition: int = 0) -> None:
        """`topic` is for all rows; without it each row has a column `topic`."""
        self._topic = topic
        self._targets = Targets(first_partition)
        self._encoder = BatchEncoder(0, compression, batch_bytes=batch_bytes)
        self.counts: Counter[TopicPartition] = Counter()

    def new_topics(self, rows: pa.RecordBatch) -> list[str]:
        """Topics of these rows that were not added yet."""
        names = [self._topic] if self._topic is not None else pc.unique(_topics_of(rows)).to_pylist()
        return [name for name in names if self._targets.number_of(name) is None]

    def add_topic(self, name: str, partition_count: int, led: list[int]) -> Iterator[PartitionBatch]:
        """`led` are the partitions with a leader. Returns the open batches first."""
        self._targets.add_topic(name, partition_count, led)
        yield from self._addressed(self._encoder.grow(len(self._targets.partitions)))

    def encode(self, rows: pa.RecordBatch, now_ms: int) -> Iterator[PartitionBatch]:
        """The batches that these rows fill; the rest stays for the next rows, or for `finish`."""
        if rows.num_rows:
            yield from self._addressed(self._encoder.encode(self._columns(rows, now_ms)))

    def finish(self) -> Iterator[PartitionBatch]:
        yield from self._addressed(self._encoder.finish())

    def _addressed(self, batches: Iterator[FullBatch]) -> Iterator[PartitionBatch]:
        for batch in batches:
            topic_partition = self._targets.partitions[batch.target]
            self.counts[topic_partition] += batch.record_count
            yield PartitionBatch(topic_partition, batch.data, batch.record_count)

    def _columns(self, rows: pa.RecordBatch, now_ms: int) -> RecordColumns:
        key, partition, headers = (_column(rows, name) for name in ("key", "partition", "headers"))
        keys = no_bytes(rows.num_rows) if key is None else bytes_column(key)
        partitions = no_numbers() if partition is None else numbers_column(partition)
        targets = self._targets.choose(self._topic_numbers(rows), partitions, keys)
        return RecordColumns(
            targets,
            timestamps_ms(_column(rows, "timestamp"), rows.num_rows, now_ms),
            keys,
            bytes_column(rows.column("value")),
            no_headers() if headers is None else headers_column(_checked_headers(headers)),
        )

    def _topic_numbers(self, rows: pa.RecordBatch) -> Ints:
        if self._topic is not None:
            return np.full(rows.num_rows, self._targets.number_of(self._topic), np.int32)
        encoded = _topics_of(rows).dictionary_encode()
        numbers: Ints = np.array([self._targets.number_of(name) for name in encoded.dictionary.to_pylist()], np.int32)
        indices: Ints = encoded.indices.to_numpy()
        return numbers.take(indices)


def timestamps_ms(column: pa.Array | None, row_count: int, now_ms: int) -> Longs:
    """Timestamps of the rows in milliseconds; the present time for null."""
    if column is None or column.null_count == row_count:
        return np.full(row_count, now_ms, np.int64)
    if column.type.unit != "us":
        column = column.cast(_MICROSECONDS)
    numbers = np.frombuffer(column.buffers()[1], np.int64, row_count, column.offset * 8) // 1000
    if column.null_count:
        numbers[column.is_null().to_numpy(zero_copy_only=False)] = now_ms
    if numbers.min() < NO_TIMESTAMP:
        raise BadRow(
            f"A row has a timestamp before 1970 in its column 'timestamp' ({int(numbers.min())} ms), which records"
            " cannot have: set it to null for the present time, or correct it."
        )
    return numbers


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    index = rows.schema.get_field_index(name)
    return None if index < 0 or pa.types.is_null(rows.column(index).type) else rows.column(index)


def _topics_of(rows: pa.RecordBatch) -> pa.Array:
    topics = _column(rows, "topic")
    if topics is None or topics.null_count:
        raise BadRow(
            "A row has no topic: its column 'topic' is null. Set it, or set one topic for all rows with the"
            " option 'topic'."
        )
    return topics if pa.types.is_string(topics.type) else topics.cast(pa.string())


def _checked_headers(headers: pa.Array) -> pa.Array:
    entries = headers.flatten()
    if entries.null_count or entries.field("key").null_count:
        raise BadRow("A row has a header without a key in its column 'headers': every header needs one.")
    return headers

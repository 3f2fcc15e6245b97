"""Decoder from Fetch responses to Arrow record batches. Malformed bytes raise CorruptMessage."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.client.consumer.fetched_records import TransactionFilter
from tidelog.errors import CorruptMessage
from tidelog.protocol.messages.fetch import AbortedTransaction
from tidelog.protocol.record_batch import BatchHeader, crc_matches
from tidelog.spark.records.batch_group import BatchGroup
from tidelog.spark.records.batch_headers import BASE_OFFSET, whole_batch_at
from tidelog.spark.records.columns import (
    ARROW_TYPES,
    ConstantColumn,
    binary_column,
    fixed_width_column,
    headers_column,
)
from tidelog.spark.records.error_codes import WHY
from tidelog.spark.records.kernels import BASE_OFFSET as BASE_OFFSET_FACT
from tidelog.spark.records.kernels import (
    BATCH_START,
    FIELD_FACTS,
    HEADER_COUNT,
    HEADERS_START,
    KEY_LENGTH,
    KEY_START,
    VALUE_LENGTH,
    VALUE_START,
    Bytes,
    Ints,
    Longs,
    scan,
)
from tidelog.spark.records.small_batches import SMALL_BATCH_BYTES
from tidelog.types import TopicPartition

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

ROWS_PER_ARROW_BATCH: Final = 65_536
"""Upper limit: one Kafka batch may have millions of records."""

MANY_SMALL_BATCHES: Final = 16
"""After this many small batches in a row, scanning for more of them in one call pays off."""


class _Rows(NamedTuple):
    """Result of a scan: positions of the fields of each row in `buffer`."""

    buffer: Bytes
    offsets: Longs
    timestamps: Longs
    timestamp_types: Ints
    fields: Longs

    def cut(self, first: int, end: int) -> "_Rows":
        return _Rows(
            self.buffer,
            self.offsets[first:end],
            self.timestamps[first:end],
            self.timestamp_types[first:end],
            self.fields[:, first:end],
        )


class _Located(CorruptMessage):
    """Error in one batch; the message names the batch."""


def raise_unreadable(unreadable: CorruptMessage) -> None:
    """Default handling of an unreadable batch: raise the error."""
    raise unreadable


class PartitionDecoder:
    """Converts raw batches of one partition to Arrow record batches with the requested columns.

    Read one iterator of `decode` to its end before you start the next: they share buffers.
    """

    def __init__(self, topic: str, partition: int, columns: Sequence[str]) -> None:
        self._topic_partition = TopicPartition(topic, partition)
        self._schema = pa.schema([(name, ARROW_TYPES[name]) for name in columns])
        self._topic = ConstantColumn(topic, pa.string())
        self._partition = ConstantColumn(partition, pa.int32())
        self._group = BatchGroup()
        self._fields: Longs = np.empty((FIELD_FACTS, 0), np.int64)
        self._batch_offset = 0
        self._on_unreadable: Callable[[CorruptMessage], None] = raise_unreadable

    def decode(
        self,
        raw: memoryview,
        start_offset: int,
        end_offset: int,
        aborted: Sequence[AbortedTransaction] = (),
        on_unreadable: Callable[[CorruptMessage], None] = raise_unreadable,
    ) -> Iterator[pa.RecordBatch]:
        """Rows with `start_offset <= offset < end_offset`. Raises CorruptMessage with the name of the batch.

        A batch with a valid CRC and unreadable records was written that way: `on_unreadable` is called, and the batch
        is skipped unless that raises an error.
        """
        self._on_unreadable = on_unreadable
        try:
            yield from self._decode(raw, start_offset, end_offset, TransactionFilter(aborted))
        except CorruptMessage as error:
            raise self._located(error) from error

    def _located(self, error: CorruptMessage) -> CorruptMessage:
        if isinstance(error, _Located):
            return error
        return _Located(f"{self._topic_partition}: the batch at offset {self._batch_offset} cannot be read: {error}")

    def _decode(
        self, raw: memoryview, start_offset: int, end_offset: int, transactions: TransactionFilter
    ) -> Iterator[pa.RecordBatch]:
        group = self._group
        group.begin(raw)
        position = small_in_a_row = 0
        while (header := self._header_at(raw, position)) is not None and header.base_offset < end_offset:
            batch = raw[position : position + header.size_bytes]
            if self._is_wanted(header, batch, start_offset, transactions):
                if not group.has_room_for(header):
                    yield from self._arrow_batches(start_offset, end_offset)
                    self._batch_offset = header.base_offset
                self._add(header, position)
            position += header.size_bytes
            small_in_a_row = small_in_a_row + 1 if header.size_bytes <= SMALL_BATCH_BYTES else 0
            if small_in_a_row >= MANY_SMALL_BATCHES:
                position = group.add_small(position, start_offset, end_offset, transactions.shows_all)
            if group.is_full:
                yield from self._arrow_batches(start_offset, end_offset)
        yield from self._arrow_batches(start_offset, end_offset)

    def _header_at(self, raw: memoryview, position: int) -> BatchHeader | None:
        try:
            header = whole_batch_at(raw, position)
        except CorruptMessage:
            (self._batch_offset,) = BASE_OFFSET.unpack_from(raw, position)
            raise
        if header is not None:
            self._batch_offset = header.base_offset
        return header

    def _is_wanted(
        self, header: BatchHeader, batch: memoryview, start_offset: int, transactions: TransactionFilter
    ) -> bool:
        """True if the batch may have rows of the range. Its CRC has been checked in this case."""
        if header.is_control:
            _check_crc(batch, header)
        if not transactions.shows(header, batch) or header.last_offset < start_offset:
            return False
        _check_crc(batch, header)
        return True

    def _add(self, header: BatchHeader, position: int) -> None:
        try:
            self._group.add(header, position)
        except CorruptMessage as error:
            self._on_unreadable(self._located(error))

    def _arrow_batches(self, start_offset: int, end_offset: int) -> Iterator[pa.RecordBatch]:
        """Rows of the group, in batches of limited size; the group is empty afterwards."""
        batches = self._group.batches
        while self._group.record_count and len(batches):
            rows, readable, problem = self._scan(batches, start_offset, end_offset)
            if problem is not None and readable:
                rows, *_ = self._scan(batches[:readable], start_offset, end_offset)
            for first in range(0, len(rows.offsets) if readable else 0, ROWS_PER_ARROW_BATCH):
                yield self._arrow_batch(rows.cut(first, first + ROWS_PER_ARROW_BATCH))
            if problem is not None:
                self._batch_offset = int(batches[readable, BASE_OFFSET_FACT])
                self._on_unreadable(self._located(problem))
            batches = batches[readable + 1 :]
        self._group.clear()

    def _scan(self, batches: Longs, start_offset: int, end_offset: int) -> tuple[_Rows, int, CorruptMessage | None]:
        """Rows of the batches, the number of readable batches, and the error of the next one."""
        room, buffer = self._group.record_count, self._group.buffer
        if self._fields.shape[1] < room:
            self._fields = np.empty((FIELD_FACTS, room), np.int64)
        offsets, timestamps, types = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)
        needs_time = "timestamp" in self._schema.names
        count, problem, batch, byte = scan(
            buffer, batches, start_offset, end_offset, needs_time, offsets, timestamps, types, self._fields
        )
        rows = _Rows(buffer, offsets, timestamps, types, self._fields).cut(0, count)
        if problem:
            where = f"(byte {byte - batches[batch, BATCH_START]} of its records)"
            return rows, int(batch), CorruptMessage(f"{WHY[problem]} {where}")
        return rows, len(batches), None

    def _arrow_batch(self, rows: _Rows) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [self._column(name, rows) for name in self._schema.names], schema=self._schema
        )

    def _column(self, name: str, rows: _Rows) -> pa.Array:
        fields, arrow_type = rows.fields, ARROW_TYPES[name]
        match name:
            case "key":
                return binary_column(rows.buffer, fields[KEY_START], fields[KEY_LENGTH], arrow_type)
            case "value":
                return binary_column(rows.buffer, fields[VALUE_START], fields[VALUE_LENGTH], arrow_type)
            case "topic":
                return self._topic.of_length(len(rows.offsets))
            case "partition":
                return self._partition.of_length(len(rows.offsets))
            case "offset":
                return fixed_width_column(rows.offsets, arrow_type)
            case "timestamp":
                return fixed_width_column(rows.timestamps, arrow_type)
            case "timestampType":
                return fixed_width_column(rows.timestamp_types, arrow_type)
            case _:
                return headers_column(rows.buffer, fields[HEADERS_START], fields[HEADER_COUNT])


def _check_crc(batch: memoryview, header: BatchHeader) -> None:
    if not crc_matches(batch, header):
        raise CorruptMessage("its CRC does not match")

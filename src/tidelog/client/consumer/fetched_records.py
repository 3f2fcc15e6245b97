"""Decoding of Fetch responses: visible records of a consumer, without control and aborted records."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple, overload

from tidelog.errors import CorruptMessage
from tidelog.protocol.messages.fetch import AbortedTransaction
from tidelog.protocol.record_batch import BatchHeader, crc_matches, split_batches
from tidelog.protocol.records import ControlType, Headers, RecordColumns, column_slices, read_end_marker
from tidelog.types import Buffer, TopicPartition

logger = logging.getLogger(__name__)


class ConsumedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ConsumedRecords(Sequence[ConsumedRecord]):
    """Records of one partition, each made when it is looked at: objects for all of them at once would keep the garbage
    collector busy for longer than decoding takes."""

    __slots__ = ("columns", "partition", "topic")

    def __init__(self, topic: str, partition: int, columns: RecordColumns) -> None:
        self.topic = topic
        self.partition = partition
        self.columns = columns

    @classmethod
    def joined(cls, slices: "Iterable[ConsumedRecords]") -> "ConsumedRecords":
        """Of one partition."""
        topic, partition, columns = "", 0, RecordColumns([], [], [], [], [])
        for each in slices:
            topic, partition = each.topic, each.partition
            columns.extend(each.columns)
        return cls(topic, partition, columns)

    def __len__(self) -> int:
        return len(self.columns.offsets)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Like `ConsumedRecord(...)` for each row, without a call of a Python function for each."""
        rows = zip(repeat(self.topic), repeat(self.partition), *self.columns, strict=False)
        return map(tuple.__new__, repeat(ConsumedRecord), rows)

    @overload
    def __getitem__(self, index: int) -> ConsumedRecord: ...

    @overload
    def __getitem__(self, index: slice) -> "ConsumedRecords": ...

    def __getitem__(self, index: int | slice) -> "ConsumedRecord | ConsumedRecords":
        if isinstance(index, slice):
            parts = RecordColumns._make(column[index] for column in self.columns)
            return ConsumedRecords(self.topic, self.partition, parts)
        offsets, timestamps, keys, values, headers = self.columns
        return ConsumedRecord(
            self.topic,
            self.partition,
            offsets[index],
            timestamps[index],
            keys[index],
            values[index],
            headers[index],
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{list(self)!r}"


NO_RECORDS = ConsumedRecords.joined(())


class _Unreadable(Exception):
    """The records of a batch cannot be decoded, although its CRC is valid."""


class FetchedBatches(NamedTuple):
    """Fetched batches of one partition, with the aborted transactions in them."""

    topic_partition: TopicPartition
    start_offset: int
    batches: Sequence[tuple[BatchHeader, memoryview]]
    aborted: Sequence[AbortedTransaction]

    @classmethod
    def of(
        cls, topic_partition: TopicPartition, start_offset: int, records: Buffer, aborted: Sequence[AbortedTransaction]
    ) -> "FetchedBatches":
        return cls(topic_partition, start_offset, list(split_batches(records)), aborted)

    @classmethod
    def none_at(cls, topic_partition: TopicPartition, offset: int) -> "FetchedBatches":
        """No batches, only a new position: `offset`."""
        return cls(topic_partition, offset, (), ())

    @property
    def next_offset(self) -> int:
        return self.batches[-1][0].last_offset + 1 if self.batches else self.start_offset

    def records(self) -> Iterator[ConsumedRecord]:
        for found in self.slices():
            yield from found

    def slices(self) -> Iterator[ConsumedRecords]:
        """Records in slices, from `start_offset` on, without control and aborted records.

        A slice may be empty: between slices, the reader can yield to the event loop. A batch with a valid CRC whose
        records cannot be decoded was written that way, and is skipped.
        """
        transactions = TransactionFilter(self.aborted)
        for header, batch in self.batches:
            try:
                if transactions.shows(header, batch):
                    yield from self._slices_of(header, batch)
            except _Unreadable as error:
                logger.warning(
                    "skipped unreadable batch partition=%s offset=%d records=%d reason=%s",
                    self.topic_partition,
                    header.base_offset,
                    header.record_count,
                    error,
                )

    def _slices_of(self, header: BatchHeader, batch: memoryview) -> Iterator[ConsumedRecords]:
        topic, partition = self.topic_partition
        if not crc_matches(batch, header):
            raise CorruptMessage(f"{self.topic_partition}: the batch at offset {header.base_offset} fails its CRC")
        try:
            for columns in column_slices(batch):
                if header.base_offset < self.start_offset:
                    columns = columns.from_offset(self.start_offset)
                yield ConsumedRecords(topic, partition, columns)
        except CorruptMessage as error:
            raise _Unreadable(str(error)) from error


class TransactionFilter:
    """Filter of aborted records: from the first offset of an aborted transaction to its abort marker (KIP-98)."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        """Aborted transactions that begin after the last batch, the next one at the end."""
        self._aborted_producer_ids: set[int] = set()
        """Producers whose abort marker has not been read."""

    @property
    def shows_all(self) -> bool:
        """Whether all following batches are visible, except control batches."""
        return not self._aborted and not self._aborted_producer_ids

    def shows(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether the batch is visible. Must be called for every batch, in order."""
        while self._aborted and self._aborted[-1].first_offset <= header.last_offset:
            self._aborted_producer_ids.add(self._aborted.pop().producer_id)
        if header.is_control:
            self._end_transaction(header, batch)
            return False
        return not (header.is_transactional and header.producer_id in self._aborted_producer_ids)

    def _end_transaction(self, header: BatchHeader, batch: Buffer) -> None:
        if header.producer_id not in self._aborted_producer_ids:
            return
        try:
            marker = read_end_marker(batch)
        except CorruptMessage:
            return  # unreadable marker: the transaction counts as still open
        if marker is not None and marker.control_type == ControlType.ABORT:
            self._aborted_producer_ids.discard(header.producer_id)

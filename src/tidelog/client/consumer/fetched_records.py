"""Decoding of Fetch responses: visible records of a consumer, without control and aborted records."""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.protocol.messages.fetch import AbortedTransaction
from tidelog.protocol.record_batch import BatchHeader, crc_matches, split_batches
from tidelog.protocol.records import ControlType, Headers, are_plain, decoded_slices, read_end_marker, record_of
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

    def slices(self) -> Iterator[list[ConsumedRecord]]:
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

    def _slices_of(self, header: BatchHeader, batch: memoryview) -> Iterator[list[ConsumedRecord]]:
        topic, partition = self.topic_partition
        if not crc_matches(batch, header):
            raise CorruptMessage(f"{self.topic_partition}: the batch at offset {header.base_offset} fails its CRC")
        start = self.start_offset
        try:
            for found_header, found in decoded_slices(batch):
                if are_plain(found_header, found):
                    # tuple.__new__ makes the same records as ConsumedRecord(...), without a Python call for each.
                    base, new = found_header.base_offset, tuple.__new__
                    yield [
                        new(ConsumedRecord, (topic, partition, base + delta, timestamp, key, value, ()))
                        for _, delta, timestamp, key, value, _ in found
                        if base + delta >= start
                    ]
                else:
                    records = [record_of(found_header, *each[1:]) for each in found]
                    yield [ConsumedRecord(topic, partition, *each) for each in records if each.offset >= start]
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

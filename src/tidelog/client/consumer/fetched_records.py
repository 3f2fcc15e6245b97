"""From the bytes of a Fetch answer to the records that a consumer is to see."""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.protocol.messages.fetch import AbortedTransaction
from tidelog.protocol.record_batch import BatchHeader, crc_matches, split_batches
from tidelog.protocol.records import ControlType, Headers, read_end_marker, slices_of
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
    """What a batch says of its records is not true."""


class FetchedBatches(NamedTuple):
    """Batches of one partition, with what is needed to read them."""

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
        """Reading goes on there."""
        return cls(topic_partition, offset, (), ())

    @property
    def next_offset(self) -> int:
        return self.batches[-1][0].last_offset + 1 if self.batches else self.start_offset

    def records(self) -> Iterator[ConsumedRecord]:
        for found in self.slices():
            yield from found

    def slices(self) -> Iterator[list[ConsumedRecord]]:
        """A batch may begin before the offset asked for; control records and aborted ones are left out.

        A slice may be empty: a reader can do something else in between. A batch whose CRC is right and whose records
        cannot be read was written so; reading goes on after it.
        """
        transactions = TransactionFilter(self.aborted)
        for header, batch in self.batches:
            try:
                if transactions.shows(header, batch):
                    yield from self._slices_of(header, batch)
            except _Unreadable as error:
                logger.warning(
                    "skipped a batch that cannot be read: partition=%s offset=%d records=%d reason=%s",
                    self.topic_partition,
                    header.base_offset,
                    header.record_count,
                    error,
                )

    def _slices_of(self, header: BatchHeader, batch: memoryview) -> Iterator[list[ConsumedRecord]]:
        topic, partition = self.topic_partition
        if not crc_matches(batch, header):
            raise CorruptMessage(f"{self.topic_partition}: the batch at offset {header.base_offset} fails its CRC")
        try:
            for found in slices_of(batch):
                yield [ConsumedRecord(topic, partition, *each) for each in found if each.offset >= self.start_offset]
        except CorruptMessage as error:
            raise _Unreadable(str(error)) from error


class TransactionFilter:
    """A producer's records count as aborted from the first offset of its transaction to its end marker (KIP-98)."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._to_come = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open_producers: set[int] = set()

    @property
    def shows_all(self) -> bool:
        """All transactions, from here on: none of them is aborted. Control batches are never shown."""
        return not self._to_come and not self._open_producers

    def shows(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether a reader is to see the batch; to be asked for every batch, in order."""
        while self._to_come and self._to_come[-1].first_offset <= header.last_offset:
            self._open_producers.add(self._to_come.pop().producer_id)
        if header.is_control:
            self._end_transaction(header, batch)
            return False
        return not (header.is_transactional and header.producer_id in self._open_producers)

    def _end_transaction(self, header: BatchHeader, batch: Buffer) -> None:
        if header.producer_id not in self._open_producers:
            return
        try:
            marker = read_end_marker(batch)
        except CorruptMessage:
            return  # nobody but a broker writes these; the transaction goes on, as far as can be told
        if marker is not None and marker.control_type == ControlType.ABORT:
            self._open_producers.discard(header.producer_id)

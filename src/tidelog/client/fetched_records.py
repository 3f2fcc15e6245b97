"""From the bytes of a Fetch answer to the records that a consumer is to see."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.protocol.messages.fetch import AbortedTransaction
from tidelog.protocol.record_batch import BatchHeader, crc_matches, split_batches
from tidelog.protocol.records import ControlType, Headers, read_end_marker, records_of
from tidelog.types import Buffer, TopicPartition


class ConsumedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


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
        """A batch may begin before the offset asked for; control records and aborted ones are left out."""
        topic, partition = self.topic_partition
        transactions = TransactionFilter(self.aborted)
        for header, batch in self.batches:
            if not transactions.shows(header, batch):
                continue
            if not crc_matches(batch, header):
                raise CorruptMessage(f"{self.topic_partition}: the batch at offset {header.base_offset} fails its CRC")
            for record in records_of(batch):
                if record.offset >= self.start_offset:
                    yield ConsumedRecord(topic, partition, *record)


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
        marker = read_end_marker(batch)
        if marker is not None and marker.control_type == ControlType.ABORT:
            self._open_producers.discard(header.producer_id)

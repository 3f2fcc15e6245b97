"""Batches of idempotent producers that were refused with a retriable error, and the batches in flight behind them.

A batch is refused, for example, while the ISR is too small or this broker does not lead yet. If that has changed when
the next batch of the producer arrives, which was already in flight, the sequences before it are missing in the log.
Apache Kafka answers it with OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka then continues with another producer epoch in all
partitions, and sends batches again that may have been written: brokers take them for new ones. Here the second batch
gets the error of the first, and the producer sends both again.
"""

# Core: no clock, no I/O, no await.

from typing import NamedTuple

from tidelog.cluster.topic_names import MAX_NAME_LENGTH
from tidelog.errors import RetriableError
from tidelog.protocol.messages.produce import TopicProduceData
from tidelog.protocol.record_batch import MAX_SEQUENCE, BatchHeader
from tidelog.storage.producer_state import ProducerStateManager
from tidelog.types import NO_PRODUCER_ID, Uuid

MAX_REFUSED = 100
"""Of one connection. The earliest are forgotten."""
MAX_MESSAGE_LENGTH = 200
HALF_OF_SEQUENCES = (MAX_SEQUENCE + 1) // 2


class ClientPartition(NamedTuple):
    """A partition as its client names it: a broker may not know the name of a new topic's id."""

    topic: str | Uuid
    partition: int

    @classmethod
    def of(cls, topic: TopicProduceData, partition: int) -> "ClientPartition":
        return cls(topic.name or topic.topic_id, partition)


class _Refused(NamedTuple):
    """The earliest refused batch of a producer in a partition."""

    epoch: int
    sequence: int
    error: type[RetriableError]
    message: str
    first_behind: int | None = None
    """Sequence of the first batch behind it that got the same error."""


class RefusedBatches:
    """Of one connection: a producer sends its batches for a partition over one."""

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[tuple[ClientPartition, int], _Refused] = {}

    def add(self, requested: ClientPartition, header: BatchHeader, error: RetriableError) -> None:
        """Remember the batch if it is the producer's earliest refused one, until the producer sends it again."""
        if header.producer_id == NO_PRODUCER_ID or len(requested.topic) > MAX_NAME_LENGTH:
            return
        key = requested, header.producer_id
        known = self.by_producer.get(key)
        epoch, sequence = header.producer_epoch, header.base_sequence
        if known is None or known.epoch != epoch or _is_before(sequence, known.sequence):
            self.by_producer[key] = _Refused(epoch, sequence, type(error), error.message[:MAX_MESSAGE_LENGTH])
        if len(self.by_producer) > MAX_REFUSED:
            del self.by_producer[next(iter(self.by_producer))]

    def check(self, requested: ClientPartition, header: BatchHeader, producers: ProducerStateManager | None) -> None:
        """Raise the error of the refused batch before this one, unless this one follows the last one in the log.

        If the first batch behind a refused one comes a second time, the producer has given the refused one up. The
        refused one is forgotten then: the append checks the sequence.
        """
        key = requested, header.producer_id
        refused = self.by_producer.get(key)
        if refused is None:
            return
        sequence, first_behind = header.base_sequence, refused.first_behind
        is_same_epoch = header.producer_epoch == refused.epoch
        if is_same_epoch and _is_before(sequence, refused.sequence):
            return  # sent again, and the refused one is still to come
        is_expected = producers is not None and producers.is_expected(header)
        if not is_same_epoch or sequence in (refused.sequence, first_behind) or is_expected:
            del self.by_producer[key]
            return
        if first_behind is None or _is_before(sequence, first_behind):
            self.by_producer[key] = refused._replace(first_behind=sequence)
        raise refused.error(f"a batch before it was refused: {refused.message}")


def _is_before(sequence: int, other: int) -> bool:
    """Sequences start again at 0 after the largest."""
    return (sequence - other) & MAX_SEQUENCE >= HALF_OF_SEQUENCES

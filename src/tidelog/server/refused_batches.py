"""Batches of idempotent producers that were refused with a retriable error, and the batches in flight behind them.

Between two pipelined requests a replica may join the ISR, or this broker may become the leader. The second batch then
does not follow the last one in the log. Apache Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka then continues
with another producer epoch in all partitions, and repeats batches there that may have been written: brokers take them
for new ones. Here the second batch gets the error of the first, and the producer sends both again.
"""

# Core: no clock, no I/O, no await.

from typing import NamedTuple

from tidelog.cluster.topic_names import MAX_NAME_LENGTH
from tidelog.errors import RetriableError
from tidelog.protocol.record_batch import MAX_SEQUENCE, BatchHeader
from tidelog.storage.producer_state import ProducerStateManager
from tidelog.types import NO_PRODUCER_ID, Uuid

MAX_REFUSED = 100
"""Of one connection. The earliest are forgotten."""
MAX_MESSAGE_LENGTH = 200
HALF_OF_SEQUENCES = (MAX_SEQUENCE + 1) // 2


class Place(NamedTuple):
    """A partition as its client names it: a broker may not know the name of a new topic's id."""

    topic: str | Uuid
    partition: int


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    error: type[RetriableError]
    message: str
    first_behind: int | None = None
    """Sequence of the first batch behind it that was refused for its sake."""


class RefusedBatches:
    """Of one connection: a producer sends its batches for a partition over one."""

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[tuple[Place, int], _Refused] = {}

    def add(self, place: Place, header: BatchHeader, error: RetriableError) -> None:
        """Remember the earliest one that was refused, until the producer has sent it again."""
        if header.producer_id == NO_PRODUCER_ID or len(place.topic) > MAX_NAME_LENGTH:
            return
        key = place, header.producer_id
        known = self.by_producer.get(key)
        epoch, sequence = header.producer_epoch, header.base_sequence
        if known is None or known.epoch != epoch or _is_before(sequence, known.sequence):
            self.by_producer[key] = _Refused(epoch, sequence, type(error), error.message[:MAX_MESSAGE_LENGTH])
        if len(self.by_producer) > MAX_REFUSED:
            del self.by_producer[next(iter(self.by_producer))]

    def check(self, place: Place, header: BatchHeader, producers: ProducerStateManager | None) -> None:
        """Raise the error of an earlier batch, unless this one follows the last one in the log.

        A producer that has given the earlier one up sends the first one behind it again. The log decides on that.
        """
        key = place, header.producer_id
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

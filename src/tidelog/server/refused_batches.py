"""Batches of idempotent producers that were refused with a retriable error, and the batches in flight behind them.

Between two pipelined requests a replica may join the ISR, or this broker may become the leader. The second batch then
does not follow the last one in the log. Apache Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka then continues
with another producer epoch in all partitions, and repeats batches there that may have been written: brokers take them
for new ones. Here the second batch gets the error of the first, and the producer sends both again.
"""

# Core: no clock, no I/O, no await.

from typing import NamedTuple

from tidelog.errors import RetriableError
from tidelog.protocol.record_batch import MAX_SEQUENCE, BatchHeader
from tidelog.storage.producer_state import ProducerStateManager
from tidelog.types import NO_PRODUCER_ID, TopicPartition

MAX_REFUSED = 1000
"""Of one connection. The earliest are forgotten."""
MAX_BEHIND = 4
"""A producer has up to five requests in flight. What comes later was sent in spite of the error."""
HALF_OF_SEQUENCES = (MAX_SEQUENCE + 1) // 2


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    error: type[RetriableError]
    message: str
    behind: int = 0


class RefusedBatches:
    """Of one connection: a producer sends its batches for a partition over one."""

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[tuple[TopicPartition, int], _Refused] = {}

    def add(self, topic_partition: TopicPartition, header: BatchHeader, error: RetriableError) -> None:
        """Remember the first one that was refused, until the producer has sent it again."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        refused = _Refused(header.producer_epoch, header.base_sequence, type(error), error.message)
        self.by_producer.setdefault((topic_partition, header.producer_id), refused)
        if len(self.by_producer) > MAX_REFUSED:
            del self.by_producer[next(iter(self.by_producer))]

    def check(self, topic_partition: TopicPartition, header: BatchHeader, producers: ProducerStateManager) -> None:
        """Raise the error of an earlier batch, unless this one follows the last one in the log."""
        key = topic_partition, header.producer_id
        refused = self.by_producer.get(key)
        if refused is None:
            return
        distance = (header.base_sequence - refused.sequence) & MAX_SEQUENCE
        is_same_epoch = header.producer_epoch == refused.epoch
        if is_same_epoch and distance >= HALF_OF_SEQUENCES:
            return  # sent again, and the refused one is still to come
        is_behind = is_same_epoch and distance > 0 and not producers.is_expected(header)
        if not is_behind or refused.behind == MAX_BEHIND:
            del self.by_producer[key]
            return
        self.by_producer[key] = refused._replace(behind=refused.behind + 1)
        raise refused.error(f"a batch before it was refused: {refused.message}")

"""Traffic counters of the broker (Kafka: BrokerTopicStats): totals are computed only when they are read."""

from tidelog.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)

ORDINARY_ERRORS = (
    CorruptMessage,
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
"""As in Kafka, these errors do not count as failed requests: clients expect and retry them."""


class TopicTraffic:
    """Counters of one topic on this broker since its start."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.produces = 0
        """Appends to single partitions, as Kafka counts them."""
        self.failed_produces = 0
        self.fetches = 0
        """Reads of single partitions, including those of followers."""
        self.failed_fetches = 0

    def count_failed_produce(self, error: KafkaError) -> None:
        self.produces += 1
        self.failed_produces += not isinstance(error, ORDINARY_ERRORS)

    def count_failed_fetch(self, error: KafkaError) -> None:
        self.failed_fetches += not isinstance(error, ORDINARY_ERRORS)

    def add(self, other: "TopicTraffic") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """Counters of one broker. Replication traffic is counted apart, and not by topic."""

    __slots__ = (
        "_past",
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "replication_bytes_in",
        "replication_bytes_out",
        "topics",
        "truncated_committed_records",
        "truncated_records",
    )

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self._past = TopicTraffic()
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.reassignment_bytes_in = 0
        """Of replication: what went to replicas that reassignments are adding."""
        self.reassignment_bytes_out = 0
        self.truncated_records = 0
        """Offsets that followers removed to match their leader."""
        self.truncated_committed_records = 0
        """Of these: below the high watermark, so acknowledged to producers. Only an unclean election, or the loss of
        all in-sync replicas, makes them go."""

    def of(self, topic: str) -> TopicTraffic:
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def count_truncated(self, end_before: int, committed_before: int, end: int) -> None:
        self.truncated_records += max(0, end_before - end)
        self.truncated_committed_records += max(0, committed_before - end)

    def forget(self, topic: str) -> None:
        """The topic was deleted from this broker; the totals still include it."""
        found = self.topics.pop(topic, None)
        if found is not None:
            self._past.add(found)

    def total(self) -> TopicTraffic:
        total = TopicTraffic()
        for traffic in (self._past, *self.topics.values()):
            total.add(traffic)
        return total

"""What clients were told: which writes were acknowledged, and what consumers read where."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tidelog.protocol.records import records_of
from tidelog.simulation.looking import batches
from tidelog.storage.log import Log
from tidelog.types import NO_OFFSET, TopicPartition


class History:
    """Contradictions are noted as they are told: an offset has one content, for ever (I5)."""

    def __init__(self) -> None:
        self.contents: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        """What a client was told that an offset holds."""
        self.acknowledged: dict[TopicPartition, dict[bytes, int]] = defaultdict(dict)
        """By value, the offset that was named."""
        self.ends: dict[TopicPartition, int] = defaultdict(int)
        """The end of what was acknowledged: whoever leads has at least so much (I4)."""
        self.reads = 0
        self.contradictions: list[str] = []

    def on_acknowledged(self, topic_partition: TopicPartition, offset: int, value: bytes) -> None:
        self.acknowledged[topic_partition][value] = offset
        if offset != NO_OFFSET:
            self.ends[topic_partition] = max(self.ends[topic_partition], offset + 1)
            self._take(topic_partition, offset, value, "acknowledged")

    def on_read(self, topic_partition: TopicPartition, offset: int, value: bytes) -> None:
        self.reads += 1
        self._take(topic_partition, offset, value, "read")

    def _take(self, topic_partition: TopicPartition, offset: int, value: bytes, verb: str) -> None:
        known = self.contents[topic_partition].setdefault(offset, value)
        if known != value:
            self.contradictions.append(f"I5 {topic_partition}@{offset} was {known!r} and is {verb} as {value!r}")

    def losses(self, topic_partition: TopicPartition, log: Log) -> Iterator[str]:
        """What the log lacks of what was acknowledged or read, and what it holds twice."""
        held = {
            record.offset: record.value
            for _, batch in batches(log, log.log_start_offset, log.log_end_offset)
            for record in records_of(batch)
        }
        counts = Counter(held.values())
        for offset, value in self.contents[topic_partition].items():
            if offset >= log.log_start_offset and held.get(offset) != value:
                yield f"I4 {topic_partition}@{offset} was {value!r} to a client and is {held.get(offset)!r}"
        for value in self.acknowledged[topic_partition]:
            if counts[value] != 1:
                yield f"I4 {topic_partition} holds {value!r}, which was acknowledged, {counts[value]} times"

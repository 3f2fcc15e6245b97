"""Client history: every write with its outcome, every poll with its position, every transaction with its decision.

Contradictions that one event shows are noted at once (`contradictions`). What needs the whole history is judged in the
end (`judges`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from tidelog.client.producer.producer_settings import ACKS_ALL
from tidelog.protocol.records import records_of
from tidelog.simulation.inspection import batches
from tidelog.storage.log import Log
from tidelog.types import NO_OFFSET, TopicPartition


class Outcome(Enum):
    UNKNOWN = auto()  # under way, or given up: the record may be there, or come to be there
    ACKNOWLEDGED = auto()
    REFUSED = auto()  # the broker said for certain that it did not write the record


class Decision(Enum):
    OPEN = auto()
    COMMITTING = auto()  # the client has asked for it
    COMMITTED = auto()
    ABORTED = auto()  # by the client, or for certain by its coordinator
    UNKNOWN = auto()  # abandoned, or no answer: committed or aborted as a whole


@dataclass(slots=True, eq=False)
class Transaction:
    writer: str
    decision: Decision = Decision.OPEN
    writes: "list[Write]" = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Write:
    topic_partition: TopicPartition
    value: bytes
    writer: str
    acks: int = ACKS_ALL
    is_idempotent: bool = True
    key: bytes | None = None
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = NO_OFFSET


class Gap(NamedTuple):
    """Offsets between two records that one consumer was given one after the other."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    log_start_offset: int
    """As far as any replica had deleted its oldest records by then."""
    is_inside: bool = False
    """Of one poll."""


class ConsumerHistory:
    """The polls of one consumer. Where it begins, or goes to, it says itself: the rest must follow."""

    def __init__(self, history: "History", name: str, *, is_read_committed: bool) -> None:
        self.name = name
        self.is_read_committed = is_read_committed
        self.gaps: list[Gap] = []
        self.positions: dict[TopicPartition, int | None] = {}
        """The next offset expected; None where only the broker knows, as after a lookup by time."""
        self._history = history

    def on_seek(self, topic_partition: TopicPartition, offset: int | None = None) -> None:
        """Also the start of an assignment."""
        self.positions[topic_partition] = offset

    def on_assigned(self, offsets: dict[TopicPartition, int]) -> None:
        """A new assignment in place of the one before."""
        self.positions = dict(offsets)

    def on_poll(self, records: Iterable[tuple[TopicPartition, int, bytes | None]]) -> None:
        """All records that one poll gave, in its order."""
        met: set[TopicPartition] = set()
        for topic_partition, offset, value in records:
            self._on_record(topic_partition, offset, is_inside=topic_partition in met)
            met.add(topic_partition)
            self._history.on_read(
                topic_partition, offset, value, reader=self.name, is_read_committed=self.is_read_committed
            )

    def _on_record(self, topic_partition: TopicPartition, offset: int, *, is_inside: bool) -> None:
        expected = self.positions.get(topic_partition)
        self.positions[topic_partition] = offset + 1
        if expected is None or expected == offset or topic_partition.topic in self._history.lossy_topics:
            return
        if offset < expected:
            kind = "int-" if is_inside else ""
            self._history.contradictions.append(
                f"{kind}nonmonotonic-poll {self.name} read {topic_partition}@{offset} after {expected - 1}"
            )
            return
        log_start_offset = self._history.log_starts[topic_partition]
        self.gaps.append(Gap(topic_partition, expected, offset, log_start_offset, is_inside))


class History:
    """An offset has one content, for ever (I5); a value was written by somebody, and not refused."""

    def __init__(self) -> None:
        self.contents: dict[TopicPartition, dict[int, bytes | None]] = defaultdict(dict)
        """What a client was told that an offset holds."""
        self.acknowledged: dict[TopicPartition, dict[bytes, int]] = defaultdict(dict)
        """By value, the offset that was named."""
        self.ends: dict[TopicPartition, int] = defaultdict(int)
        """The end of what was acknowledged: whoever leads has at least so much (I4)."""
        self.log_starts: dict[TopicPartition, int] = defaultdict(int)
        """The furthest that retention or DeleteRecords has come on any replica."""
        self.writes: dict[bytes, Write] = {}
        self.writes_by_key: dict[tuple[TopicPartition, bytes], list[Write]] = defaultdict(list)
        self.on_end: list[Callable[[TopicPartition], None]] = []
        """Told when the end of what was acknowledged has moved."""
        self.transactions: list[Transaction] = []
        self.consumers: list[ConsumerHistory] = []
        self.compacted_topics: set[str] = set()
        self.lossy_topics: set[str] = set()
        """Those with unclean elections: what they were told to hold may be gone."""
        self.reads = 0
        self.seen: dict[TopicPartition, dict[bytes, int]] = defaultdict(dict)
        """By value, the first offset at which any consumer read it."""
        self.seen_committed: dict[bytes, str] = {}
        """By value, the first consumer that read it as committed."""
        self.contradictions: list[str] = []

    # ---- writes

    def begin(self, write: Write) -> Write:
        """Before the first attempt. Values are unique in the whole history."""
        assert write.value not in self.writes, f"{write.value!r} is written a second time"
        self.writes[write.value] = write
        if write.key is not None:
            self.writes_by_key[write.topic_partition, write.key].append(write)
        if write.transaction is not None:
            write.transaction.writes.append(write)
        return write

    def on_tombstone(self, topic_partition: TopicPartition, key: bytes) -> None:
        """A record without a value is under way: earlier ones of the key may go."""
        self.writes_by_key[topic_partition, key].append(Write(topic_partition, b"", "somebody", key=key))

    def acknowledge(self, write: Write, offset: int) -> None:
        write.outcome, write.offset = Outcome.ACKNOWLEDGED, offset
        if write.acks != ACKS_ALL or write.topic_partition.topic in self.lossy_topics:
            return
        topic_partition = write.topic_partition
        self.acknowledged[topic_partition][write.value] = offset
        if offset != NO_OFFSET:
            self._take(topic_partition, offset, write.value, "acknowledged")
            if offset >= self.ends[topic_partition]:
                self.ends[topic_partition] = offset + 1
                for callback in self.on_end:
                    callback(topic_partition)

    def refuse(self, write: Write) -> None:
        write.outcome = Outcome.REFUSED

    def on_acknowledged(self, topic_partition: TopicPartition, offset: int, value: bytes) -> None:
        """Of a write that was not told before."""
        write = self.writes.get(value) or self.begin(Write(topic_partition, value, "somebody"))
        self.acknowledge(write, offset)

    def begin_transaction(self, writer: str) -> Transaction:
        transaction = Transaction(writer)
        self.transactions.append(transaction)
        return transaction

    # ---- reads

    def consumer(self, name: str, *, is_read_committed: bool = False) -> ConsumerHistory:
        consumer = ConsumerHistory(self, name, is_read_committed=is_read_committed)
        self.consumers.append(consumer)
        return consumer

    def on_read(
        self,
        topic_partition: TopicPartition,
        offset: int,
        value: bytes | None,
        *,
        reader: str = "a reader",
        is_read_committed: bool = False,
    ) -> None:
        self.reads += 1
        if topic_partition.topic not in self.lossy_topics:
            self._take(topic_partition, offset, value, "read")
        if value is None:
            return
        self._check_place(topic_partition, offset, value)
        write = self.writes.get(value)
        if write is None:
            self.contradictions.append(f"phantom {topic_partition}@{offset} {reader} read {value!r}: nobody wrote it")
        elif write.topic_partition != topic_partition:
            self.contradictions.append(f"misplaced {reader} read {value!r} in {topic_partition}, not in its partition")
        elif is_read_committed:
            self._check_committed(write, offset, reader)

    def _check_place(self, topic_partition: TopicPartition, offset: int, value: bytes) -> None:
        """One value has one offset; where unclean elections lose records, a retry may write it anew."""
        known = self.seen[topic_partition].setdefault(value, offset)
        if known != offset and topic_partition.topic not in self.lossy_topics and self._is_written_once(value):
            self.contradictions.append(f"duplicate {topic_partition} holds {value!r} at {known} and at {offset}")

    def _is_written_once(self, value: bytes) -> bool:
        write = self.writes.get(value)
        return write is None or write.is_idempotent

    def _check_committed(self, write: Write, offset: int, reader: str) -> None:
        transaction = write.transaction
        self.seen_committed.setdefault(write.value, reader)
        if transaction is not None and transaction.decision is Decision.OPEN:
            self.contradictions.append(
                f"precommitted-read {reader} read {write.value!r} of {write.topic_partition}@{offset},"
                " and nobody has asked for the commit"
            )

    def _take(self, topic_partition: TopicPartition, offset: int, value: bytes | None, verb: str) -> None:
        known = self.contents[topic_partition].setdefault(offset, value)
        if known != value:
            self.contradictions.append(f"I5 {topic_partition}@{offset} was {known!r} and is {verb} as {value!r}")

    # ---- deletions

    def on_log_start(self, topic_partition: TopicPartition, offset: int) -> None:
        if offset > self.log_starts[topic_partition]:
            self.log_starts[topic_partition] = offset

    def losses(self, topic_partition: TopicPartition, log: Log) -> Iterator[str]:
        """What the log lacks of what was acknowledged or read, and what it holds twice."""
        if topic_partition.topic in self.compacted_topics:
            return
        held = {
            record.offset: record.value
            for header, batch in batches(log, log.log_start_offset, log.log_end_offset)
            if not header.is_control
            for record in records_of(batch)
        }
        counts = Counter(held.values())
        for offset, value in self.contents[topic_partition].items():
            if offset >= log.log_start_offset and held.get(offset) != value:
                yield f"I4 {topic_partition}@{offset} was {value!r} to a client and is {held.get(offset)!r}"
        for value, offset in self.acknowledged[topic_partition].items():
            if counts[value] != 1 and not (counts[value] == 0 and NO_OFFSET < offset < log.log_start_offset):
                yield f"I4 {topic_partition} holds {value!r}, which was acknowledged, {counts[value]} times"
        yield from self._written_by_nobody(topic_partition, held)

    def _written_by_nobody(self, topic_partition: TopicPartition, held: dict[int, bytes | None]) -> Iterator[str]:
        for offset, value in held.items():
            write = None if value is None else self.writes.get(value)
            if write is not None and write.outcome is Outcome.REFUSED:
                yield f"failed-write {topic_partition}@{offset} holds {value!r}, which was refused"

"""Client history: every write with its outcome, every poll with its position, every transaction with its decision.

Contradictions visible in one event are recorded at once (`contradictions`). Checks that need the whole history run at
the end (`judges`).
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
    UNKNOWN = auto()  # in flight or given up: the record may exist, or appear later
    ACKNOWLEDGED = auto()
    REJECTED = auto()  # the broker certainly did not write the record


class Decision(Enum):
    OPEN = auto()
    COMMITTING = auto()  # the client has requested the commit
    COMMITTED = auto()
    ABORTED = auto()  # by the client, or certainly by its coordinator
    UNKNOWN = auto()  # abandoned, or no response: committed or aborted as a whole


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
    """Offsets between two consecutive records of a consumer."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    log_start_offset: int
    """Highest log start offset of any replica at that time."""
    is_inside: bool = False
    """True if both records came from one poll."""


class ConsumerHistory:
    """Polls of one consumer. The consumer reports its seeks; all other positions must be consecutive."""

    def __init__(self, history: "History", name: str, *, is_read_committed: bool) -> None:
        self.name = name
        self.is_read_committed = is_read_committed
        self.gaps: list[Gap] = []
        self.positions: dict[TopicPartition, int | None] = {}
        """Next expected offset; None if only the broker knows it, as after a lookup by time."""
        self._history = history

    def on_seek(self, topic_partition: TopicPartition, offset: int | None = None) -> None:
        """Record a seek, or the start of an assignment."""
        self.positions[topic_partition] = offset

    def on_assigned(self, offsets: dict[TopicPartition, int]) -> None:
        """Record a new assignment, which replaces the previous one."""
        self.positions = dict(offsets)

    def on_poll(self, records: Iterable[tuple[TopicPartition, int, bytes | None]]) -> None:
        """Record all records of one poll, in order."""
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
    """An offset never changes its content (I5); every value was written by a client and not refused."""

    def __init__(self) -> None:
        self.contents: dict[TopicPartition, dict[int, bytes | None]] = defaultdict(dict)
        """Values by offset, as reported to clients."""
        self.acknowledged: dict[TopicPartition, dict[bytes, int]] = defaultdict(dict)
        """Acknowledged offset by value."""
        self.ends: dict[TopicPartition, int] = defaultdict(int)
        """End of the acknowledged records: every leader has at least these (I4)."""
        self.log_starts: dict[TopicPartition, int] = defaultdict(int)
        """Highest log start offset on any replica, by retention or DeleteRecords."""
        self.writes: dict[bytes, Write] = {}
        self.writes_by_key: dict[tuple[TopicPartition, bytes], list[Write]] = defaultdict(list)
        self.on_end: list[Callable[[TopicPartition], None]] = []
        """Callbacks for new ends of acknowledged records."""
        self.transactions: list[Transaction] = []
        self.consumers: list[ConsumerHistory] = []
        self.compacted_topics: set[str] = set()
        self.lossy_topics: set[str] = set()
        """Topics with unclean elections: acknowledged records may be lost."""
        self.reads = 0
        self.seen: dict[TopicPartition, dict[bytes, int]] = defaultdict(dict)
        """First offset at which a consumer read a value."""
        self.seen_committed: dict[bytes, str] = {}
        """First consumer that read a value with read_committed."""
        self.contradictions: list[str] = []

    # ---- writes

    def begin(self, write: Write) -> Write:
        """Record a write before its first attempt. Values are unique in the whole history."""
        assert write.value not in self.writes, f"{write.value!r} is written a second time"
        self.writes[write.value] = write
        if write.key is not None:
            self.writes_by_key[write.topic_partition, write.key].append(write)
        if write.transaction is not None:
            write.transaction.writes.append(write)
        return write

    def on_tombstone(self, topic_partition: TopicPartition, key: bytes) -> None:
        """A tombstone is in flight: earlier records of the key may be deleted."""
        self.writes_by_key[topic_partition, key].append(Write(topic_partition, b"", "somebody", key=key))

    def acknowledge(self, write: Write, offset: int) -> None:
        write.outcome, write.offset = Outcome.ACKNOWLEDGED, offset
        if write.acks != ACKS_ALL or write.topic_partition.topic in self.lossy_topics:
            return
        topic_partition = write.topic_partition
        self.acknowledged[topic_partition][write.value] = offset
        if offset != NO_OFFSET:
            self._record(topic_partition, offset, write.value, "acknowledged")
            if offset >= self.ends[topic_partition]:
                self.ends[topic_partition] = offset + 1
                for callback in self.on_end:
                    callback(topic_partition)

    def reject(self, write: Write) -> None:
        write.outcome = Outcome.REJECTED

    def on_acknowledged(self, topic_partition: TopicPartition, offset: int, value: bytes) -> None:
        """Record an acknowledgement of a write that may be unknown."""
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
            self._record(topic_partition, offset, value, "read")
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
        """A value has one offset, unless an unclean election lost it and a retry wrote it again."""
        previous = self.seen[topic_partition].setdefault(value, offset)
        if previous != offset and topic_partition.topic not in self.lossy_topics and self._is_written_once(value):
            self.contradictions.append(f"duplicate {topic_partition} holds {value!r} at {previous} and at {offset}")

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

    def _record(self, topic_partition: TopicPartition, offset: int, value: bytes | None, verb: str) -> None:
        previous = self.contents[topic_partition].setdefault(offset, value)
        if previous != value:
            self.contradictions.append(f"I5 {topic_partition}@{offset} was {previous!r} and is {verb} as {value!r}")

    # ---- deletions

    def on_log_start(self, topic_partition: TopicPartition, offset: int) -> None:
        if offset > self.log_starts[topic_partition]:
            self.log_starts[topic_partition] = offset

    def losses(self, topic_partition: TopicPartition, log: Log) -> Iterator[str]:
        """Acknowledged or read records that the log lacks, and records that it holds twice."""
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
        yield from self._unwritten_values(topic_partition, held)

    def _unwritten_values(self, topic_partition: TopicPartition, held: dict[int, bytes | None]) -> Iterator[str]:
        for offset, value in held.items():
            write = None if value is None else self.writes.get(value)
            if write is not None and write.outcome is Outcome.REJECTED:
                yield f"failed-write {topic_partition}@{offset} holds {value!r}, which was refused"

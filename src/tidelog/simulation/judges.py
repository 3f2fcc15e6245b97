"""Checkers of a complete client history: those of Jepsen's Kafka workload, and more.

Each checker is a function of the history that yields one line per violation. The history itself records violations
visible in one event (inconsistent offsets, duplicates, phantoms, non-monotonic polls, precommitted reads).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from tidelog.simulation.history import Decision, Gap, History, Outcome, Write
from tidelog.types import NO_OFFSET, TopicPartition

Judge = Callable[[History], Iterator[str]]


def judge(history: History) -> list[str]:
    """Called when all clients have finished and a consumer of each isolation level has read everything."""
    return [*history.contradictions, *(line for each in JUDGES for line in each(history))]


def lost_writes(history: History) -> Iterator[str]:
    """Acknowledged records that were never read although a consumer read beyond them."""
    ends = {
        topic_partition: max(values.values(), default=NO_OFFSET) for topic_partition, values in history.seen.items()
    }
    for write in _acknowledged(history):
        is_beyond = NO_OFFSET < write.offset < ends.get(write.topic_partition, NO_OFFSET)
        if is_beyond and not _was_seen(history, write):
            yield (
                f"lost-write {write.topic_partition}@{write.offset} {write.value!r} was acknowledged and is not there,"
                f" though {ends[write.topic_partition]} is"
            )


def unseen_writes(history: History) -> Iterator[str]:
    """Acknowledged records that no consumer reached."""
    ends = {topic_partition: max(values.values(), default=-1) for topic_partition, values in history.seen.items()}
    for write in _acknowledged(history):
        if not _was_seen(history, write) and write.offset >= ends.get(write.topic_partition, NO_OFFSET):
            yield f"unseen {write.topic_partition}@{write.offset} {write.value!r} was acknowledged and is never read"


def _acknowledged(history: History) -> Iterator[Write]:
    """Writes that a consumer of all records must see."""
    for write in history.writes.values():
        if write.outcome is not Outcome.ACKNOWLEDGED or write.topic_partition.topic in history.lossy_topics:
            continue
        if write.value not in history.acknowledged[write.topic_partition]:
            continue
        if write.transaction is not None and write.transaction.decision is not Decision.COMMITTED:
            continue
        if NO_OFFSET < write.offset < history.log_starts[write.topic_partition]:
            continue
        if not _is_superseded(history, write.topic_partition, write.key, write.offset):
            yield write


def _was_seen(history: History, write: Write) -> bool:
    return write.value in history.seen[write.topic_partition]


def _is_superseded(history: History, topic_partition: TopicPartition, key: bytes | None, offset: int) -> bool:
    """In a compacted topic a later record of the key, acknowledged or in flight, may remove the earlier one."""
    if topic_partition.topic not in history.compacted_topics or key is None:
        return False
    return any(
        other.offset > offset or other.offset == NO_OFFSET
        for other in history.writes_by_key[topic_partition, key]
        if other.outcome is not Outcome.REJECTED
    )


def nonmonotonic_sends(history: History) -> Iterator[str]:
    """Records of one producer in a partition must be in the order of sending."""
    last: dict[tuple[str, TopicPartition], Write] = {}
    for write in history.writes.values():
        if not write.is_idempotent or write.outcome is not Outcome.ACKNOWLEDGED or write.offset == NO_OFFSET:
            continue
        if write.topic_partition.topic in history.lossy_topics:
            continue
        key = write.writer, write.topic_partition
        before = last.get(key)
        if before is not None and write.offset <= before.offset:
            yield (
                f"nonmonotonic-send {write.topic_partition} took {write.value!r} at {write.offset},"
                f" and {before.value!r}, which {write.writer} sent before, at {before.offset}"
            )
        last[key] = write


def skipped_polls(history: History) -> Iterator[str]:
    """A consumer skipped a record that it had to see."""
    for consumer in history.consumers:
        for gap in consumer.gaps:
            for offset in range(max(gap.start_offset, gap.log_start_offset), gap.end_offset):
                value = _visible(history, gap, offset, is_read_committed=consumer.is_read_committed)
                if value is not None:
                    kind = "int-poll-skip" if gap.is_inside else "poll-skip"
                    yield (
                        f"{kind} {consumer.name} went from {gap.start_offset} to {gap.end_offset} of"
                        f" {gap.topic_partition} and passed over {value!r} at {offset}"
                    )


def _visible(history: History, gap: Gap, offset: int, *, is_read_committed: bool) -> bytes | None:
    topic_partition = gap.topic_partition
    value = history.contents[topic_partition].get(offset)
    if value is None:
        return None
    write = history.writes.get(value)
    if write is None or _is_superseded(history, topic_partition, write.key, offset):
        return None
    transaction = write.transaction
    if is_read_committed and transaction is not None and transaction.decision is not Decision.COMMITTED:
        return value if value in history.seen_committed else None
    return value


def aborted_reads(history: History) -> Iterator[str]:
    """No record of an aborted transaction is read with read_committed."""
    for transaction in history.transactions:
        if transaction.decision is Decision.ABORTED:
            for write in transaction.writes:
                reader = history.seen_committed.get(write.value)
                if reader is not None:
                    yield f"aborted-read {reader} read {write.value!r} of {write.topic_partition}, which was aborted"


def torn_transactions(history: History) -> Iterator[str]:
    """In the end either all records of a transaction are read, or none."""
    for transaction in history.transactions:
        written = [write for write in transaction.writes if write.outcome is Outcome.ACKNOWLEDGED]
        missing = [write for write in written if not _is_committed(history, write)]
        is_seen = any(write.value in history.seen_committed for write in transaction.writes)
        if missing and (is_seen or transaction.decision is Decision.COMMITTED):
            first = missing[0]
            yield (
                f"torn-transaction {first.value!r} of {first.topic_partition} is not read as committed, of a"
                f" transaction of {transaction.writer} that is {transaction.decision.name.lower()}"
                f" with {len(written)} records, {len(missing)} of them missing"
            )


def _is_committed(history: History, write: Write) -> bool:
    is_deleted = NO_OFFSET < write.offset < history.log_starts[write.topic_partition]
    return is_deleted or write.value in history.seen_committed


def visible_failed_writes(history: History) -> Iterator[str]:
    """Records that a broker certainly refused are never read."""
    for write in history.writes.values():
        if write.outcome is Outcome.REJECTED:
            offset = history.seen[write.topic_partition].get(write.value)
            if offset is not None:
                yield f"failed-write {write.topic_partition}@{offset} {write.value!r} was refused, and is read"


def one_value_at_two_offsets(history: History) -> Iterator[str]:
    """Records acknowledged at one offset and read at another."""
    for topic_partition, seen in history.seen.items():
        for value, offset in seen.items():
            write = history.writes.get(value)
            if write is None or topic_partition.topic in history.lossy_topics:
                continue
            if write.is_idempotent and NO_OFFSET != write.offset != offset:
                yield (
                    f"inconsistent-offset {topic_partition} acknowledged {value!r} at {write.offset},"
                    f" and it is read at {offset}"
                )


def one_offset_for_two_values(history: History) -> Iterator[str]:
    """Offsets acknowledged for two values, neither of which was read."""
    places: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
    for write in history.writes.values():
        if write.outcome is Outcome.ACKNOWLEDGED and write.offset != NO_OFFSET:
            if write.topic_partition.topic in history.lossy_topics or write.acks != -1:
                continue
            previous = places[write.topic_partition].setdefault(write.offset, write.value)
            if previous != write.value:
                yield (
                    f"inconsistent-offset {write.topic_partition}@{write.offset} was acknowledged for {previous!r}"
                    f" and for {write.value!r}"
                )


JUDGES: list[Judge] = [
    lost_writes,
    unseen_writes,
    nonmonotonic_sends,
    skipped_polls,
    aborted_reads,
    torn_transactions,
    visible_failed_writes,
    one_value_at_two_offsets,
    one_offset_for_two_values,
]

"""Committed offsets of consumer groups, and pending offsets of open transactions.

There may be a hundred thousand of them: an offset is kept as the bytes of its record and decoded on request.
"""

# Core: no clock, no I/O, no await.

from collections.abc import Iterator, Mapping
from sys import intern
from typing import NamedTuple, TypeAlias

from tidelog.types import TopicPartition

Value: TypeAlias = bytes
"""Value of the record; `offset_records.decode_value` decodes it."""


class _Pending(NamedTuple):
    position: int
    """Order of writing: of two commits the one written later wins, even if its transaction ends earlier."""
    value: Value | None
    """None if a later commit has replaced it already."""


_Transaction: TypeAlias = dict[str, dict[TopicPartition, _Pending]]
"""By group."""

NO_TOPICS: Mapping[str, Mapping[int, Value]] = {}


class CommittedOffsets:
    """State derived only from the records, in their order."""

    def __init__(self) -> None:
        self.count = 0
        self._position = 0
        self._by_group: dict[str, dict[str, dict[int, Value]]] = {}
        self._transactions: dict[int, _Transaction] = {}
        self._producers_by_group: dict[str, set[int]] = {}

    # ---- queries

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Value]]:
        """Offsets by topic and partition."""
        return self._by_group.get(group_id, NO_TOPICS)

    def get(self, group_id: str, topic: str, partition: int) -> Value | None:
        partitions = self.of_group(group_id).get(topic)
        return None if partitions is None else partitions.get(partition)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """True if an open transaction has an offset for the partition."""
        topic_partition = TopicPartition(topic, partition)
        return any(topic_partition in pending for _, pending in self._pending_of(group_id))

    def has_transactions(self, group_id: str) -> bool:
        return group_id in self._producers_by_group

    def pending_partitions(self, group_id: str) -> set[TopicPartition]:
        return {topic_partition for _, pending in self._pending_of(group_id) for topic_partition in pending}

    def pending_values(self, group_id: str) -> Iterator[tuple[TopicPartition, Value]]:
        for _, pending in self._pending_of(group_id):
            for topic_partition, (_, value) in pending.items():
                if value is not None:
                    yield topic_partition, value

    def _pending_of(self, group_id: str) -> Iterator[tuple[int, dict[TopicPartition, _Pending]]]:
        for producer_id in self._producers_by_group.get(group_id, ()):
            yield producer_id, self._transactions[producer_id][group_id]

    # ---- replay of records

    def put(self, group_id: str, topic: str, partition: int, value: Value) -> None:
        self._position += 1
        self._store(group_id, topic, partition, value)
        if group_id in self._producers_by_group:
            self._overrule(group_id, TopicPartition(topic, partition), self._position)

    def put_pending(self, producer_id: int, group_id: str, topic: str, partition: int, value: Value) -> None:
        self._position += 1
        transaction = self._transactions.setdefault(producer_id, {})
        pending = transaction.setdefault(group_id, {})
        pending[TopicPartition(intern(topic), partition)] = _Pending(self._position, value)
        self._producers_by_group.setdefault(group_id, set()).add(producer_id)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Remove the offset and pending ones: a tombstone covers everything before it."""
        topic_partition = TopicPartition(topic, partition)
        topics = self._by_group.get(group_id)
        if topics is not None and topics.get(topic, {}).pop(partition, None) is not None:
            self.count -= 1
            if not topics[topic]:
                del topics[topic]
            if not topics:
                del self._by_group[group_id]
        for producer_id, pending in list(self._pending_of(group_id)):
            if pending.pop(topic_partition, None) is not None and not pending:
                self._forget_pending(producer_id, group_id)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        for group_id, pending in list(self._transactions.get(producer_id, {}).items()):
            self._forget_pending(producer_id, group_id)
            if is_committed:
                for topic_partition, (position, value) in pending.items():
                    if value is not None:
                        self._store(group_id, *topic_partition, value)
                        self._overrule(group_id, topic_partition, position)

    def _store(self, group_id: str, topic: str, partition: int, value: Value) -> None:
        try:
            partitions = self._by_group[group_id][topic]
        except KeyError:
            partitions = self._by_group.setdefault(group_id, {})[intern(topic)] = {}
        if partition not in partitions:
            self.count += 1
        partitions[partition] = value

    def _overrule(self, group_id: str, topic_partition: TopicPartition, position: int) -> None:
        """Discard pending offsets that were written before this position."""
        for _, pending in self._pending_of(group_id):
            other = pending.get(topic_partition)
            if other is not None and other.position < position:
                pending[topic_partition] = other._replace(value=None)

    def _forget_pending(self, producer_id: int, group_id: str) -> None:
        transaction = self._transactions[producer_id]
        del transaction[group_id]
        if not transaction:
            del self._transactions[producer_id]
        producers = self._producers_by_group[group_id]
        producers.discard(producer_id)
        if not producers:
            del self._producers_by_group[group_id]

"""Partitioner for rows: the column `partition`, else by key, else round robin in runs."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tidelog.spark.records.arrow_columns import BytesColumn, NumbersColumn
from tidelog.spark.records.encode_kernels import is_set
from tidelog.spark.records.kernels import Ints, Long, Longs, kernel
from tidelog.spark.records.murmur2 import partition_of_key
from tidelog.types import TopicPartition

MIN_RUN = 1000
"""Rows without a key that go to the same partition in a row: few large batches instead of many small ones."""

_ALL_CHOSEN = -1


class NoSuchPartition(Exception):
    """A row has a partition that its topic does not have."""


class _Topic(NamedTuple):
    name: str
    partition_count: int
    first_target: int
    led: Sequence[int]
    """Partitions with a leader: only these get rows without a key."""


class _Tables(NamedTuple):
    """By topic number: the kernel's data about the topic, and the state of its round robin."""

    partition_counts: Longs
    first_targets: Longs
    led_partitions: Longs
    first_led: Longs
    led_counts: Longs
    current_led: Longs
    rows_left: Longs


class Targets:
    """Numbers topics in the order in which they are added, and their partitions as targets."""

    def __init__(self, first_led: int = 0) -> None:
        """Rows without a key start at the partition after `first_led`, which should differ between writers."""
        self.partitions: list[TopicPartition] = []
        self._topics: list[_Topic] = []
        self._numbers: dict[str, int] = {}
        self._first_led = first_led
        self._tables = self._make_tables()

    def number_of(self, topic: str) -> int | None:
        return self._numbers.get(topic)

    def add_topic(self, name: str, partition_count: int, led: Sequence[int]) -> None:
        self._numbers[name] = len(self._topics)
        self._topics.append(_Topic(name, partition_count, len(self.partitions), led or range(partition_count)))
        self.partitions += (TopicPartition(name, partition) for partition in range(partition_count))
        self._tables = self._make_tables()

    def _make_tables(self) -> _Tables:
        led_counts = [len(topic.led) for topic in self._topics]
        return _Tables(
            _numbers(topic.partition_count for topic in self._topics),
            _numbers(topic.first_target for topic in self._topics),
            _numbers(partition for topic in self._topics for partition in topic.led),
            _numbers(sum(led_counts[:index]) for index in range(len(led_counts))),
            _numbers(led_counts),
            _numbers(self._first_led % count for count in led_counts),
            _numbers(0 for _ in self._topics),
        )

    def choose(self, topics: Ints, partitions: NumbersColumn, keys: BytesColumn) -> Ints:
        """The target of each row, from topic numbers, partitions and keys."""
        chosen = np.empty(len(topics), np.int32)
        bad_row = _choose(topics, partitions, keys, self._tables, _run_rows(len(topics), self._tables), chosen)
        if bad_row != _ALL_CHOSEN:
            raise self._no_such_partition(self._topics[topics[bad_row]], int(partitions.numbers[bad_row]))
        return chosen

    def _no_such_partition(self, topic: _Topic, partition: int) -> NoSuchPartition:
        return NoSuchPartition(
            f"A row has partition {partition} in its column 'partition', but topic '{topic.name}'"
            f" has only partitions 0 to {topic.partition_count - 1}."
        )


def _numbers(values: Iterable[int]) -> Longs:
    return np.fromiter(values, np.int64)


def _run_rows(row_count: int, tables: _Tables) -> Longs:
    """By topic: rows without a key that one partition gets before the next one."""
    even_shares: Longs = -(-row_count // tables.led_counts)
    return np.maximum(MIN_RUN, even_shares)


@kernel
def _choose(
    topics: Ints, partitions: NumbersColumn, keys: BytesColumn, tables: _Tables, run_rows: Longs, chosen: Ints
) -> Long:
    """The first row with a partition that does not exist, or _ALL_CHOSEN."""
    named_validity, named_first_bit, named = partitions
    validity, first_bit, offsets, data = keys
    partition_counts, first_targets, led_partitions, first_led, led_counts, current_led, rows_left = tables
    for row in range(topics.size):
        topic = topics[row]
        if named.size and (named_validity.size == 0 or is_set(named_validity, named_first_bit + row)):
            partition: Long = np.int64(named[row])
            if not 0 <= partition < partition_counts[topic]:
                return row
        elif validity.size == 0 or is_set(validity, first_bit + row):
            start = np.int64(offsets[row])
            length = np.int64(offsets[row + 1]) - start
            partition = partition_of_key(data, start, length, partition_counts[topic])
        else:
            if rows_left[topic] == 0:
                current_led[topic] = (current_led[topic] + 1) % led_counts[topic]
                rows_left[topic] = run_rows[topic]
            rows_left[topic] -= 1
            partition = led_partitions[first_led[topic] + current_led[topic]]
        chosen[row] = first_targets[topic] + partition
    return _ALL_CHOSEN

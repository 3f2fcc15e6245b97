"""Input of Spark: topics of the same records for both formats, filled once and over raw sockets."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from bench import probes, wire
from bench.wire import ERROR_NONE, Connection, RequestRejected

KEY_BYTES, VALUE_BYTES = 10, 100
ROW_BYTES = KEY_BYTES + VALUE_BYTES
RECORDS_PER_BATCH = 1_000
DISTINCT_BATCHES = 100
"""Enough that Parquet finds no dictionary worth having."""

FIRST_TIMESTAMP_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}
"""The records are older than a broker keeps them by itself."""


@dataclass(frozen=True)
class Slice:
    """Part of a topic, the same in each of its partitions."""

    topic: str
    partitions: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        return (self.end - self.start) * self.partitions

    @property
    def starting_offsets(self) -> str:
        return self._offsets(self.start)

    @property
    def ending_offsets(self) -> str:
        return self._offsets(self.end)

    def _offsets(self, offset: int) -> str:
        return json.dumps({self.topic: {str(partition): offset for partition in range(self.partitions)}})


@dataclass(frozen=True)
class FilledTopic:
    name: str
    partitions: int
    rows: int

    def first(self, rows: int) -> Slice:
        return Slice(self.name, self.partitions, 0, min(rows, self.rows) // self.partitions)

    def last(self, rows: int) -> Slice:
        end = self.rows // self.partitions
        return Slice(self.name, self.partitions, end - min(rows, self.rows) // self.partitions, end)


def fill(port: int, topic: FilledTopic, lz4: bool) -> None:
    """Batches of a thousand records with keys, to the partitions in turn."""
    probes.create_topic([port], topic.name, topic.partitions, KEPT)
    frames = _frames(topic, lz4)
    with Connection(port) as connection:
        for frame in islice(cycle(frames), topic.rows // RECORDS_PER_BATCH):
            if (error := wire.produce_error(connection.ask(frame))) != ERROR_NONE:
                raise RequestRejected(f"filling {topic.name} failed with error {error}")


def _frames(topic: FilledTopic, lz4: bool) -> list[bytes]:
    # A multiple of the partitions, so that these stay in turn from cycle to cycle.
    count = DISTINCT_BATCHES * topic.partitions
    return [wire.produce_frame(topic.name, {number % topic.partitions: batch(number, lz4)}) for number in range(count)]


def batch(number: int, lz4: bool) -> bytes:
    first = number * RECORDS_PER_BATCH
    numbers = range(first, first + RECORDS_PER_BATCH)
    return wire.record_batch(values(numbers), FIRST_TIMESTAMP_MS + number, keys(numbers), lz4=lz4)


def keys(numbers: Sequence[int]) -> list[bytes]:
    return [b"k%09d" % number for number in numbers]


def values(numbers: Sequence[int]) -> list[bytes]:
    """Like JSON, and compressible like it: to less than a third by lz4."""
    texts = (
        b'{"order":%d,"customer":"%016x","product":"p-%04d","amount":%d.%02d,"in":"DE"}'
        % (number, number * 11_400_714_819_323_198_485 % 2**64, number % 1_000, number % 500, number % 100)
        for number in numbers
    )
    return [text.ljust(VALUE_BYTES) for text in texts]

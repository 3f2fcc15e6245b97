"""Filters on topic, partition, offset and timestamp: which ranges are left, and what Spark must still evaluate."""

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from tidelog.spark.source.batch_planning import OffsetRange
from tidelog.spark.source.batch_reader import BatchReader
from tidelog.spark.source.record_filter import RecordFilter, pushed, starting_at
from tidelog.types import NO_OFFSET

OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)
RANGES = [OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 50, 60), OffsetRange("b", 1, 0, 10)]


def left_of(*filters: Filter) -> list[tuple[str, int, int, int]]:
    """The ranges of filters that the source applies completely."""
    found, left = pushed(filters)
    assert left == []
    return [each[:4] for each in found.ranges(RANGES)]


def test_partitions_that_no_row_comes_from_are_not_read() -> None:
    assert left_of(EqualTo(PARTITION, 1), IsNotNull(PARTITION)) == [("a", 1, 50, 60), ("b", 1, 0, 10)]
    assert left_of(In(TOPIC, ("b", "c")), GreaterThan(PARTITION, 0)) == [("b", 1, 0, 10)]
    assert left_of(LessThan(PARTITION, 0)) == []


def test_offsets_outside_are_not_read() -> None:
    assert left_of(GreaterThan(OFFSET, 4), LessThan(OFFSET, 55)) == [("a", 0, 5, 55), ("a", 1, 50, 55), ("b", 1, 5, 10)]
    assert left_of(GreaterThanOrEqual(OFFSET, 99)) == [("a", 0, 99, 100)]
    assert left_of(LessThanOrEqual(OFFSET, 0), EqualTo(TOPIC, "a")) == [("a", 0, 0, 1)]
    assert left_of(EqualTo(OFFSET, 52)) == [("a", 0, 52, 53), ("a", 1, 52, 53)]
    assert left_of(In(OFFSET, (7, 8, 9)), EqualTo(PARTITION, 0)) == [("a", 0, 7, 10)]
    assert left_of(LessThan(OFFSET, -5)) == left_of(EqualTo(OFFSET, -1)) == []


def test_gaps_in_a_list_of_offsets_are_left_to_spark() -> None:
    scattered = In(OFFSET, (3, 9))
    found, left = pushed([scattered])
    assert (next(each[:4] for each in found.ranges(RANGES)), left) == (("a", 0, 3, 10), [scattered])


def test_a_time_is_where_reading_starts_and_never_where_it_ends() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 1500, UTC)
    filters = [GreaterThanOrEqual(TIMESTAMP, moment), LessThan(TIMESTAMP, moment), IsNotNull(TIMESTAMP)]
    found, left = pushed(filters)
    assert (found, left) == (RecordFilter(first_ms=1769860800001), filters)
    first = {RANGES[0].topic_partition: 40, RANGES[1].topic_partition: 3, RANGES[2].topic_partition: NO_OFFSET}
    assert [each[:4] for each in starting_at(RANGES, first)] == [("a", 0, 40, 100), ("a", 1, 50, 60)]


@pytest.mark.parametrize(
    "other",
    [
        EqualTo(("key",), b"k"),
        Not(EqualTo(OFFSET, 1)),
        EqualTo(OFFSET, 1.5),
        EqualTo(("headers", "offset"), 1),
        In(OFFSET, ()),
        GreaterThan(TIMESTAMP, datetime(2026, 1, 1)),
        IsNotNull(("value",)),
    ],
)
def test_anything_else_is_left_to_spark(other: Filter) -> None:
    assert pushed([other]) == (RecordFilter(), [other])


def test_sessions_that_push_nothing_down_accept_the_reader() -> None:
    """PySpark refuses a reader with a method of its own there."""
    from pyspark.sql.datasource import DataSourceReader

    options: Any = None
    reader = BatchReader(options, ("value",))
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters
    assert list(reader.pushFilters([EqualTo(OFFSET, 1), EqualTo(("key",), b"k")])) == [EqualTo(("key",), b"k")]

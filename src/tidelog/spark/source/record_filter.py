"""Filters on topic, partition, offset and timestamp that Spark pushes down to a batch query."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tidelog.spark.source.batch_planning import OffsetRange
from tidelog.types import NO_OFFSET, TopicPartition

MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEVER_NULL = ("topic", "partition", "offset")
VALUE_TYPES: Mapping[str, type] = {"topic": str, "partition": int, "offset": int}


class Condition(NamedTuple):
    column: str
    kind: str
    """Name of PySpark's class of the filter."""
    value: Any

    def holds(self, value: Any) -> bool:
        match self.kind:
            case "EqualTo":
                return bool(value == self.value)
            case "In":
                return value in self.value
            case "GreaterThan":
                return bool(value > self.value)
            case "GreaterThanOrEqual":
                return bool(value >= self.value)
            case "LessThan":
                return bool(value < self.value)
            case "LessThanOrEqual":
                return bool(value <= self.value)
        raise AssertionError(self.kind)


COMPARISONS = ("EqualTo", "In", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Conditions that all records of the result meet."""

    on_partitions: tuple[Condition, ...] = ()
    """On topic and partition."""
    first_offset: int = 0
    end_offset: int | None = None
    first_ms: int | None = None
    """Records before the first one of this time or later are not of the result. There is no such end: a record after
    the first one of a later time may still have an earlier time."""

    def ranges(self, found: Iterable[OffsetRange]) -> list[OffsetRange]:
        kept = []
        for each in found:
            place = {"topic": each.topic, "partition": each.partition}
            if all(condition.holds(place[condition.column]) for condition in self.on_partitions):
                end = each.end if self.end_offset is None else min(each.end, self.end_offset)
                kept.append(each._replace(start=max(each.start, self.first_offset), end=end))
        return [each for each in kept if each.size > 0]


def starting_at(found: Iterable[OffsetRange], first: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """`first` has the first offset of the wanted time; NO_OFFSET if the partition has no such record."""
    kept = [
        each._replace(start=max(each.start, first[each.topic_partition]))
        for each in found
        if first[each.topic_partition] != NO_OFFSET
    ]
    return [each for each in kept if each.size > 0]


def pushed(filters: Iterable[Any]) -> tuple[RecordFilter, list[Any]]:
    """The part of PySpark's filters that the source applies, and the filters that Spark must still evaluate."""
    found, left = RecordFilter(), []
    for each in filters:
        column, kind = ".".join(getattr(each, "attribute", ())), type(each).__name__
        if kind == "IsNotNull" and column in NEVER_NULL:
            continue
        narrowed, is_exact = found, False
        if kind in COMPARISONS:
            narrowed, is_exact = _narrowed(found, Condition(column, kind, each.value))
        found = narrowed
        if not is_exact:
            left.append(each)
    return found, left


def _narrowed(found: RecordFilter, condition: Condition) -> tuple[RecordFilter, bool]:
    """The filter with one more condition, and whether it applies all of it."""
    column, kind, value = condition
    values = value if kind == "In" else [value]
    if column == "timestamp":
        return _from_time(found, kind, values), False
    if not values or column not in VALUE_TYPES or not all(type(each) is VALUE_TYPES[column] for each in values):
        return found, False
    if column != "offset":
        return replace(found, on_partitions=(*found.on_partitions, condition)), True
    low, high = min(values), max(values)
    first = {"GreaterThan": low + 1, "LessThan": 0, "LessThanOrEqual": 0}.get(kind, low)
    end = {"LessThan": high, "GreaterThan": None, "GreaterThanOrEqual": None}.get(kind, high + 1)
    ends = [each for each in (found.end_offset, end) if each is not None]
    narrowed = replace(found, first_offset=max(found.first_offset, first), end_offset=min(ends, default=None))
    return narrowed, kind != "In" or high - low < len(set(values))


def _from_time(found: RecordFilter, kind: str, values: list[Any]) -> RecordFilter:
    if not values or kind.startswith("Less") or not all(isinstance(each, datetime) and each.tzinfo for each in values):
        return found
    first_ms = max(0, (min(values) - EPOCH) // MILLISECOND)
    return replace(found, first_ms=max(found.first_ms or 0, first_ms))

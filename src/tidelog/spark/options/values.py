"""Option values: types and parsers."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar

from tidelog.spark.offset_json import EARLIEST, LATEST, BadOffsets, Offsets, partition_lists, partition_numbers
from tidelog.types import TopicPartition

T = TypeVar("T")


class OptionError(ValueError):
    """An option that the query cannot have; the message is one sentence that names it."""


class BadValue(ValueError):
    """Invalid value; the message continues `Option 'x'`."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """These topics, with all their present and future partitions."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Every topic whose name contains a match of the pattern, including topics created later."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Only these partitions."""

    partitions: tuple[TopicPartition, ...]


Subscription: TypeAlias = Subscribe | SubscribePattern | Assign


class Edge(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """One offset per partition; EARLIEST and LATEST are allowed."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of each partition at or after the timestamp."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same, with one timestamp per partition."""

    timestamps_ms: Offsets


OffsetBound: TypeAlias = Edge | AtOffsets | AtTime | AtTimes
"""Start or end of reading."""


class TimestampStrategy(StrEnum):
    """What to do with a partition without a record at or after the starting time."""

    ERROR = "error"
    LATEST = "latest"


_DURATION = re.compile(r"(-?[0-9]+)\s*([a-z]*)")
_UNIT_MS = {
    "": 1.0,
    "us": 0.001,
    "ms": 1.0,
    "s": 1000.0,
    "m": 60_000.0,
    "min": 60_000.0,
    "h": 3_600_000.0,
    "d": 86_400_000.0,
}


def parsed(name: str, parse: Callable[[str], T], text: str) -> T:
    """Raises OptionError with the name of the option."""
    try:
        return parse(text)
    except BadValue as error:
        raise OptionError(f"Option '{name}' {error}") from None


def boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise BadValue(f"must be true or false, not {text!r}")
    return lowered == "true"


def whole_number(*, at_least: int, at_most: int = 2**63 - 1) -> Callable[[str], int]:
    def parse(text: str) -> int:
        stripped = text.strip()
        number = int(stripped) if re.fullmatch(r"[+-]?[0-9]{1,19}", stripped) else None
        if number is None or not at_least <= number <= at_most:
            bounds = f"at least {at_least}" if at_most == 2**63 - 1 else f"from {at_least} to {at_most}"
            raise BadValue(f"must be a whole number, {bounds}, not {text!r}")
        return number

    return parse


def milliseconds(text: str) -> float:
    """In seconds."""
    return whole_number(at_least=1)(text) / 1000


def duration(text: str) -> float:
    """In seconds; Spark's units, milliseconds without a unit."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNIT_MS or int(match[1]) < 0:
        raise BadValue(f"must be a time such as 500ms, 30s, 15m or 1h, not {text!r}")
    return int(match[1]) * _UNIT_MS[match[2]] / 1000


def non_empty_text(text: str) -> str:
    stripped = text.strip()
    if not stripped:
        raise BadValue("must not be empty")
    return stripped


def topics(text: str) -> Subscribe:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise BadValue(f"must have at least one topic, as in 'orders,payments', not {text!r}")
    return Subscribe(names)


def pattern(text: str) -> SubscribePattern:
    stripped = non_empty_text(text)
    try:
        re.compile(stripped)
    except re.error as error:
        raise BadValue(f"is not a regular expression ({error}): {text!r}") from None
    return SubscribePattern(stripped)


def assignment(text: str) -> Assign:
    try:
        partitions = partition_lists(text)
    except BadOffsets as error:
        raise BadValue(f'must look like {{"orders":[0,1],"payments":[0]}}: {error}') from None
    if not partitions:
        raise BadValue(f"must have at least one partition: {text!r}")
    return Assign(partitions)


def offset_bound(text: str) -> OffsetBound:
    """`earliest`, `latest`, or offsets as JSON."""
    stripped = text.strip()
    if stripped.lower() in tuple(Edge):
        return Edge(stripped.lower())
    try:
        offsets = partition_numbers(stripped)
    except BadOffsets as error:
        how = f"if it is JSON: {error}" if stripped.startswith("{") else f"not {text!r}"
        raise BadValue(f'must be earliest, latest or JSON such as {{"orders":{{"0":23,"1":-1}}}}, {how}') from None
    for topic_partition, offset in offsets.items():
        if offset < EARLIEST:
            raise BadValue(f"has {offset} for {topic_partition}; use {LATEST} for latest, {EARLIEST} for earliest")
    return AtOffsets(offsets)


def time(text: str) -> AtTime:
    try:
        return AtTime(whole_number(at_least=0)(text))
    except BadValue:
        raise BadValue(f"must be a time in milliseconds since 1970, such as 1767225600000, not {text!r}") from None


def times(text: str) -> AtTimes:
    try:
        timestamps_ms = partition_numbers(text.strip())
    except BadOffsets as error:
        raise BadValue(f'must be JSON such as {{"orders":{{"0":1767225600000}}}}: {error}') from None
    for topic_partition, timestamp_ms in timestamps_ms.items():
        if timestamp_ms < 0:
            raise BadValue(f"has {timestamp_ms} for {topic_partition}; timestamps are milliseconds since 1970")
    return AtTimes(timestamps_ms)


def timestamp_strategy(text: str) -> TimestampStrategy:
    lowered = text.strip().lower()
    if lowered not in tuple(TimestampStrategy):
        raise BadValue(f"must be error or latest, not {text!r}")
    return TimestampStrategy(lowered)

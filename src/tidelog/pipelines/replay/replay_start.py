"""Start of a replay: parsing of `--from`, and the offsets that it means in each partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

from tidelog.pipelines.running.failures import PipelineFailed
from tidelog.spark.offset_json import EARLIEST, BadOffsets, Offsets, partition_numbers
from tidelog.types import NO_OFFSET, TopicPartition

FORMS = 'earliest, an offset such as 0, a time such as 2026-01-31T12:00:00Z, or {"topic": {"0": 23}}'


class ReplayRejected(PipelineFailed):
    """Nothing was changed; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class AsDeclared:
    """Where the pipeline would start without a checkpoint."""


@dataclass(frozen=True, slots=True)
class AtBeginning:
    pass


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int
    """The same in all partitions."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    offsets: Mapping[TopicPartition, int]
    """Partitions that are not listed start at their log start offset."""


@dataclass(frozen=True, slots=True)
class AtMoment:
    timestamp_ms: int


Start: TypeAlias = AsDeclared | AtBeginning | AtOffset | AtOffsets | AtMoment


class LogFacts(NamedTuple):
    """Offsets of the partitions to read, from the brokers."""

    begin: Offsets
    at_moment: Offsets
    """The first record at or after the requested time; -1 if there is none."""


def parse_start(text: str | None) -> Start:
    """Raises ReplayRejected."""
    if text is None:
        return AsDeclared()
    text = text.strip()
    if text == "earliest":
        return AtBeginning()
    if text.isascii() and text.isdecimal():
        return AtOffset(int(text))
    return _offsets(text) if text.startswith("{") else _moment(text)


def _offsets(text: str) -> AtOffsets:
    try:
        offsets = partition_numbers(text)
    except BadOffsets as error:
        raise ReplayRejected(f"--from: {error}") from None
    if bad := [f"{offset} for {key}" for key, offset in offsets.items() if offset < 0 and offset != EARLIEST]:
        raise ReplayRejected(f"--from: {bad[0]} is not a valid offset; {EARLIEST} means the beginning")
    return AtOffsets(offsets)


def _moment(text: str) -> AtMoment:
    """A time without a time zone is UTC, as everywhere in pipelines."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ReplayRejected(f"--from: expected {FORMS}; found {text!r}") from None
    return AtMoment(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def declared(start: Start, starting: str, source: str) -> Start:
    """Replaces AsDeclared by the start that the source declares."""
    if not isinstance(start, AsDeclared):
        return start
    if starting == "latest":
        raise ReplayRejected(
            f"source {source} starts at 'latest', which cannot be replayed: choose a start with --from"
        )
    return parse_start(starting)


def starting_offsets(start: Start, end: Mapping[TopicPartition, int], log: LogFacts) -> Offsets:
    """Start offset of each partition of `end`, bounded by the log start offset and the end."""
    return {key: min(max(_wanted(start, key, end[key], log), log.begin[key]), end[key]) for key in end}


def _wanted(start: Start, key: TopicPartition, end: int, log: LogFacts) -> int:
    match start:
        case AtOffset(offset):
            return offset
        case AtOffsets(offsets):
            return offsets.get(key, EARLIEST)
        case AtMoment():
            return end if log.at_moment[key] == NO_OFFSET else log.at_moment[key]
        case _:
            return EARLIEST


def may_leave_out(start: Mapping[TopicPartition, int], log: LogFacts, *, is_declared: bool) -> Offsets:
    """Partitions in which the table may have rows of records before `start`, in the log or deleted from it.

    A table whose first run started where the source declares has no rows of records before that.
    """
    return {
        key: offset
        for key, offset in start.items()
        if offset > 0 and not (is_declared and offset > log.begin.get(key, 0))
    }


def reject_unknown_partitions(start: Start, ends: Mapping[TopicPartition, int]) -> None:
    if isinstance(start, AtOffsets) and (unknown := sorted(set(start.offsets) - set(ends))):
        raise ReplayRejected(f"--from has {unknown[0]}, which the sink has not read")


def reject_gap(after: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], log: LogFacts) -> None:
    """No record may be missing between the part already replayed and the continuation."""
    for key, offset in after.items():
        if offset < min(end[key], log.begin[key]):
            raise PipelineFailed(
                f"retention deleted records of {key} from offset {offset} on before the replay could read "
                "them; the table is unchanged: increase the topic's retention, and replay again"
            )

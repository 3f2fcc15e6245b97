"""Start of a replay, for every form of `--from`, in logs that begin and end somewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipelines.replay.replay_start import (
    AsDeclared,
    AtBeginning,
    AtMoment,
    AtOffset,
    AtOffsets,
    LogFacts,
    ReplayRejected,
    Start,
    declared,
    may_leave_out,
    parse_start,
    reject_gap,
    reject_unknown_partitions,
    starting_offsets,
)
from tidelog.pipelines.running.failures import PipelineFailed
from tidelog.types import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (None, AsDeclared()),
        ("earliest", AtBeginning()),
        ("0", AtOffset(0)),
        (" 17 ", AtOffset(17)),
        ("1970-01-01T00:00:01Z", AtMoment(1000)),
        ("1970-01-01T01:00:01+01:00", AtMoment(1000)),
        ("1970-01-01", AtMoment(0)),
        ('{"orders": {"0": 5, "1": -2}}', AtOffsets({P0: 5, P1: -2})),
    ],
)
def test_every_form_is_understood(text: str | None, start: Start) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yesterday", r"--from: expected earliest, an offset such as 0, a time .*; found 'yesterday'"),
        ("-5", "--from: expected"),
        ("latest", "--from: expected"),
        ('{"orders": 5}', "--from: expected an object with a number for each partition of 'orders'"),
        ('{"orders": {"0": -1}}', "--from: -1 for orders-0 is not a valid offset"),
        ("{", "--from: not valid JSON"),
    ],
)
def test_everything_else_is_refused_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(ReplayRejected, match=message):
        parse_start(text)


def test_without_from_the_sources_say_where() -> None:
    assert declared(AsDeclared(), "earliest", "orders") == AtBeginning()
    assert declared(AsDeclared(), "1970-01-01T00:00:01Z", "orders") == AtMoment(1000)
    assert declared(AtOffset(3), "latest", "orders") == AtOffset(3)
    with pytest.raises(ReplayRejected, match=r"source orders starts at 'latest'.*choose a start with --from"):
        declared(AsDeclared(), "latest", "orders")


def test_offsets_for_each_form_of_start() -> None:
    end = {P0: 100, P1: 50}
    log = LogFacts({P0: 10, P1: 0}, {P0: 40, P1: -1})
    assert starting_offsets(AtBeginning(), end, log) == {P0: 10, P1: 0}
    assert starting_offsets(AtOffset(60), end, log) == {P0: 60, P1: 50}
    assert starting_offsets(AtOffset(5), end, log) == {P0: 10, P1: 5}
    assert starting_offsets(AtOffsets({P0: 77}), end, log) == {P0: 77, P1: 0}
    assert starting_offsets(AtMoment(1), end, log) == {P0: 40, P1: 50}


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_a_start_is_inside_the_log_and_not_after_the_end(offset: int, begin: int, end: int) -> None:
    start = starting_offsets(AtOffset(offset), {P0: end}, LogFacts({P0: begin}, {}))[P0]
    assert start <= end
    assert start >= min(begin, end)


def test_rows_may_be_lost_if_older_records_are_skipped_or_gone() -> None:
    log = LogFacts({P0: 10, P1: 0}, {})
    assert may_leave_out({P0: 10, P1: 0}, log, is_declared=True) == {P0: 10}
    assert may_leave_out({P0: 10, P1: 7}, log, is_declared=False) == {P0: 10, P1: 7}
    assert may_leave_out({P0: 15, P1: 7}, log, is_declared=True) == {}
    assert may_leave_out({P1: 0}, log, is_declared=False) == {}


def test_partitions_that_were_never_read_cannot_be_named() -> None:
    reject_unknown_partitions(AtOffsets({P0: 1}), {P0: 5, P1: 5})
    with pytest.raises(ReplayRejected, match="--from has orders-1, which the sink has not read"):
        reject_unknown_partitions(AtOffsets({P1: 1}), {P0: 5})


def test_records_deleted_before_a_replay_could_go_on_end_it() -> None:
    reject_gap({P0: 10}, {P0: 20}, LogFacts({P0: 10}, {}))
    reject_gap({P0: 20}, {P0: 20}, LogFacts({P0: 30}, {}))
    with pytest.raises(PipelineFailed, match="retention deleted records of orders-0 from offset 10 on"):
        reject_gap({P0: 10}, {P0: 20}, LogFacts({P0: 11}, {}))

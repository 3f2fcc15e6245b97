"""Lines of JSON as records, times, patterns of topics, filters, and the pace of writing."""

import argparse
import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest

from tidelog.cli.command_error import CommandError
from tidelog.cli.produce_command import Pace, repeated
from tidelog.cli.record_filter import RecordFilter
from tidelog.cli.record_format import json_line
from tidelog.cli.record_input import BadRecord, InputRecord, json_record
from tidelog.cli.time_options import NOW, duration_option, time_option
from tidelog.cli.topic_patterns import chosen_topics
from tidelog.client.consumer.fetched_records import ConsumedRecord


def record(**fields: object) -> InputRecord:
    return json_record(json.dumps(fields).encode())


def test_fields_of_a_record() -> None:
    assert record(value="v") == InputRecord(None, b"v")
    assert record(key="k", value=None) == InputRecord(b"k", None)
    assert record(value={"a": [1, "é"]}).value == '{"a":[1,"é"]}'.encode()
    assert record(value_base64="/w==", key_base64="AA==") == InputRecord(b"\0", b"\xff")
    assert record(value=1, partition=2, timestamp=3) == InputRecord(None, b"1", (), 2, 3)
    assert record(value="", timestamp="1970-01-01T00:00:01Z").timestamp_ms == 1000
    assert record(value="", headers={"a": "b", "c": None}).headers == (("a", b"b"), ("c", None))
    assert record(value="", headers=[{"key": "a", "value": "1"}, {"key": "a", "value_base64": "/w=="}]).headers == (
        ("a", b"1"),
        ("a", b"\xff"),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "is not JSON"),
        ('{"value": NaN}', "is not JSON (JSON has no NaN)"),
        ('{"value": {"a": -Infinity}}', "is not JSON (JSON has no -Infinity)"),
        ("[]", "is not a JSON object"),
        ("{}", 'has no "value"'),
        ('{"value": 1, "ky": 2}', "unknown field 'ky'; fields are key"),
        ('{"value": 1, "partition": -1}', "has partition -1"),
        ('{"value": 1, "timestamp": "soon"}', "has timestamp 'soon'"),
        ('{"value": 1, "timestamp": 9223372036854775808}', "expected a number from 0 to 9223372036854775807"),
        ('{"value": 1, "headers": 5}', "has headers that are neither"),
        ('{"value_base64": "!"}', "is not base64"),
    ],
)
def test_line_that_is_no_record(line: str, said: str) -> None:
    with pytest.raises(BadRecord, match=re.escape(said)):
        json_record(line.encode())


def test_what_consume_prints_can_be_produced() -> None:
    read = ConsumedRecord("t", 3, 9, 1234, b"\xff", "ü".encode(), (("h", b"\xfe"), ("n", None)))
    assert json_record(json_line(read)) == InputRecord(read.key, read.value, read.headers, 3, 1234)


def test_times_and_durations() -> None:
    assert time_option("1970-01-01T00:00:02Z") == 2000
    assert time_option("now") == NOW
    assert duration_option("10m") == 600_000
    assert duration_option("1h30m") == 5_400_000
    assert duration_option("9" * 400 + "d") == 10**15
    for wrong in ("10", "m", "10 m", "1_0m", "１m", "tomorrow"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a duration"):
            duration_option(wrong)


def test_patterns_choose_topics_but_not_internal_ones() -> None:
    known = ["a-1", "a-2", "b", "__consumer_offsets"]
    assert chosen_topics(["a-*"], known) == ["a-1", "a-2"]
    assert chosen_topics(["*", "b"], known) == ["a-1", "a-2", "b"]
    assert chosen_topics(["__*"], known) == ["__consumer_offsets"]
    with pytest.raises(CommandError, match="no topic matches c"):
        chosen_topics(["c*"], known)
    with pytest.raises(CommandError, match="topic c does not exist"):
        chosen_topics(["c"], known)


def test_filter_by_key_value_and_time() -> None:
    found = ConsumedRecord("t", 0, 0, 50, b"k", b"an ERROR")
    assert RecordFilter().shows(found)
    assert RecordFilter().is_by_time_only
    assert RecordFilter(b"k", re.compile(b"ERR"), 50, 51).shows(found)
    assert not RecordFilter(key=b"other").shows(found)
    assert not RecordFilter(pattern=re.compile(b"^ERR")).shows(found)
    assert not RecordFilter(from_ms=51).shows(found)
    assert not RecordFilter(until_ms=50).shows(found)
    assert not RecordFilter(pattern=re.compile(b"")).shows(found._replace(value=None))


def test_pace_is_even_and_makes_up_for_nothing() -> None:
    pace = Pace(10, now_s=0.0)
    assert [round(pace.wait_s(0.0), 3) for _ in range(3)] == [0.0, 0.1, 0.2]
    assert pace.wait_s(60.0) == 0.0
    assert pace.wait_s(60.0) <= 0.1
    assert round(pace.wait_s(60.0), 3) == 0.1


def test_input_is_repeated_with_its_line_numbers() -> None:
    async def lines() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def all_of(times: int) -> list[tuple[int, bytes]]:
        return [each async for each in repeated(lines(), times)]

    assert asyncio.run(all_of(2)) == [(1, b"a"), (2, b"b"), (1, b"a"), (2, b"b")]
    assert asyncio.run(all_of(1)) == [(1, b"a"), (2, b"b")]

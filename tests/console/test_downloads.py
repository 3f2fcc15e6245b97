"""Downloads: whole values, formats, and cells that would run in a spreadsheet."""

import asyncio
import base64
import csv
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pyarrow.parquet as parquet
import pytest

from tidelog.console import downloads
from tidelog.console.decoding import AS_IT_IS
from tidelog.console.downloads import FORMATS
from tidelog.console.messages import Entry
from tidelog.console.payload import MAX_SHOWN_BYTES

LARGE = "x" * (2 * MAX_SHOWN_BYTES)
BINARY = b"\xff\x00\x01"


def entry(offset: int, key: bytes | None, value: bytes | None, **fields: Any) -> Entry:
    return Entry(0, offset, 1_700_000_000_000, key, value, (("h", b"1"),), None)._replace(**fields)


ENTRIES = [
    entry(0, b"k", LARGE.encode()),
    entry(1, None, b'{"id": 1}', transaction="committed"),
    entry(2, BINARY, None),
    entry(3, None, None, marker="commit"),
    entry(4, b"-5", b'=HYPERLINK("http://evil.example")'),
]


def written(name: str, entries: list[Entry]) -> list[bytes]:
    async def given() -> AsyncIterator[Entry]:
        for each in entries:
            yield each

    async def main() -> list[bytes]:
        return [part async for part in FORMATS[name].write("orders", given(), AS_IT_IS)]

    return asyncio.run(main())


def test_json_lines_hold_whole_values() -> None:
    lines = [json.loads(line) for line in b"".join(written("jsonl", ENTRIES)).splitlines()]
    assert [line.get("value") for line in lines] == [LARGE, {"id": 1}, None, None, '=HYPERLINK("http://evil.example")']
    assert lines[0]["headers"] == [{"name": "h", "value": "1"}]
    assert (lines[1]["transaction"], lines[3]["marker"]) == ("committed", "commit")
    assert base64.b64decode(lines[2]["key_base64"]) == BINARY


def test_csv_holds_whole_values_and_no_formula() -> None:
    rows = list(csv.DictReader(io.StringIO(b"".join(written("csv", ENTRIES)).decode(), newline="")))
    assert [row["value"] for row in rows] == [LARGE, '{"id": 1}', "", "", '\'=HYPERLINK("http://evil.example")']
    assert rows[2]["key"] == "base64:/wAB"
    assert (rows[4]["key"], rows[0]["timestamp"]) == ("-5", "2023-11-14T22:13:20+00:00")


def test_parquet_holds_bytes_and_text() -> None:
    table = parquet.read_table(io.BytesIO(b"".join(written("parquet", ENTRIES))))
    assert table["value"].to_pylist() == [each.value for each in ENTRIES]
    assert table["value_text"].to_pylist()[:3] == [LARGE, '{"id": 1}', None]
    assert table["key"].to_pylist()[2] == BINARY
    assert table["headers"].to_pylist()[0] == [{"name": "h", "value": b"1"}]


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_large_downloads_are_sent_as_they_are_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "MAX_BYTES_AT_ONCE", 2000)
    entries = [entry(number, None, b"x" * 1000) for number in range(6)]
    assert len([part for part in written(name, entries) if part]) >= 3


def test_a_topic_without_records_is_a_valid_file() -> None:
    assert parquet.read_table(io.BytesIO(b"".join(written("parquet", [])))).num_rows == 0
    assert b"".join(written("csv", [])).startswith(b"partition,offset")

"""Downloads of records with whole values: JSON lines, CSV and Parquet, written as they are read.

Memory holds a few copies of one record, however large: nothing here makes objects of a long value.
"""

import base64
import io
import json
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, NamedTuple

from tidelog.console.decoding import Decoding
from tidelog.console.messages import Entry
from tidelog.console.payload import whole

MAX_TEXT_BYTES = 1024 * 1024
"""Longer JSON is written as text, as its objects would take many times its size, and longer text as bytes only where a
format has a place for both."""
MAX_ROWS_AT_ONCE = 10_000
MAX_BYTES_AT_ONCE = 8 * 1024 * 1024
"""Of a row group of a Parquet file, which is kept in memory until it is full."""
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
NO_PYARROW = "Parquet needs pyarrow: install it with `pip install 'tidelog[arrow]'`"
DICTIONARIES = ["partition", "transaction", "marker"]
STATISTICS = ["partition", "offset", "timestamp"]
"""Of a Parquet file. A dictionary, a least and a greatest value of large values would be further copies of them."""
COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers", "transaction", "marker")

Rows = AsyncIterator[Entry]


class DownloadFormat(NamedTuple):
    suffix: str
    media_type: str
    write: Callable[[str, Rows, Decoding], AsyncIterator[bytes]]


def has_parquet() -> bool:
    return find_spec("pyarrow") is not None


async def _json_lines(topic: str, entries: Rows, decoding: Decoding) -> AsyncIterator[bytes]:
    async for entry in entries:
        line: dict[str, object] = {
            "partition": entry.partition,
            "offset": entry.offset,
            "timestamp": entry.timestamp,
            **_json_field("key", entry.key, await decoding.decoded_key(entry.key)),
            **_json_field("value", entry.value, await decoding.decoded_value(topic, entry.value)),
            "headers": [{"name": name, **_json_field("value", value, None)} for name, value in entry.headers],
        }
        for name in ("transaction", "marker", "error"):
            if getattr(entry, name) is not None:
                line[name] = getattr(entry, name)
        yield json.dumps(line, ensure_ascii=False).encode()
        yield b"\n"


def _json_field(name: str, data: bytes | None, decoded: str | None) -> dict[str, object]:
    """An object or array as such, other text as text, and bytes that are no text in base64."""
    text = whole(data) if decoded is None else decoded
    if text is None:
        return {name: None} if data is None else {f"{name}_base64": base64.b64encode(data).decode()}
    if (decoded is not None or text[:1] in ("{", "[")) and len(text) <= MAX_TEXT_BYTES:
        try:
            return {name: json.loads(text)}
        except (ValueError, RecursionError):
            pass
    return {name: text}


async def _csv(topic: str, entries: Rows, decoding: Decoding) -> AsyncIterator[bytes]:
    yield _csv_line(COLUMNS)
    async for entry in entries:
        key, value = await decoding.decoded_key(entry.key), await decoding.decoded_value(topic, entry.value)
        headers = json.dumps([[name, _cell(data, None)] for name, data in entry.headers], ensure_ascii=False)
        time = datetime.fromtimestamp(entry.timestamp / 1000, UTC).isoformat() if entry.timestamp >= 0 else ""
        texts = (_cell(entry.key, key), _cell(entry.value, value), headers if entry.headers else "")
        position = (str(entry.partition), str(entry.offset), time)
        yield _csv_line((*position, *map(_no_formula, texts), entry.transaction or "", entry.marker or ""))


def _csv_line(cells: Sequence[str]) -> bytes:
    """As RFC 4180 wants it. The `csv` module would take four bytes for each character, twice."""
    return (",".join(map(_quoted, cells)) + "\r\n").encode()


def _quoted(cell: str) -> str:
    if not any(sign in cell for sign in '",\r\n'):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def _cell(data: bytes | None, decoded: str | None) -> str:
    text = whole(data) if decoded is None else decoded
    if text is not None:
        return text
    return "" if data is None else f"base64:{base64.b64encode(data).decode()}"


def _no_formula(text: str) -> str:
    """Spreadsheets run what begins like a formula, and the text is anybody's."""
    return f"'{text}" if text.startswith(FORMULA_SIGNS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdecimal() and text.isascii()


async def _parquet(topic: str, entries: Rows, decoding: Decoding) -> AsyncIterator[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    bytes_or_text = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("key_text", pa.string()),
        ("value_text", pa.string()),
    ]
    header = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
    position = [("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("ms", "UTC"))]
    ends = [("headers", header), ("transaction", pa.string()), ("marker", pa.string())]
    schema = pa.schema([*position, *bytes_or_text, *ends])
    sink = io.BytesIO()
    rows: list[dict[str, object]] = []
    size = 0

    def written() -> bytes:
        data = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        return data

    with parquet.ParquetWriter(
        _Forward(sink), schema, compression="zstd", use_dictionary=DICTIONARIES, write_statistics=STATISTICS
    ) as writer:
        async for entry in entries:
            rows.append(await _parquet_row(topic, entry, decoding))
            size += len(entry.key or b"") + len(entry.value or b"")
            if len(rows) >= MAX_ROWS_AT_ONCE or size >= MAX_BYTES_AT_ONCE:
                writer.write_table(pa.Table.from_pylist(rows, schema))
                rows, size = [], 0
                yield written()
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema))
    yield written()


async def _parquet_row(topic: str, entry: Entry, decoding: Decoding) -> dict[str, object]:
    key, value = await decoding.decoded_key(entry.key), await decoding.decoded_value(topic, entry.value)
    return {
        "partition": entry.partition,
        "offset": entry.offset,
        "timestamp": entry.timestamp if entry.timestamp >= 0 else None,
        "key": entry.key,
        "value": entry.value,
        "key_text": _short_text(entry.key) if key is None else key,
        "value_text": _short_text(entry.value) if value is None else value,
        "headers": [{"name": name, "value": data} for name, data in entry.headers],
        "transaction": entry.transaction,
        "marker": entry.marker,
    }


def _short_text(data: bytes | None) -> str | None:
    """The bytes of a long one are in the file; another copy as text is not."""
    return whole(data) if data is not None and len(data) <= MAX_TEXT_BYTES else None


class _Forward(io.RawIOBase):
    """A file that is only ever appended to: what was written is taken out of `sink` and sent."""

    def __init__(self, sink: io.BytesIO) -> None:
        super().__init__()
        self._sink = sink
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        size = self._sink.write(data)
        self._position += size
        return size


FORMATS = {
    "jsonl": DownloadFormat("jsonl", "application/x-ndjson", _json_lines),
    "csv": DownloadFormat("csv", "text/csv; charset=utf-8", _csv),
    "parquet": DownloadFormat("parquet", "application/vnd.apache.parquet", _parquet),
}

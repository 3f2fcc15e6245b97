"""Arrow columns built from the positions that kernels found, each with its own memory."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelog.spark.records.kernels import (
    HEADER_FACTS,
    HEADER_VALUE_LENGTH,
    HEADER_VALUE_START,
    NAME_LENGTH,
    NAME_START,
    Bytes,
    Longs,
    gather,
    locate_headers,
    mark_valid,
    offsets_of,
)

HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])

ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}
"""Exactly Spark's types: it rejects a batch whose list element has another name."""


class ConstantColumn:
    """A column with one value in all rows: built once, sliced to the requested length."""

    def __init__(self, value: Any, arrow_type: pa.DataType) -> None:
        self._value = pa.scalar(value, arrow_type)
        self._column = pa.repeat(self._value, 0)

    def of_length(self, rows: int) -> pa.Array:
        if len(self._column) < rows:
            self._column = pa.repeat(self._value, max(rows, 2 * len(self._column)))
        return self._column.slice(0, rows)


def fixed_width_column(values: np.ndarray[Any, Any], arrow_type: pa.DataType) -> pa.Array:
    """Shares the memory of `values`."""
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(values)], 0)


def binary_column(buffer: Bytes, starts: Longs, lengths: Longs, arrow_type: pa.DataType) -> pa.Array:
    rows = len(lengths)
    offsets = pa.allocate_buffer(4 * (rows + 1))
    size_bytes, null_count = offsets_of(lengths, np.frombuffer(offsets, np.int32))
    data = pa.allocate_buffer(size_bytes)
    if gather(buffer, starts, lengths, np.frombuffer(data, np.uint8)) != size_bytes:
        raise AssertionError("a field lies outside the scanned bytes")
    validity = _validity(lengths, 0) if null_count else None
    return pa.Array.from_buffers(arrow_type, rows, [validity, offsets, data], null_count)


def headers_column(buffer: Bytes, starts: Longs, counts: Longs) -> pa.Array:
    """Null for a record without headers, as in Spark's Kafka source."""
    rows, total = len(counts), int(counts.sum())
    offsets = pa.allocate_buffer(4 * (rows + 1))
    located: Longs = np.empty((HEADER_FACTS, total), np.int64)
    if locate_headers(buffer, len(buffer), starts, counts, np.frombuffer(offsets, np.int32), located) != total:
        raise AssertionError("headers are not where the scan found them")
    names = _as_text(binary_column(buffer, located[NAME_START], located[NAME_LENGTH], pa.string()))
    values = binary_column(buffer, located[HEADER_VALUE_START], located[HEADER_VALUE_LENGTH], pa.binary())
    null_count = rows - int(np.count_nonzero(counts))
    validity = _validity(counts, 1) if null_count else None
    elements = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    return pa.Array.from_buffers(ARROW_TYPES["headers"], rows, [validity, offsets], null_count, children=[elements])


def _as_text(names: pa.Array) -> pa.Array:
    """Replacement characters for names that are not UTF-8, as in Java: one bad name must not fail a query."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.cast(pa.binary()).to_pylist()], pa.string())
    return names


def _validity(lengths: Longs, smallest_valid: int) -> pa.Buffer:
    bitmap = pa.allocate_buffer((len(lengths) + 7) // 8)
    mark_valid(lengths, smallest_valid, np.frombuffer(bitmap, np.uint8))
    return bitmap

"""Partitioning of rows: partition values, rows by partition, and directory names."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.definition.model import PartitionField
from tidelog.pipelines.tables.file_facts import Partition, PartitionValue

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Hive's directory name for null; all readers of partitioned directories know it."""
MAX_NAME_LENGTH = 200
"""File systems allow 255 bytes."""
MICROSECONDS_PER_HOUR = 3_600_000_000
HOURS_PER_DAY = 24


class Transform(StrEnum):
    """Iceberg's partition transforms."""

    IDENTITY = "identity"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    BUCKET = "bucket"
    TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    name: str
    source: str
    transform: Transform = Transform.IDENTITY
    width: int = 0
    """Number of buckets, or length of the truncated value."""


TIME_CALL = re.compile(r"\s*(year|month|day|hour)s?\s*\(\s*`?(\w+)`?\s*\)\s*", re.IGNORECASE)
WIDTH_FIRST = re.compile(r"\s*(bucket|truncate)\s*\(\s*(\d+)\s*,\s*`?(\w+)`?\s*\)\s*", re.IGNORECASE)
WIDTH_LAST = re.compile(r"\s*(bucket|truncate)\s*\(\s*`?(\w+)`?\s*,\s*(\d+)\s*\)\s*", re.IGNORECASE)


def iceberg_column(field: PartitionField) -> PartitionColumn | None:
    """`days(at)`, `bucket(16, id)` and the like become transforms; None for other expressions, which become columns."""
    if field.expression is None:
        return PartitionColumn(field.name, field.name)
    if call := TIME_CALL.fullmatch(field.expression):
        return PartitionColumn(field.name, call[2], Transform(call[1].lower()))
    if call := WIDTH_FIRST.fullmatch(field.expression):
        return PartitionColumn(field.name, call[3], Transform(call[1].lower()), int(call[2]))
    if call := WIDTH_LAST.fullmatch(field.expression):
        return PartitionColumn(field.name, call[2], Transform(call[1].lower()), int(call[3]))
    return None


def rows_by_partition(
    rows: pa.Table, columns: Sequence[PartitionColumn], *, as_text: bool
) -> Iterator[tuple[Partition, pa.Table]]:
    """The rows of each partition in their original order. `as_text`: values as directories and Delta write them."""
    if not columns or not rows.num_rows:
        yield (), rows
        return
    spell = _as_text if as_text else _as_stored
    values = [spell(partition_values(rows[column.source], column)) for column in columns]
    codes = _codes(values)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    is_sorted = len(starts) == 1
    ordered = rows if is_sorted else rows.take(pa.array(order))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield tuple(value[int(order[start])].as_py() for value in values), ordered.slice(start, end - start)


def _codes(values: Sequence[pa.Array]) -> Any:
    """One number per row, equal for equal values."""
    codes = np.zeros(len(values[0]), dtype=np.int64)
    for value in values:
        encoded = value.dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy().astype(np.int64)
        codes = np.unique(codes, return_inverse=True)[1]
    return codes


def _as_text(values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"))
    return values.cast(pa.string())


def _as_stored(values: pa.Array) -> pa.Array:
    """Dates and times as the numbers that Iceberg stores."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def partition_values(source: pa.ChunkedArray, column: PartitionColumn) -> pa.Array:
    values = source.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    match column.transform:
        case Transform.IDENTITY:
            return values
        case Transform.YEAR:
            return pc.subtract(pc.year(values), 1970).cast(pa.int32())
        case Transform.MONTH:
            months = pc.multiply(pc.subtract(pc.year(values), 1970), 12)
            return pc.add(months, pc.subtract(pc.month(values), 1)).cast(pa.int32())
        case Transform.DAY | Transform.HOUR:
            return _whole_hours_or_days(values, column.transform)
        case Transform.TRUNCATE:
            return _truncated(values, column.width)
        case Transform.BUCKET:
            return _buckets(values, column.width)


def _whole_hours_or_days(values: pa.Array, transform: Transform) -> pa.Array:
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    unit = MICROSECONDS_PER_HOUR * (HOURS_PER_DAY if transform is Transform.DAY else 1)
    return _with_nulls_of(values, np.floor_divide(_numbers(values), unit).astype(np.int32))


def _truncated(values: pa.Array, width: int) -> pa.Array:
    if pa.types.is_integer(values.type):
        numbers = _numbers(values)
        return _with_nulls_of(values, numbers - np.mod(numbers, width)).cast(values.type)
    return pc.utf8_slice_codeunits(values, 0, width)


def _buckets(values: pa.Array, count: int) -> pa.Array:
    if pa.types.is_integer(values.type) or pa.types.is_temporal(values.type):
        hashes = murmur3_of_longs(_numbers(values))
        return _with_nulls_of(values, ((hashes & 0x7FFFFFFF) % count).astype(np.int32))
    return _buckets_of_distinct_values(values, count)


def _buckets_of_distinct_values(values: pa.Array, count: int) -> pa.Array:
    import mmh3

    encoded = values.dictionary_encode()
    buckets = [(mmh3.hash(value) & 0x7FFFFFFF) % count for value in encoded.dictionary.to_pylist()]
    return pa.array(buckets, pa.int32()).take(encoded.indices)


def _numbers(values: pa.Array) -> Any:
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    return values.cast(pa.int64()).fill_null(0).to_numpy()


def _with_nulls_of(values: pa.Array, numbers: Any) -> pa.Array:
    return pa.array(numbers, mask=values.is_null().to_numpy(zero_copy_only=False))


def murmur3_of_longs(numbers: Any) -> Any:
    """Murmur3 (32 bits, seed 0) of each number's eight bytes, as Iceberg defines buckets."""
    both_halves = np.ascontiguousarray(numbers, dtype="<i8").view("<u4").reshape(-1, 2)
    hashes = np.zeros(len(both_halves), dtype=np.uint32)
    for half in (both_halves[:, 0], both_halves[:, 1]):
        mixed = _rotated(half * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashes = _rotated(hashes ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashes ^= np.uint32(8)
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def _rotated(numbers: Any, bits: int) -> Any:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))


def partition_directory(columns: Sequence[PartitionColumn], partition: Partition) -> str:
    """`day=2026-01-31/country=CH`; empty for a table without partitions."""
    return "/".join(f"{column.name}={_spelled(value)}" for column, value in zip(columns, partition, strict=True))


def _spelled(value: PartitionValue) -> str:
    return NO_VALUE if value is None or value == "" else quote(str(value), safe=" ")


def safe_directory_name(directory: str) -> str:
    """For tables that store partition values in their log: names that need no decoding."""
    plain = re.sub(r"[^A-Za-z0-9_=./-]", "_", directory)
    return "/".join(name[:MAX_NAME_LENGTH] for name in plain.split("/"))

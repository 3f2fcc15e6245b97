"""Records as Arrow tables. Arrow is loaded on first use: brokers run without it."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from tidelog.client.api.values import Record


@cache
def _arrow() -> Any:
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise RuntimeError("Arrow tables need pyarrow: pip install 'tidelog[arrow]'") from error


@cache
def schema() -> Any:
    """Of all tables."""
    arrow = _arrow()
    header = arrow.struct([("name", arrow.string()), ("value", arrow.binary())])
    return arrow.schema(
        [
            ("topic", arrow.string()),
            ("partition", arrow.int32()),
            ("offset", arrow.int64()),
            ("timestamp", arrow.timestamp("ms", tz="UTC")),
            ("key", arrow.binary()),
            ("value", arrow.binary()),
            ("headers", arrow.list_(header)),
        ]
    )


def table_of(records: list[Record]) -> Any:
    arrow, wanted = _arrow(), schema()
    columns: list[Any] = list(zip(*records, strict=True)) if records else [()] * len(wanted)
    arrays = [
        _array(arrow, column, field.type) if field.name != "headers" else _headers(arrow, column, field.type)
        for column, field in zip(columns, wanted, strict=True)
    ]
    return arrow.Table.from_arrays(arrays, schema=wanted)


def _array(arrow: Any, column: Sequence[Any], kind: Any) -> Any:
    """Records that were fetched together are of one partition: topic and partition are constant within each part."""
    if column and kind in (arrow.string(), arrow.int32()) and column.count(column[0]) == len(column):
        return arrow.repeat(arrow.scalar(column[0], kind), len(column))
    return arrow.array(column, kind)


def _headers(arrow: Any, column: Sequence[Any], kind: Any) -> Any:
    if any(column):
        return arrow.array([[{"name": name, "value": value} for name, value in each] for each in column], kind)
    offsets = arrow.repeat(arrow.scalar(0, arrow.int32()), len(column) + 1)
    return arrow.ListArray.from_arrays(offsets, arrow.array([], kind.value_type), type=kind)

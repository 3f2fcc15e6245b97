"""Records as Arrow tables. Arrow is loaded on first use: brokers run without it."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from tidelog.client.consumer.fetched_records import ConsumedRecords


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


def table_of(records: ConsumedRecords) -> Any:
    arrow, wanted, columns = _arrow(), schema(), records.columns
    arrays = [
        arrow.repeat(arrow.scalar(records.topic, wanted.field("topic").type), len(records)),
        arrow.repeat(arrow.scalar(records.partition, wanted.field("partition").type), len(records)),
        arrow.array(columns.offsets, wanted.field("offset").type),
        arrow.array(columns.timestamps, arrow.int64()).cast(wanted.field("timestamp").type),
        arrow.array(columns.keys, wanted.field("key").type),
        arrow.array(columns.values, wanted.field("value").type),
        _headers(arrow, columns.headers, wanted.field("headers").type),
    ]
    return arrow.Table.from_arrays(arrays, schema=wanted)


def _headers(arrow: Any, column: Sequence[Any], kind: Any) -> Any:
    if any(column):
        return arrow.array([[{"name": name, "value": value} for name, value in each] for each in column], kind)
    offsets = arrow.repeat(arrow.scalar(0, arrow.int32()), len(column) + 1)
    return arrow.ListArray.from_arrays(offsets, arrow.array([], kind.value_type), type=kind)

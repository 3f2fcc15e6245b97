"""Records as Arrow tables. Arrow is loaded on first use: brokers run without it."""

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
    columns[-1] = [[{"name": name, "value": value} for name, value in headers] for headers in columns[-1]]
    arrays = [arrow.array(column, field.type) for column, field in zip(columns, wanted, strict=True)]
    return arrow.Table.from_arrays(arrays, schema=wanted)

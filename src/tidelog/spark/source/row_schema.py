"""The rows of `format("tidelog")`: the columns of Spark's Kafka source, all of them or those a user asks for."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.config.nearest import nearest_name
from tidelog.spark.options.query import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

HEADERS = "headers"

FIELDS: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}


def schema_text(*, has_headers: bool) -> str:
    """With the type of `timestamp` by its full name: what the short one means depends on the session."""
    kinds = {**FIELDS, "timestamp": "timestamp_ltz"}
    return ", ".join(f"{name} {kind}" for name, kind in kinds.items() if has_headers or name != HEADERS)


def columns_of(schema: "StructType") -> tuple[str, ...]:
    """The columns that a schema asks for, in its order; raises OptionError."""
    if not schema.fields:
        raise OptionError(f"The schema asks for no column; there are {', '.join(FIELDS)}")
    for field in schema.fields:
        expected = FIELDS.get(field.name)
        if expected is None:
            near = nearest_name(field.name, FIELDS)
            hint = f"did you mean '{near}'?" if near else f"there are {', '.join(FIELDS)}"
            raise OptionError(f"The schema asks for a column '{field.name}', which records do not have; {hint}")
        if field.dataType.simpleString() != expected:
            found = field.dataType.simpleString()
            raise OptionError(f"The schema wants column '{field.name}' as {found}, but it is {expected}")
        if not _may_be_null(field):
            raise OptionError(
                f"The schema wants column '{field.name}' NOT NULL: leave that out, every column may be null"
            )
    return tuple(schema.fieldNames())


def _may_be_null(field: "StructField") -> bool:
    """And all that it consists of: Spark compares the columns it gets with the schema to the letter."""
    described = field.json()
    return '"nullable":false' not in described and '"containsNull":false' not in described

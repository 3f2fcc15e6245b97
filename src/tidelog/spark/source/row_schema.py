"""Row schema of `format("tidelog")`: the columns of Spark's Kafka source, or a selection of them."""

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
    """Schema in DDL, with the full name of the timestamp type: the meaning of the short one depends on the session."""
    types = {**FIELDS, "timestamp": "timestamp_ltz"}
    return ", ".join(f"{name} {type_}" for name, type_ in types.items() if has_headers or name != HEADERS)


def columns_of(schema: "StructType") -> tuple[str, ...]:
    """The columns of a schema, in its order; raises OptionError."""
    if not schema.fields:
        raise OptionError(f"The schema has no columns; available are {', '.join(FIELDS)}")
    for field in schema.fields:
        expected = FIELDS.get(field.name)
        if expected is None:
            near = nearest_name(field.name, FIELDS)
            hint = f"did you mean '{near}'?" if near else f"available are {', '.join(FIELDS)}"
            raise OptionError(f"The schema has column '{field.name}', which records do not have; {hint}")
        if field.dataType.simpleString() != expected:
            found = field.dataType.simpleString()
            raise OptionError(f"The schema has column '{field.name}' as {found}, but it is {expected}")
        if not _may_be_null(field):
            raise OptionError(
                f"The schema has column '{field.name}' as NOT NULL: remove that, every column is nullable"
            )
    return tuple(schema.fieldNames())


def _may_be_null(field: "StructField") -> bool:
    """Whether it and its nested fields are nullable: Spark requires the columns to match the schema exactly."""
    described = field.json()
    return '"nullable":false' not in described and '"containsNull":false' not in described

"""JSON record values with declared fields. Reports values that Spark's reader would silently accept."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, StringType, StructField, StructType, TimestampType

from tidelog.pipelines.definition.model import Format
from tidelog.pipelines.formats import json_registry
from tidelog.pipelines.formats.parsed_rows import (
    IS_EMPTY,
    IS_NULL,
    NOT_UTF8,
    ROW,
    VALUE,
    arranged,
    declared_columns,
    payload,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CORRUPT = "_corrupt"
LATEST_TIMESTAMP = "timestamp'9999-12-31 23:59:59.999999'"


def parse(frame: "DataFrame", how: Format, text: "Column | None" = None) -> "DataFrame":
    """`text` is the JSON to read, by default the value."""
    if how.registry is not None:
        return json_registry.parse(frame, how, how.registry)
    schema = declared_columns(how)
    # Spark reads one object and ignores what follows it. Wrapped as the only element of an array inside an object,
    # any further content makes the value malformed, or a second element.
    wrapped = F.concat(F.lit('{"v":['), F.col("value").cast("string") if text is None else text, F.lit("]}"))
    options = {
        "allowSingleQuotes": "false",
        **how.options,
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
    }
    row = F.from_json(wrapped, _wrapped_schema(schema), options)
    columns = [(field.name, _field(field)) for field in schema.fields]
    return arranged(frame, row, columns, _error(schema))


def _wrapped_schema(schema: StructType) -> StructType:
    nullable = StructType([StructField(field.name, field.dataType) for field in schema.fields])
    return StructType([StructField("v", ArrayType(nullable)), StructField(CORRUPT, StringType())])


def _object() -> "Column":
    return F.get(F.col(f"{ROW}.v"), F.lit(0))


def _field(field: StructField) -> "Column":
    return _object().getField(field.name)


def _error(schema: StructType) -> "Column":
    text = F.col(VALUE).cast("string")
    fits = F.col(f"{ROW}.{CORRUPT}").isNull() & (F.size(f"{ROW}.v") == 1) & _object().isNotNull()
    problem = F.when(fits & F.is_valid_utf8(text), _error_of_fields(schema))
    return problem.when(F.col(VALUE).isNull(), F.lit(IS_NULL)).otherwise(_explanation(text, schema))


def _error_of_fields(schema: StructType) -> "Column":
    """Errors in values that Spark accepts but users would not."""
    problem = F.lit(None).cast("string")
    for field in schema.fields:
        column = _field(field)
        if not field.nullable:
            problem = F.when(column.isNull(), F.lit(f"field '{field.name}' is missing")).otherwise(problem)
        if isinstance(field.dataType, TimestampType):
            sentence = f"field '{field.name}' is after the year 9999: numbers are seconds since 1970, not milliseconds"
            problem = F.when(column > F.expr(LATEST_TIMESTAMP), F.lit(sentence)).otherwise(problem)
    return problem


def _explanation(text: "Column", schema: StructType) -> "Column":
    """Evaluated only for records that do not fit."""
    parts = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    is_object = F.ltrim(text).startswith("{") & (parts == 1)
    explained = (
        F.when(F.trim(text) == "", F.lit(IS_EMPTY))
        .when(~F.is_valid_utf8(text), F.lit(NOT_UTF8))
        .when(parts.isNull(), F.lit("the value is not JSON"))
        .when(~is_object, F.lit("the value is JSON, but not a single object"))
        .when(_object().isNull(), F.lit("the value is not JSON"))
    )
    for field in schema.fields:
        if not set(field.name) & set("'\"\\"):
            is_lost = _field(field).isNull() & F.get_json_object(text, f"$['{field.name}']").isNotNull()
            explained = explained.when(is_lost, F.lit(f"field '{field.name}' is not {field.dataType.simpleString()}"))
    return explained.otherwise(F.lit("a nested field does not have its declared type"))


def serialise(frame: "DataFrame", how: Format) -> "Column":
    if how.registry is not None:
        return json_registry.serialise(frame, how, how.registry)
    return F.to_json(payload(frame), dict(how.options)).cast("binary")

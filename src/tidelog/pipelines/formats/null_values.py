"""Records without a value: left out, or deletes whose columns come from the record's key."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from tidelog.pipelines.definition.model import Format, NullValues
from tidelog.pipelines.formats import FormatError
from tidelog.pipelines.formats.parsed_rows import DELETED, ERROR, VALUE, columns_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

KEY = "_key"


def handled(parsed: "DataFrame", how: Format) -> "DataFrame":
    is_null = F.col(VALUE).isNull()
    if how.null_values is NullValues.SKIP:
        return parsed.where(~is_null)
    if DELETED not in parsed.columns:
        parsed = parsed.withColumn(DELETED, F.lit(False))
    from_key = None if how.key_schema is None else _key_columns(columns_of(how.key_schema), parsed)
    columns = {name: F.col(f"`{name}`") for name in parsed.columns}
    problem = F.lit(None).cast("string")
    for name, value in (from_key or {}).items():
        columns[name] = F.when(is_null, value).otherwise(columns[name])
        problem = F.when(value.isNull(), F.lit(f"the key of the delete has no '{name}'")).otherwise(problem)
    columns[DELETED] = F.when(is_null, F.lit(True)).otherwise(columns[DELETED])
    columns[ERROR] = F.when(is_null, problem).otherwise(columns[ERROR])
    return parsed.select(*(column.alias(name) for name, column in columns.items()))


def _key_columns(schema: "StructType", parsed: "DataFrame") -> "dict[str, Column]":
    """From a JSON object, with or without Debezium's `payload` around it; a single column may be plain text."""
    for name in schema.fieldNames():
        if name not in parsed.columns:
            raise FormatError(f"key_schema has a column '{name}' that the records do not have")
    text = F.col(KEY).cast("string")
    is_object = F.ltrim(text).startswith("{")
    found = F.from_json(F.coalesce(F.get_json_object(text, "$.payload"), text), schema)
    columns = {}
    for field in schema.fields:
        value = F.when(is_object, found.getField(field.name))
        if len(schema.fields) == 1:
            value = value.otherwise(text.try_cast(field.dataType))
        columns[field.name] = value.cast(parsed.schema[field.name].dataType)
    return columns

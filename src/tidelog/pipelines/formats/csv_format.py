"""CSV record values: one line per record, fields in the order of the declared columns."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from tidelog.pipelines.definition.model import Format
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
    from pyspark.sql.types import StructType

CORRUPT = "_corrupt"
LINE_END = r"\r?\n\z"
"""Removed first: Spark would make it part of the last column."""


def parse(frame: "DataFrame", how: Format) -> "DataFrame":
    schema = declared_columns(how)
    ddl = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)
    options = {**how.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    line = F.regexp_replace(F.col("value").cast("string"), LINE_END, "")
    row = F.from_csv(line, f"{ddl}, {CORRUPT} string", options)
    columns = [(field.name, F.col(f"{ROW}.`{field.name}`")) for field in schema.fields]
    return arranged(frame, row, columns, _error(schema))


def _error(schema: "StructType") -> "Column":
    text = F.col(VALUE).cast("string")
    problem = (
        F.when(F.col(VALUE).isNull(), F.lit(IS_NULL))
        .when(F.trim(text) == "", F.lit(IS_EMPTY))
        .when(~F.is_valid_utf8(text), F.lit(NOT_UTF8))
        .when(
            F.col(f"{ROW}.{CORRUPT}").isNotNull(),
            F.lit(f"the value does not fit the {len(schema.fields)} declared columns"),
        )
    )
    for field in schema.fields:
        if not field.nullable:
            missing = F.col(f"{ROW}.`{field.name}`").isNull()
            problem = problem.when(missing, F.lit(f"column '{field.name}' is missing"))
    return problem


def serialise(frame: "DataFrame", how: Format) -> "Column":
    return F.to_csv(payload(frame), dict(how.options)).cast("binary")

"""Rows of a parsed source: position of the record, declared columns, and the error."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tidelog.pipelines.definition.model import Format
from tidelog.pipelines.formats import FormatError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POSITION_COLUMNS = {
    "_key": "key",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
}
VALUE = "_value"
ERROR = "_error"
ROW = "_row"
DELETED = "_deleted"
OP = "_op"
CHANGED_AT = "_changed_at"
SOURCE = "_source"
RESERVED = frozenset({*POSITION_COLUMNS, VALUE, ERROR, ROW, DELETED, OP, CHANGED_AT, SOURCE})

IS_NULL = "the value is null"
IS_EMPTY = "the value is empty"
NOT_UTF8 = "the value is not text in UTF-8"


def arranged(
    frame: "DataFrame", row: "Column", columns: "Sequence[tuple[str, Column]]", error: "Column"
) -> "DataFrame":
    """`columns` and `error` may refer to `_row`, which is computed once, and to the other columns of a parsed row."""
    positions = [F.col(name).alias(alias) for alias, name in POSITION_COLUMNS.items()]
    with_row = frame.select(*positions, F.col("value").alias(VALUE), row.alias(ROW))
    return with_row.select(
        *(column.alias(name) for name, column in columns), *POSITION_COLUMNS, VALUE, error.alias(ERROR)
    )


def declared_columns(how: Format) -> StructType:
    """Raises FormatError."""
    if how.schema is None:
        raise FormatError(f"Format {how.kind} needs a schema, such as: id bigint, amount double")
    schema = columns_of(how.schema)
    check_names(schema.fieldNames())
    return schema


def columns_of(ddl: str) -> StructType:
    return cast("StructType", StructType.fromDDL(ddl))


def check_names(names: Sequence[str]) -> None:
    taken = sorted(RESERVED.intersection(names))
    if taken:
        raise FormatError(f"A column cannot be named {taken[0]}: the name is reserved for the position of the record")


def payload(frame: "DataFrame") -> "Column":
    """All columns to write, as one struct."""
    names = [name for name in frame.columns if name not in RESERVED]
    if not names:
        raise FormatError("There are no columns to write, only those for the record's position")
    return F.struct(*(F.col(f"`{name}`") for name in names))

"""Formats decoded and encoded in Python through Arrow: common parts of Avro, Protobuf and JSON Schema."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType

from tidelog.pipelines.definition.model import SCHEMA_ID_OPTION, Format
from tidelog.pipelines.formats import FormatError
from tidelog.pipelines.formats.arrow_types import ERROR_FIELD
from tidelog.pipelines.formats.parsed_rows import ROW, arranged, check_names, columns_of, declared_columns, payload

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def parsed_by(frame: "DataFrame", how: Format, decode: Callable[[pa.Array], pa.Array], ddl: str) -> "DataFrame":
    """`decode` returns structs of the columns in `ddl` and the error. Its type hints select Spark's Arrow UDF type."""

    udf = arrow_udf(decode, f"{ddl}, {ERROR_FIELD} string")  # type: ignore[call-overload]
    found = columns_of(ddl)
    check_names(found.fieldNames())
    # Without this barrier a filter on the error is pushed down, and every value is decoded twice.
    row = udf.asNondeterministic()(F.col("value"))
    error = F.col(f"{ROW}.{ERROR_FIELD}")
    if how.schema is None:
        return arranged(frame, row, [(name, _column(name)) for name in found.fieldNames()], error)
    columns, problem = _declared(how, found, error)
    return arranged(frame, row, columns, problem)


def _column(name: str) -> "Column":
    return F.col(f"{ROW}.`{name}`")


def _declared(how: Format, found: StructType, error: "Column") -> "tuple[list[tuple[str, Column]], Column]":
    """Only the declared columns, cast to the declared types; a value that cannot be cast is an error."""
    columns = []
    for field in declared_columns(how).fields:
        if field.name not in found.fieldNames():
            raise FormatError(f"The schema has no field '{field.name}'; fields are {', '.join(found.fieldNames())}")
        kind = field.dataType.simpleString()
        column = _column(field.name).try_cast(field.dataType)
        is_lost = column.isNull() & _column(field.name).isNotNull()
        error = F.coalesce(error, F.when(is_lost, F.lit(f"field '{field.name}' is not {kind}")))
        columns.append((field.name, column))
    return columns, error


def serialised_by(frame: "DataFrame", encode: Callable[[pa.Array], pa.Array]) -> "Column":
    udf = arrow_udf(encode, "binary")  # type: ignore[call-overload]
    return cast("Column", udf(payload(frame)))


def row_type_of(frame: "DataFrame") -> pa.StructType:
    """Of the columns to write."""
    from pyspark.sql.pandas.types import to_arrow_type

    row = frame.select(payload(frame).alias("row")).schema["row"].dataType
    return to_arrow_type(row, timezone="UTC")


def schema_id_of(how: Format) -> int | None:
    """The schema id to write before each value; None for none."""
    given = how.options.get(SCHEMA_ID_OPTION)
    if given is None:
        if how.confluent_prefix:
            raise FormatError(f"The registry prefix needs a schema id: format_options = {{ {SCHEMA_ID_OPTION} = 1 }}")
        return None
    if not given.isdecimal():
        raise FormatError(f"Option {SCHEMA_ID_OPTION} must be the id of the schema in the registry, not '{given}'")
    return int(given)

"""Column types of rows decoded in Python: the Arrow type while they are built, the type for Spark, and its DDL."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tidelog.pipelines.formats import FormatError

ERROR_FIELD = "_error"
MAX_DECIMAL_DIGITS = 38

DDL_NAMES = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.null(): "void",
}


class ColumnType(NamedTuple):
    """`convert` turns a decoded value into one that Arrow accepts; None if no conversion is needed."""

    arrow: pa.DataType
    convert: Callable[[Any], Any] | None = None


def ddl_of(kind: pa.DataType) -> str:
    if kind in DDL_NAMES:
        return DDL_NAMES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_map(kind):
        return f"map<{ddl_of(kind.key_type)},{ddl_of(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{ddl_of(kind.value_type)}>"
    assert pa.types.is_struct(kind), kind
    return f"struct<{','.join(f'`{field.name}`:{ddl_of(field.type)}' for field in kind)}>"


def columns_ddl(row: pa.StructType) -> str:
    return ", ".join(f"`{field.name}` {ddl_of(field.type)}" for field in row)


def for_spark(kind: pa.DataType) -> pa.DataType:
    """Spark's timestamps are in microseconds."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_map(kind):
        return pa.map_(for_spark(kind.key_type), for_spark(kind.item_type))
    if pa.types.is_list(kind):
        return list_of(for_spark(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, for_spark(field.type)) for field in kind])
    return kind


def list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


def decimal_of(precision: int, scale: int, where: str) -> pa.DataType:
    if precision > MAX_DECIMAL_DIGITS:
        raise FormatError(f"{where} is a decimal of {precision} digits; Spark supports at most {MAX_DECIMAL_DIGITS}")
    return pa.decimal128(precision, scale)


def built(rows: Sequence[Any], errors: list[str | None], kind: pa.StructType) -> pa.StructArray:
    """The rows as Spark's types, with their errors. A row that Arrow rejects becomes an error."""
    try:
        array = pa.array(rows, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        array = pa.concat_arrays([_one(row, index, errors, kind) for index, row in enumerate(rows)])
    wanted = for_spark(kind)
    if wanted != kind:
        array = array.cast(wanted, safe=False)
    names = [field.name for field in wanted]
    return pa.StructArray.from_arrays([*array.flatten(), pa.array(errors, pa.string())], [*names, ERROR_FIELD])


def _one(row: Any, index: int, errors: list[str | None], kind: pa.StructType) -> pa.Array:
    try:
        return pa.array([row], kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        errors[index] = f"the value does not fit its columns: {error}"
        return pa.array([None], kind)

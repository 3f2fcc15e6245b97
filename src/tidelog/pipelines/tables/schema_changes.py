"""Schema comparison between rows and a table, and the action that the declared policy allows."""

from dataclasses import dataclass

import pyarrow as pa

from tidelog.pipelines.definition.model import SchemaChanges

WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64()),
    pa.int16(): (pa.int32(), pa.int64()),
    pa.int32(): (pa.int64(),),
    pa.float32(): (pa.float64(),),
}
"""Wider types: they hold every value of the narrower type."""


class SchemaMismatch(Exception):
    """The rows do not fit the table and the policy allows no change; the message lists the columns."""


@dataclass(frozen=True, slots=True)
class TypeChange:
    name: str
    table_type: pa.DataType
    rows_type: pa.DataType

    def __str__(self) -> str:
        return f"{self.name} ({spark_name(self.table_type)} in the table, {spark_name(self.rows_type)} in the rows)"


@dataclass(frozen=True, slots=True)
class Difference:
    added: tuple[pa.Field, ...] = ()
    missing: tuple[str, ...] = ()
    widened: tuple[TypeChange, ...] = ()
    """The rows have a wider type than the table, such as bigint instead of int."""
    changed: tuple[TypeChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.missing or self.widened or self.changed)

    def __str__(self) -> str:
        added = [f"{field.name} {spark_name(field.type)}" for field in self.added]
        changed = [str(change) for change in (*self.widened, *self.changed)]
        parts = (("added", added), ("missing", list(self.missing)), ("changed", changed))
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)


@dataclass(frozen=True, slots=True)
class Evolve:
    """Change the table first; columns that the rows lack become null."""

    added: tuple[pa.Field, ...]
    widened: tuple[TypeChange, ...]


@dataclass(frozen=True, slots=True)
class SetAside:
    """Write only rows that fit: null in the columns `added`, and values of `changed` that the table's type can hold."""

    added: tuple[str, ...]
    changed: tuple[TypeChange, ...]
    reason: str


def check_column_types(rows: pa.Schema) -> None:
    for field in rows:
        if pa.types.is_null(field.type) or pa.types.is_duration(field.type) or pa.types.is_interval(field.type):
            spelled = "void (nothing but null)" if pa.types.is_null(field.type) else "an interval"
            raise SchemaMismatch(f"Column '{field.name}' is {spelled}, which tables cannot hold: cast it in a step")


def difference(table: pa.Schema, rows: pa.Schema) -> Difference:
    changes = [
        TypeChange(field.name, plain(table.field(field.name).type), plain(field.type))
        for field in rows
        if field.name in table.names and not fits(field.type, table.field(field.name).type)
    ]
    return Difference(
        added=tuple(pa.field(field.name, plain(field.type)) for field in rows if field.name not in table.names),
        missing=tuple(name for name in table.names if name not in rows.names),
        widened=tuple(change for change in changes if _is_wider(change)),
        changed=tuple(change for change in changes if not _is_wider(change)),
    )


def decide(found: Difference, policy: SchemaChanges, table: str) -> Evolve | SetAside | None:
    """The action before the rows are written; None if they fit."""
    if not found:
        return None
    match policy:
        case SchemaChanges.ADD_COLUMNS if not found.changed:
            return Evolve(found.added, found.widened) if found.added or found.widened else None
        case SchemaChanges.DEAD_LETTER:
            return _set_aside(found, table)
        case _:
            raise SchemaMismatch(f"The rows do not fit table '{table}': {found}. {_remedy(found, policy)}")


def _set_aside(found: Difference, table: str) -> SetAside | None:
    changed = (*found.widened, *found.changed)
    if not found.added and not changed:
        return None
    return SetAside(tuple(field.name for field in found.added), changed, f"does not fit table '{table}': {found}")


def _remedy(found: Difference, policy: SchemaChanges) -> str:
    if policy is SchemaChanges.ADD_COLUMNS:
        return (
            "add_columns adds columns and widens int to bigint and float to double; cast the changed columns in a step"
        )
    if found.changed:
        return "Cast the changed columns in a step, or write to another table"
    return 'Change the steps, or set schema_changes = "add_columns" in the sink'


def evolved(table: pa.Schema, change: Evolve) -> pa.Schema:
    wider = {widened.name: widened.rows_type for widened in change.widened}
    fields = [pa.field(field.name, wider.get(field.name, plain(field.type))) for field in table]
    return pa.schema([*fields, *change.added])


def replacing(table: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """Schema after a replacement of all rows: the table's if the new rows fit, otherwise that of the rows."""
    return table if not difference(table, rows) else plain_schema(rows)


def fits(rows_type: pa.DataType, table_type: pa.DataType) -> bool:
    rows_type, table_type = plain(rows_type), plain(table_type)
    return bool(rows_type == table_type or table_type in WIDER.get(rows_type, ()))


def _is_wider(change: TypeChange) -> bool:
    return change.rows_type in WIDER.get(change.table_type, ())


def plain(data_type: pa.DataType) -> pa.DataType:
    """The type without differences between libraries: offset widths, names of list items, spellings of UTC."""
    if pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type):
        return pa.string()
    if pa.types.is_large_binary(data_type) or pa.types.is_binary_view(data_type):
        return pa.binary()
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return pa.list_(pa.field("element", plain(data_type.value_type)))
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(plain(data_type.key_type), plain(data_type.item_type))
    if pa.types.is_timestamp(data_type):
        return pa.timestamp("us", "UTC" if data_type.tz else None)
    return data_type


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, plain(field.type)) for field in schema])


SPARK_NAMES: dict[pa.DataType, str] = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}


def spark_name(data_type: pa.DataType) -> str:
    """The type in Spark's DDL."""
    data_type = plain(data_type)
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_list(data_type):
        return f"array<{spark_name(data_type.value_type)}>"
    if pa.types.is_struct(data_type):
        return f"struct<{', '.join(f'{field.name}: {spark_name(field.type)}' for field in data_type)}>"
    if pa.types.is_map(data_type):
        return f"map<{spark_name(data_type.key_type)}, {spark_name(data_type.item_type)}>"
    return SPARK_NAMES.get(data_type, str(data_type))

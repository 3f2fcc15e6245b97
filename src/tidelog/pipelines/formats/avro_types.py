"""Conversion of Avro schemas to column types. Independent of Spark sessions and schema registries."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from tidelog.pipelines.formats import FormatError
from tidelog.pipelines.formats.arrow_types import ColumnType, decimal_of, list_of

AvroSchema: TypeAlias = str | Mapping[str, Any] | Sequence[Any]
Convert: TypeAlias = Callable[[Any], Any]

PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}

INTEGERS_WITH_MEANING: Mapping[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "timestamp-nanos": pa.timestamp("ns", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}

PYTHON_TYPES: Mapping[str, type] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "fixed": bytes,
    "string": str,
    "enum": str,
    "array": list,
    "map": dict,
    "record": dict,
}


def row_type(schema: AvroSchema) -> ColumnType:
    """The columns of a record; raises FormatError."""
    if not isinstance(schema, Mapping) or schema.get("type") not in ("record", "error"):
        raise FormatError("The Avro schema must be a record, whose fields become the columns")
    return _Types().of(schema, "the schema", "")


def reading_schema(schema: AvroSchema) -> Any:
    """Without logical types of integers: Arrow converts them faster than Python."""
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, Mapping):
        return [reading_schema(branch) for branch in schema]
    copy = dict(schema)
    if copy.get("logicalType") != "decimal":
        copy.pop("logicalType", None)
    for key in ("type", "items", "values"):
        if isinstance(copy.get(key), (Mapping, list)):
            copy[key] = reading_schema(copy[key])
    if "fields" in copy:
        copy["fields"] = [{**field, "type": reading_schema(field["type"])} for field in copy["fields"]]
    return copy


class _Types:
    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self._open: list[str] = []

    def of(self, schema: AvroSchema, where: str, namespace: str) -> ColumnType:
        if isinstance(schema, str):
            return self._of_name(schema, where, namespace)
        if not isinstance(schema, Mapping):
            return self._of_union(schema, where, namespace)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, where, namespace)
        if kind in ("record", "error"):
            return self._of_record(schema, where, namespace)
        if kind == "array":
            return self._of_array(schema, where, namespace)
        if kind == "map":
            return self._of_map(schema, where, namespace)
        return self._of_scalar(schema, kind, where, namespace)

    def _of_name(self, name: str, where: str, namespace: str) -> ColumnType:
        if name in PRIMITIVES:
            return ColumnType(PRIMITIVES[name])
        full = _full_name(name, namespace)
        if full in self._open:
            raise FormatError(f"{where} contains {full} recursively; Spark has no recursive types")
        if full not in self._named:
            raise FormatError(f"{where} has type {name}, which the Avro schema does not define")
        return self.of(self._named[full], where, namespace)

    def _of_scalar(self, schema: Mapping[str, Any], kind: str, where: str, namespace: str) -> ColumnType:
        logical = schema.get("logicalType")
        if logical == "decimal":
            self._remember(schema, namespace)
            return ColumnType(decimal_of(schema["precision"], schema.get("scale", 0), where))
        if kind in ("int", "long") and str(logical) in INTEGERS_WITH_MEANING:
            return ColumnType(INTEGERS_WITH_MEANING[str(logical)])
        if kind in ("enum", "fixed"):
            self._remember(schema, namespace)
            return ColumnType(pa.string() if kind == "enum" else pa.binary())
        return self._of_name(kind, where, namespace)

    def _of_record(self, schema: Mapping[str, Any], where: str, namespace: str) -> ColumnType:
        full = self._remember(schema, namespace)
        self._open.append(full)
        inner = full.rpartition(".")[0]
        fields = [
            (field["name"], self.of(field["type"], f"field '{field['name']}' of {where}", inner))
            for field in schema["fields"]
        ]
        self._open.pop()
        converts = {name: column.convert for name, column in fields if column.convert is not None}
        kind = pa.struct([pa.field(name, column.arrow) for name, column in fields])
        return ColumnType(kind, _record_converter(converts) if converts else None)

    def _of_array(self, schema: Mapping[str, Any], where: str, namespace: str) -> ColumnType:
        item = self.of(schema["items"], where, namespace)
        convert = item.convert
        return ColumnType(
            list_of(item.arrow), None if convert is None else lambda values: [convert(value) for value in values]
        )

    def _of_map(self, schema: Mapping[str, Any], where: str, namespace: str) -> ColumnType:
        item = self.of(schema["values"], where, namespace)
        convert = item.convert or _unchanged
        return ColumnType(
            pa.map_(pa.string(), item.arrow), lambda values: [(key, convert(value)) for key, value in values.items()]
        )

    def _of_union(self, branches: Sequence[Any], where: str, namespace: str) -> ColumnType:
        present = [branch for branch in branches if branch != "null"]
        columns = [self.of(branch, where, namespace) for branch in present]
        if not columns:
            return ColumnType(pa.null())
        if len(columns) == 1:
            return ColumnType(columns[0].arrow, _unless_null(columns[0].convert))
        widest = _common_number({column.arrow for column in columns})
        if widest is not None:
            return ColumnType(widest, _unless_null(float) if widest == pa.float64() else None)
        return self._of_members(present, columns, where, namespace)

    def _of_members(
        self, branches: Sequence[Any], columns: Sequence[ColumnType], where: str, namespace: str
    ) -> ColumnType:
        """Same as Spark's own Avro reader: a struct with a field for each branch, one of them not null."""
        types = [self._python_type(branch, namespace) for branch in branches]
        if len(set(types)) < len(types):
            raise FormatError(
                f"{where} is a union with branches of the same Python type, which cannot be distinguished"
            )
        fields = [pa.field(f"member{index}", column.arrow) for index, column in enumerate(columns)]
        by_type = {kind: (f"member{index}", columns[index].convert) for index, kind in enumerate(types)}
        return ColumnType(pa.struct(fields), _unless_null(_member_converter(by_type)))

    def _python_type(self, branch: AvroSchema, namespace: str) -> type:
        if isinstance(branch, Mapping) and branch.get("logicalType") == "decimal":
            return Decimal
        kind = branch if isinstance(branch, str) else branch["type"] if isinstance(branch, Mapping) else ""
        if kind not in PYTHON_TYPES and isinstance(kind, str):
            return self._python_type(self._named[_full_name(kind, namespace)], namespace)
        return PYTHON_TYPES[kind]

    def _remember(self, schema: Mapping[str, Any], namespace: str) -> str:
        if "name" not in schema:
            return ""
        full = _full_name(schema["name"], schema.get("namespace", namespace))
        self._named[full] = {**schema, "name": full}
        return full


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _common_number(kinds: set[pa.DataType]) -> pa.DataType | None:
    if kinds <= {pa.int32(), pa.int64()}:
        return pa.int64()
    return pa.float64() if kinds <= {pa.int32(), pa.int64(), pa.float32(), pa.float64()} else None


def _unchanged(value: Any) -> Any:
    return value


def _unless_null(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _record_converter(converts: Mapping[str, Convert]) -> Convert:
    def convert_record(record: Any) -> Any:
        for name, convert in converts.items():
            record[name] = convert(record[name])
        return record

    return convert_record


def _member_converter(by_type: Mapping[type, tuple[str, Convert | None]]) -> Convert:
    def convert_member(value: Any) -> Any:
        member, convert = by_type[type(value)]
        return {member: value if convert is None else convert(value)}

    return convert_member


def schema_of(kind: pa.DataType, name: str = "row") -> Any:
    """An Avro schema derived from columns; every value is nullable."""
    return ["null", _bare_schema_of(kind, name)]


def record_schema_of(kind: pa.StructType, name: str = "row") -> Any:
    return _bare_schema_of(kind, name)


def _bare_schema_of(kind: pa.DataType, name: str) -> Any:
    if pa.types.is_struct(kind):
        fields = [{"name": field.name, "type": schema_of(field.type, f"{name}_{field.name}")} for field in kind]
        return {"type": "record", "name": name, "fields": fields}
    if pa.types.is_map(kind):
        return {"type": "map", "values": schema_of(kind.item_type, f"{name}_value")}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": schema_of(kind.value_type, f"{name}_item")}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_integer(kind):
        return "long" if kind.bit_width > 32 else "int"
    for primitive, arrow in PRIMITIVES.items():
        if arrow == kind:
            return primitive
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return "string" if pa.types.is_large_string(kind) else "bytes"
    raise FormatError(f"Avro has no type for a column of {kind}; cast it in a step")

"""Conversion of JSON Schemas to column types, and of column types to JSON Schemas."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from tidelog.pipelines.formats import FormatError
from tidelog.pipelines.formats.arrow_types import ColumnType, list_of

DIALECT = "http://json-schema.org/draft-07/schema#"
NULL = "null"


def row_type(schema: Any, documents: Mapping[str, Any]) -> ColumnType:
    """The columns of an object; `documents` are the schemas that it refers to, by name. Raises FormatError."""
    column = _Types(schema, documents).of(schema, schema, ())
    if not pa.types.is_struct(column.arrow):
        raise FormatError("The JSON Schema must be that of an object with properties, which become the columns")
    return column


class _Types:
    def __init__(self, root: Any, documents: Mapping[str, Any]) -> None:
        self._root = root
        self._documents = documents

    def of(self, schema: Any, root: Any, within: tuple[str, ...]) -> ColumnType:
        """`root` is the document of the schema, `within` the references that led to it."""
        if not isinstance(schema, Mapping):
            return ANYTHING
        if "$ref" in schema:
            reference = str(schema["$ref"])
            if reference in within:
                raise FormatError(f"The JSON Schema refers to {reference} recursively; Spark has no recursive types")
            return self.of(*self._resolved(reference, root), (*within, reference))
        for key in ("oneOf", "anyOf", "allOf"):
            choices = [each for each in schema.get(key, ()) if not _is_null(each)]
            if choices:
                return self.of(choices[0], root, within) if len(choices) == 1 else ANYTHING
        kinds = schema.get("type", _type_of_values(schema))
        kinds = [kind for kind in ([kinds] if isinstance(kinds, str) else kinds or ()) if kind != NULL]
        return self._of_kind(str(kinds[0]), schema, root, within) if len(kinds) == 1 else ANYTHING

    def _resolved(self, reference: str, root: Any) -> tuple[Any, Any]:
        document, _, pointer = reference.partition("#")
        if document:
            names = [name for name in self._documents if name == document or name.endswith(f"/{document}")]
            if not names:
                raise FormatError(f"The JSON Schema refers to {document}, which is not among its references")
            root = self._documents[names[0]]
        found = root
        for part in filter(None, pointer.split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise FormatError(f"The JSON Schema refers to {reference}, which it does not have")
            found = found[name]
        return found, root

    def _of_kind(self, kind: str, schema: Mapping[str, Any], root: Any, within: tuple[str, ...]) -> ColumnType:
        if kind == "object":
            return self._of_object(schema, root, within)
        if kind == "array":
            return self._of_array(schema, root, within)
        if kind == "string":
            return STRINGS.get(str(schema.get("format")), ColumnType(pa.string()))
        return SCALARS.get(kind, ANYTHING)

    def _of_object(self, schema: Mapping[str, Any], root: Any, within: tuple[str, ...]) -> ColumnType:
        properties = schema.get("properties") or {}
        if properties:
            fields = {name: self.of(each, root, within) for name, each in properties.items()}
            kind = pa.struct([pa.field(name, column.arrow) for name, column in fields.items()])
            converts = {name: column.convert for name, column in fields.items()}
            return ColumnType(kind, lambda row: {name: _or_null(row.get(name), f) for name, f in converts.items()})
        values = schema.get("additionalProperties")
        if not isinstance(values, Mapping):
            return ANYTHING
        column = self.of(values, root, within)
        return ColumnType(
            pa.map_(pa.string(), column.arrow),
            lambda row: [(name, _or_null(value, column.convert)) for name, value in row.items()],
        )

    def _of_array(self, schema: Mapping[str, Any], root: Any, within: tuple[str, ...]) -> ColumnType:
        items = schema.get("items")
        if not isinstance(items, Mapping):
            return ANYTHING
        column = self.of(items, root, within)
        return ColumnType(list_of(column.arrow), lambda values: [_or_null(each, column.convert) for each in values])


def _or_null(value: Any, convert: Callable[[Any], Any] | None) -> Any:
    return value if value is None or convert is None else convert(value)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == NULL


def _type_of_values(schema: Mapping[str, Any]) -> str | None:
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if "properties" in schema:
        return "object"
    return "string" if values and all(isinstance(value, str) for value in values) else None


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


ANYTHING = ColumnType(pa.string(), _json_text)
"""Values of no one type stay JSON."""
SCALARS = {
    "integer": ColumnType(pa.int64(), int),
    "number": ColumnType(pa.float64(), float),
    "boolean": ColumnType(pa.bool_()),
}
STRINGS = {
    "date-time": ColumnType(pa.timestamp("us", tz="UTC"), _moment),
    "date": ColumnType(pa.date32(), date.fromisoformat),
}


def schema_of_rows(kind: pa.StructType) -> dict[str, Any]:
    """Spark leaves out fields that are null, so that none is required."""
    return {"$schema": DIALECT, "title": "row", **_schema_of(kind)}


def _schema_of(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"type": "object", "properties": {field.name: _schema_of(field.type) for field in kind}}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": _or_null_schema(_schema_of(kind.item_type))}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _or_null_schema(_schema_of(kind.value_type))}
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if pa.types.is_integer(kind):
        return {"type": "integer"}
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return {"type": "number"}
    if pa.types.is_date(kind):
        return {"type": "string", "format": "date"}
    if pa.types.is_timestamp(kind) and kind.tz:
        return {"type": "string", "format": "date-time"}
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return {"type": "string", "contentEncoding": "base64"}
    return {"type": "string"}


def _or_null_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Unlike a field, a null in a list or a map is written."""
    return {"oneOf": [{"type": NULL}, schema]}

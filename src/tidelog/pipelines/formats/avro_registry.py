"""Avro values whose schema is in a registry: decoded with the schema of each record, into the columns of one schema."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from tidelog.pipelines.formats.arrow_types import ColumnType
from tidelog.pipelines.formats.avro_types import PRIMITIVES, reading_schema, row_type
from tidelog.pipelines.formats.confluent import after_prefix, schema_id_in
from tidelog.pipelines.formats.registry_rows import rows_decoder
from tidelog.pipelines.formats.schema_registry import RegisteredSchema, SchemaKind, Schemas


def decoder(schemas: Schemas, text: str) -> Callable[[pa.Array], pa.Array]:
    """`text` is the schema of the columns; fields are matched by name, as Avro's schema resolution does."""
    column = row_type(json.loads(text))

    def read(value: bytes) -> Any:
        content = after_prefix(value)
        writer = whole_text(schemas.schema(schema_id_in(value), SchemaKind.AVRO))
        return _converted(_read(content, writer, text), column)

    return rows_decoder(read, column.arrow, "Avro")


def _converted(row: Any, column: ColumnType) -> Any:
    return row if column.convert is None else column.convert(row)


def _read(content: bytes, writer: str, reader: str) -> Any:
    import fastavro

    return fastavro.schemaless_reader(io.BytesIO(content), _parsed(writer), _parsed(reader))


@lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    import fastavro

    return fastavro.parse_schema(reading_schema(json.loads(text)), named_schemas={})


@lru_cache(maxsize=256)
def whole_text(schema: RegisteredSchema) -> str:
    """The schema with the definitions of its references in place of the first mention of each."""
    if not schema.references:
        return schema.text
    named = {name: json.loads(text) for name, text in schema.references}
    return json.dumps(_inlined(json.loads(schema.text), named, ""))


def _inlined(schema: Any, named: dict[str, Any], namespace: str) -> Any:
    if isinstance(schema, str):
        for name in (schema, f"{namespace}.{schema}"):
            if name in named and schema not in PRIMITIVES:
                return _inlined(named.pop(name), named, "")
        return schema
    if isinstance(schema, Sequence):
        return [_inlined(branch, named, namespace) for branch in schema]
    assert isinstance(schema, Mapping)
    name = str(schema.get("name", ""))
    namespace = name.rpartition(".")[0] or str(schema.get("namespace", namespace))
    copy = dict(schema)
    for key in ("type", "items", "values"):
        if key in copy:
            copy[key] = _inlined(copy[key], named, namespace)
    if "fields" in copy:
        copy["fields"] = [{**field, "type": _inlined(field["type"], named, namespace)} for field in copy["fields"]]
    return copy

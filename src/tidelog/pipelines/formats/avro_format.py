"""Avro record values, with or without a schema registry prefix. fastavro decodes many records per call."""

import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.pipelines.definition.model import Format, Registry
from tidelog.pipelines.formats import FormatError, avro_registry, confluent
from tidelog.pipelines.formats.arrow_types import ColumnType, built, columns_ddl
from tidelog.pipelines.formats.avro_types import AvroSchema, reading_schema, record_schema_of, row_type
from tidelog.pipelines.formats.confluent import BadPrefix
from tidelog.pipelines.formats.parsed_rows import IS_NULL
from tidelog.pipelines.formats.python_rows import parsed_by, row_type_of, schema_id_of, serialised_by
from tidelog.pipelines.formats.schema_files import json_text
from tidelog.pipelines.formats.schema_registry import RegisteredSchema, SchemaKind, registry_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class NotThisSchema(ValueError):
    pass


def parse(frame: "DataFrame", how: Format) -> "DataFrame":
    if how.registry is not None:
        return _parse_by_registry(frame, how, how.registry)
    text = schema_text(how)
    has_prefix = how.confluent_prefix

    def decode(values: pa.Array) -> pa.Array:
        return decoder(text, has_prefix)(values)

    return parsed_by(frame, how, decode, columns_ddl(row_type(json.loads(text)).arrow))


def _parse_by_registry(frame: "DataFrame", how: Format, registry: Registry) -> "DataFrame":
    """The columns are those of the latest schema, or of `schema_file`, for the whole run."""
    assert how.subject is not None
    if how.schema_file is None:
        text = avro_registry.whole_text(registry_of(registry).latest(how.subject, SchemaKind.AVRO))
    else:
        text = schema_text(how)

    def decode(values: pa.Array) -> pa.Array:
        return avro_registry.decoder(registry_of(registry), text)(values)

    return parsed_by(frame, how, decode, columns_ddl(row_type(json.loads(text)).arrow))


def serialise(frame: "DataFrame", how: Format) -> "Column":
    text = None if how.schema_file is None else schema_text(how)
    schema_id = schema_id_of(how)
    if how.registry is not None:
        text = text or json.dumps(_schema_of(frame))
        schema = RegisteredSchema(0, SchemaKind.AVRO, text)
        schema_id = registry_of(how.registry).register(how.subject or "", schema)

    def encode(rows: pa.Array) -> pa.Array:
        return encoded(rows, text, schema_id)

    return serialised_by(frame, encode)


def _schema_of(frame: "DataFrame") -> Any:
    return record_schema_of(row_type_of(frame))


def schema_text(how: Format) -> str:
    if how.schema_file is None:
        raise FormatError("Format avro needs schema_file, the .avsc file of the writer's schema")
    return json_text(how.schema_file, "Avro schema")


@lru_cache(maxsize=16)
def decoder(text: str, has_prefix: bool | None) -> Callable[[pa.Array], pa.Array]:
    schema = json.loads(text)
    column = row_type(schema)
    read = reader_of(schema, has_prefix)

    def decode(values: pa.Array) -> pa.Array:
        rows: list[Any] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            row, error = _read_one(read, column, value)
            rows.append(row)
            errors.append(error)
        return built(rows, errors, column.arrow)

    return decode


def _read_one(read: Callable[[bytes], Any], column: ColumnType, value: bytes | None) -> tuple[Any, str | None]:
    if value is None:
        return None, IS_NULL
    try:
        row = read(value)
        return (row if column.convert is None else column.convert(row)), None
    except (BadPrefix, NotThisSchema) as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001
        return None, f"the value is not Avro of this schema: {type(error).__name__} {error}".rstrip()


def reader_of(schema: AvroSchema, has_prefix: bool | None) -> Callable[[bytes], Any]:
    import fastavro

    parsed = fastavro.parse_schema(reading_schema(schema), named_schemas={})

    def read(value: bytes) -> Any:
        stream = io.BytesIO(value)
        row = fastavro.schemaless_reader(stream, parsed, None)
        left = len(value) - stream.tell()
        if left:
            raise NotThisSchema(f"the value is not Avro of this schema: {left} bytes are left after the record")
        return row

    def read_after_prefix(value: bytes) -> Any:
        return read(confluent.after_prefix(value))

    def read_either(value: bytes) -> Any:
        """A record without a prefix may also begin with a zero byte: only the right one consumes the whole value."""
        if not confluent.has_prefix(value):
            return read(value)
        try:
            return read_after_prefix(value)
        except Exception:  # noqa: BLE001
            return read(value)

    return read_either if has_prefix is None else read_after_prefix if has_prefix else read


def encoded(rows: pa.Array, text: str | None, schema_id: int | None) -> pa.Array:
    import fastavro

    parsed = _writing_schema(text) if text is not None else _derived_schema(rows.type)
    prefix = b"" if schema_id is None else confluent.prefix(schema_id)
    values = []
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        stream = io.BytesIO()
        stream.write(prefix)
        fastavro.schemaless_writer(stream, parsed, row)
        values.append(stream.getvalue())
    return pa.array(values, pa.binary())


@lru_cache(maxsize=16)
def _writing_schema(text: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(text), named_schemas={})


@lru_cache(maxsize=16)
def _derived_schema(kind: pa.StructType) -> Any:
    import fastavro

    return fastavro.parse_schema(record_schema_of(kind), named_schemas={})

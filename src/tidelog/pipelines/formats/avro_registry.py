"""Avro values whose schema is in a registry: decoded with the schema of each record, into the columns of one schema."""

import io
import json
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from tidelog.pipelines.formats.arrow_types import ColumnType, built
from tidelog.pipelines.formats.avro_types import reading_schema, row_type
from tidelog.pipelines.formats.confluent import BadPrefix, after_prefix
from tidelog.pipelines.formats.parsed_rows import IS_NULL
from tidelog.pipelines.formats.schema_registry import UnknownSchema


class Schemas(Protocol):
    def schema(self, schema_id: int) -> str: ...


def decoder(schemas: Schemas, text: str) -> Callable[[pa.Array], pa.Array]:
    """`text` is the schema of the columns; fields are matched by name, as Avro's schema resolution does."""
    column = row_type(json.loads(text))

    def decode(values: pa.Array) -> pa.Array:
        rows: list[Any] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            row, error = _one(schemas, text, column, value)
            rows.append(row)
            errors.append(error)
        return built(rows, errors, column.arrow)

    return decode


def _one(schemas: Schemas, text: str, column: ColumnType, value: bytes | None) -> tuple[Any, str | None]:
    if value is None:
        return None, IS_NULL
    try:
        content = after_prefix(value)
        writer = schemas.schema(struct.unpack(">I", value[1:5])[0])
        row = _read(content, writer, text)
        return (row if column.convert is None else column.convert(row)), None
    except (BadPrefix, UnknownSchema) as error:
        return None, str(error)
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001
        return None, f"the value is not Avro of its schema: {type(error).__name__} {error}".rstrip()


def _read(content: bytes, writer: str, reader: str) -> Any:
    import fastavro

    return fastavro.schemaless_reader(io.BytesIO(content), _parsed(writer), _parsed(reader))


@lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    import fastavro

    return fastavro.parse_schema(reading_schema(json.loads(text)), named_schemas={})

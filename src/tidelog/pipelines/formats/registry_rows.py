"""Rows of values that begin with the prefix of a registry: common parts of Avro, Protobuf and JSON Schema."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tidelog.pipelines.formats.arrow_types import built
from tidelog.pipelines.formats.confluent import BadPrefix
from tidelog.pipelines.formats.parsed_rows import IS_NULL
from tidelog.pipelines.formats.schema_registry import UnknownSchema


class NotTheSchema(ValueError):
    """The value is not what its schema or the columns say; the message says why."""


def rows_decoder(read: Callable[[bytes], Any], kind: pa.StructType, name: str) -> Callable[[pa.Array], pa.Array]:
    """`read` gives the row of a value. A registry that does not answer ends the task, which is carried out again."""

    def decode(values: pa.Array) -> pa.Array:
        rows: list[Any] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            row, error = _one(read, value, name)
            rows.append(row)
            errors.append(error)
        return built(rows, errors, kind)

    return decode


def _one(read: Callable[[bytes], Any], value: bytes | None, name: str) -> tuple[Any, str | None]:
    if value is None:
        return None, IS_NULL
    try:
        return read(value), None
    except (BadPrefix, UnknownSchema, NotTheSchema) as error:
        return None, str(error)
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001
        return None, f"the value is not {name} of its schema: {type(error).__name__} {error}".rstrip()

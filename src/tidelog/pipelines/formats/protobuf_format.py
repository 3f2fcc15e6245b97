"""Protobuf record values, with or without a schema registry prefix; message types come from a descriptor set."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.pipelines.definition.model import Format
from tidelog.pipelines.formats import FormatError, confluent
from tidelog.pipelines.formats.arrow_types import built, columns_ddl
from tidelog.pipelines.formats.confluent import BadPrefix
from tidelog.pipelines.formats.parsed_rows import IS_NULL
from tidelog.pipelines.formats.protobuf_types import fill, message_class, row_type
from tidelog.pipelines.formats.python_rows import parsed_by, schema_id_of, serialised_by

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FIRST_MESSAGE = b"\0"


def parse(frame: "DataFrame", how: Format) -> "DataFrame":
    descriptor_set, name, has_prefix = descriptor_set_of(how), how.message, how.confluent_prefix
    row = row_type(message_class(descriptor_set, name).DESCRIPTOR)

    def decode(values: pa.Array) -> pa.Array:
        return decoder(descriptor_set, name, has_prefix)(values)

    return parsed_by(frame, how, decode, columns_ddl(row.arrow))


def serialise(frame: "DataFrame", how: Format) -> "Column":
    descriptor_set, name, schema_id = descriptor_set_of(how), how.message, schema_id_of(how)
    message_class(descriptor_set, name)

    def encode(rows: pa.Array) -> pa.Array:
        return encoded(rows, descriptor_set, name, schema_id)

    return serialised_by(frame, encode)


def descriptor_set_of(how: Format) -> bytes:
    if how.schema_file is None:
        raise FormatError(
            "Format protobuf needs schema_file, made by protoc --include_imports --descriptor_set_out=FILE"
        )
    try:
        return how.schema_file.read_bytes()
    except OSError as error:
        raise FormatError(f"The descriptor set {how.schema_file} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=16)
def decoder(descriptor_set: bytes, name: str | None, has_prefix: bool | None) -> Callable[[pa.Array], pa.Array]:
    make = message_class(descriptor_set, name)
    column = row_type(make.DESCRIPTOR)
    assert column.convert is not None

    def decode(values: pa.Array) -> pa.Array:
        rows: list[Any] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            row, error = _read_one(make, column.convert, has_prefix, value)
            rows.append(row)
            errors.append(error)
        return built(rows, errors, column.arrow)

    return decode


def _read_one(make: Any, convert: Any, has_prefix: bool | None, value: bytes | None) -> tuple[Any, str | None]:
    if value is None:
        return None, IS_NULL
    try:
        return convert(make.FromString(without_prefix(value, has_prefix))), None
    except BadPrefix as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001
        return None, f"the value is not a valid {make.DESCRIPTOR.full_name}: {error}"


def without_prefix(value: bytes, has_prefix: bool | None) -> bytes:
    """No message begins with a zero byte, so the prefix can be detected."""
    if has_prefix is None:
        has_prefix = confluent.has_prefix(value)
    if not has_prefix:
        return value
    confluent.after_prefix(value)
    return confluent.after_message_indexes(value)


def encoded(rows: pa.Array, descriptor_set: bytes, name: str | None, schema_id: int | None) -> pa.Array:
    make = _writing_class(descriptor_set, name)
    prefix = b"" if schema_id is None else confluent.prefix(schema_id) + FIRST_MESSAGE
    values = []
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        message = make()
        fill(message, row)
        values.append(prefix + message.SerializeToString())
    return pa.array(values, pa.binary())


@lru_cache(maxsize=16)
def _writing_class(descriptor_set: bytes, name: str | None) -> Any:
    return message_class(descriptor_set, name)

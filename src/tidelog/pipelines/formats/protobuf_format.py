"""Protobuf record values, with or without a schema registry prefix; message types come from a descriptor set, from a
.proto file or from a registry."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.pipelines.definition.model import Format, Registry
from tidelog.pipelines.formats import FormatError, confluent, proto_files, protobuf_registry
from tidelog.pipelines.formats.arrow_types import built, columns_ddl
from tidelog.pipelines.formats.confluent import BadPrefix
from tidelog.pipelines.formats.parsed_rows import IS_NULL
from tidelog.pipelines.formats.protobuf_types import fill, indexes_of, message_class, row_type
from tidelog.pipelines.formats.python_rows import parsed_by, schema_id_of, serialised_by
from tidelog.pipelines.formats.schema_registry import SchemaKind, registry_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def parse(frame: "DataFrame", how: Format) -> "DataFrame":
    if how.registry is not None:
        return _parse_by_registry(frame, how, how.registry)
    descriptor_set, name, has_prefix = descriptor_set_of(how), how.message, how.confluent_prefix
    row = row_type(message_class(descriptor_set, name).DESCRIPTOR)

    def decode(values: pa.Array) -> pa.Array:
        return decoder(descriptor_set, name, has_prefix)(values)

    return parsed_by(frame, how, decode, columns_ddl(row.arrow))


def _parse_by_registry(frame: "DataFrame", how: Format, registry: Registry) -> "DataFrame":
    """The columns are those of the latest schema, or of `schema_file`, for the whole run."""
    descriptor_set, name = _from_registry_or_file(how, registry)
    row = row_type(message_class(descriptor_set, name).DESCRIPTOR)

    def decode(values: pa.Array) -> pa.Array:
        return protobuf_registry.decoder(registry_of(registry), descriptor_set, name)(values)

    return parsed_by(frame, how, decode, columns_ddl(row.arrow))


def _from_registry_or_file(how: Format, registry: Registry) -> tuple[bytes, str | None]:
    if how.schema_file is not None:
        return descriptor_set_of(how), how.message
    schema = registry_of(registry).latest(how.subject or "", SchemaKind.PROTOBUF)
    descriptor_set = protobuf_registry.descriptor_set(schema)
    return descriptor_set, how.message or protobuf_registry.first_message(descriptor_set)


def serialise(frame: "DataFrame", how: Format) -> "Column":
    if how.registry is None:
        descriptor_set, name, schema_id = descriptor_set_of(how), how.message, schema_id_of(how)
    else:
        descriptor_set, name = _from_registry_or_file(how, how.registry)
        schema_id = _registered(how, how.registry, descriptor_set, name)
    message_class(descriptor_set, name)

    def encode(rows: pa.Array) -> pa.Array:
        return encoded(rows, descriptor_set, name, schema_id)

    return serialised_by(frame, encode)


def _registered(how: Format, registry: Registry, descriptor_set: bytes, name: str | None) -> int:
    """Without a file the subject's latest schema is written, which is registered already: a schema made from the rows
    would number the fields by their order, and a new column in their midst would change the meaning of the others."""
    schemas, subject = registry_of(registry), how.subject or ""
    if how.schema_file is None:
        return schemas.latest(subject, SchemaKind.PROTOBUF).id
    file = message_class(descriptor_set, name).DESCRIPTOR.file.name
    return schemas.register(subject, proto_files.to_register(how.schema_file, descriptor_set, file))


def descriptor_set_of(how: Format) -> bytes:
    if how.schema_file is None:
        raise FormatError(
            "Format protobuf needs schema_file, made by protoc --include_imports --descriptor_set_out=FILE"
        )
    return proto_files.read_descriptor_set(how.schema_file)


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
    prefix = b"" if schema_id is None else confluent.prefix(schema_id) + _place(make)
    values = []
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        message = make()
        fill(message, row)
        values.append(prefix + message.SerializeToString())
    return pa.array(values, pa.binary())


def _place(make: Any) -> bytes:
    return confluent.message_indexes(indexes_of(make.DESCRIPTOR))


@lru_cache(maxsize=16)
def _writing_class(descriptor_set: bytes, name: str | None) -> Any:
    return message_class(descriptor_set, name)

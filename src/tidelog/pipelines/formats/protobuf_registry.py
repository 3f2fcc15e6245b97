"""Protobuf values whose schema is in a registry.

The schema of a record says of which message type it is. Its fields are then read by their numbers, with the message
type of the columns, as Protobuf's own evolution of schemas does."""

import base64
import binascii
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from tidelog.pipelines.formats import FormatError
from tidelog.pipelines.formats.confluent import FIRST_MESSAGE, after_prefix, schema_id_in, split_message_indexes
from tidelog.pipelines.formats.proto_files import compiled_texts
from tidelog.pipelines.formats.protobuf_types import files_of, message_class, name_at, row_type
from tidelog.pipelines.formats.registry_rows import NotTheSchema, rows_decoder
from tidelog.pipelines.formats.schema_registry import RegisteredSchema, SchemaKind, Schemas

FILE_NAME = "tidelog-schema-{}.proto"
"""A schema in a registry has no file name, its references have."""


def decoder(schemas: Schemas, descriptors: bytes, name: str | None) -> Callable[[pa.Array], pa.Array]:
    make = _message_class(descriptors, name)
    column = row_type(make.DESCRIPTOR)
    wanted = str(make.DESCRIPTOR.full_name)

    def read(value: bytes) -> Any:
        after_prefix(value)
        indexes, content = split_message_indexes(value)
        found = _name_in(schemas.schema(schema_id_in(value), SchemaKind.PROTOBUF), indexes)
        if found != wanted:
            raise NotTheSchema(f"the value is a {found}, not a {wanted}")
        assert column.convert is not None
        return column.convert(make.FromString(content))

    return rows_decoder(read, column.arrow, "Protobuf")


@lru_cache(maxsize=16)
def _message_class(descriptors: bytes, name: str | None) -> Any:
    return message_class(descriptors, name)


@lru_cache(maxsize=1024)
def _name_in(schema: RegisteredSchema, indexes: tuple[int, ...]) -> str:
    name = name_at(files_of(descriptor_set(schema))[-1], indexes)
    if name is None:
        raise NotTheSchema(f"schema {schema.id} of the registry has no message type at {list(indexes)}")
    return name


def first_message(descriptors: bytes) -> str:
    name = name_at(files_of(descriptors)[-1], FIRST_MESSAGE)
    if name is None:
        raise FormatError("The Protobuf schema in the registry has no message types")
    return name


@lru_cache(maxsize=256)
def descriptor_set(schema: RegisteredSchema) -> bytes:
    """With its references; the schema itself is the last file. Raises FormatError."""
    main = FILE_NAME.format(schema.id)
    texts = {**dict(schema.references), main: schema.text}
    files = {name: _serialised(name, text) for name, text in texts.items()}
    if all(file is not None for file in files.values()):
        return bytes(descriptor_pb2.FileDescriptorSet(file=list(files.values())).SerializeToString())
    return compiled_texts(main, texts)


def _serialised(name: str, text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Clients may register a file's descriptor in base64 instead of its text."""
    if set(text) & set(';{"'):
        return None
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    file.name = name
    return file

"""Values in Avro or Protobuf as JSON, by a schema file. A schema registry prefix is skipped."""

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from tidelog.cli.command_error import CommandError

AVRO_SUFFIX = ".avsc"
PROTO_SUFFIX = ".proto"
Decode = Callable[[bytes], Any]
"""A value that can be written as JSON. Raises if the bytes do not match the schema."""


def decoder_of(file: str, message: str | None) -> Decode:
    """Raises CommandError if the file cannot be used."""
    path = Path(file)
    if path.suffix == PROTO_SUFFIX:
        made = path.with_suffix(".desc")
        raise CommandError(
            f"--value-schema takes a descriptor set: protoc --include_imports --descriptor_set_out={made} {path}"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read the schema {file}: {error.strerror}") from None
    try:
        if path.suffix == AVRO_SUFFIX:
            return avro_decoder(content)
        return protobuf_decoder(content, message)
    except ImportError as error:
        raise CommandError(missing(error)) from None


def missing(error: ImportError) -> str:
    return f"{error.name} is missing: `pip install 'tidelog[spark]'` installs what Avro and Protobuf need"


def avro_decoder(content: bytes) -> Decode:
    from tidelog.pipelines.formats.avro_format import reader_of

    try:
        read = reader_of(json.loads(content), None)
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001
        raise CommandError(f"the Avro schema is not valid: {type(error).__name__}: {error}") from None
    return lambda value: as_json_value(read(value))


def protobuf_decoder(content: bytes, message: str | None) -> Decode:
    from google.protobuf import json_format

    from tidelog.pipelines.formats import FormatError
    from tidelog.pipelines.formats.protobuf_format import without_prefix
    from tidelog.pipelines.formats.protobuf_types import message_class

    try:
        make = message_class(content, message)
    except FormatError as error:
        raise CommandError(str(error).replace("message = one of", "--message, one of")) from None
    return lambda value: json_format.MessageToDict(
        make.FromString(without_prefix(value, None)), preserving_proto_field_name=True
    )


def as_json_value(value: Any) -> Any:
    """What JSON lacks becomes text: times in ISO format, decimals in digits, bytes in base64."""
    if isinstance(value, dict):
        return {str(key): as_json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json_value(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value

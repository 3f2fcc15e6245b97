"""Schema files: reading and validation, without Spark."""

import json
from pathlib import Path

from tidelog.pipelines.definition.model import Format, FormatKind
from tidelog.pipelines.formats import FormatError


def json_text(file: Path, what: str) -> str:
    """Text of a schema file, which must be JSON. Raises FormatError, which calls the schema `what`."""
    try:
        text = file.read_text(encoding="utf-8")
        json.loads(text)
    except OSError as error:
        raise FormatError(f"The {what} {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(f"The {what} {file} is not JSON: {error}") from error
    return text


def problem_of_schema_file(format_: Format, file: Path) -> str | None:
    """The problem in one sentence; None if the file is valid."""
    try:
        content = file.read_bytes()
        if format_.kind is FormatKind.PROTOBUF:
            _reject_bad_protobuf(file, format_.message)
        elif format_.kind is FormatKind.JSON:
            _reject_bad_json_schema(content)
        else:
            _reject_bad_avro(content)
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}"
    except FormatError as error:
        return str(error)
    return None


def _reject_bad_avro(content: bytes) -> None:
    from tidelog.pipelines.formats.avro_types import row_type

    try:
        row_type(json.loads(content))
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(f"the Avro schema is not JSON: {error}") from error
    except KeyError as error:
        raise FormatError(f"the Avro schema lacks {error}") from error
    except (TypeError, AttributeError) as error:
        raise FormatError(f"the Avro schema is not valid: {error}") from error


def _reject_bad_protobuf(file: Path, message: str | None) -> None:
    from tidelog.pipelines.formats.proto_files import read_descriptor_set
    from tidelog.pipelines.formats.protobuf_types import message_class, row_type

    row_type(message_class(read_descriptor_set(file), message).DESCRIPTOR)


def _reject_bad_json_schema(content: bytes) -> None:
    from tidelog.pipelines.formats.json_schema_types import row_type

    try:
        row_type(json.loads(content), {})
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(f"the JSON Schema is not JSON: {error}") from error

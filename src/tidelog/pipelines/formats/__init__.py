"""How the bytes of a record become columns, and columns become bytes again.

`parse` adds the declared columns and `_error`, null where the record is fine, to the columns that say where it stands.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from tidelog.pipelines.definition.model import Format, FormatKind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MODULES = {
    FormatKind.RAW: "raw_format",
    FormatKind.JSON: "json_format",
    FormatKind.CSV: "csv_format",
    FormatKind.AVRO: "avro_format",
    FormatKind.PROTOBUF: "protobuf_format",
}


class FormatError(ValueError):
    """The format cannot be used as it was declared; the message says why and what to do."""


class FormatModule(Protocol):
    def parse(self, frame: "DataFrame", how: Format) -> "DataFrame": ...

    def serialise(self, frame: "DataFrame", how: Format) -> "Column": ...


def parse(frame: "DataFrame", how: Format) -> "DataFrame":
    """`frame` has the source's columns: key, value, topic, partition, offset, timestamp."""
    return _module(how.kind).parse(frame, how)


def serialise(frame: "DataFrame", how: Format) -> "Column":
    """The bytes of each row, made of all its columns but those that say where a record came from."""
    return _module(how.kind).serialise(frame, how)


def _module(kind: FormatKind) -> FormatModule:
    if kind not in MODULES:
        raise FormatError(f"Records of a topic cannot be {kind}; there are {', '.join(MODULES)}")
    return cast("FormatModule", import_module(f"{__name__}.{MODULES[kind]}"))

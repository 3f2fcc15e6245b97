"""Record formats: record values to columns and back.

`parse` adds the declared columns and `_error` (null for a valid record) to the columns for the record's position.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from tidelog.pipelines.definition.model import Format, FormatKind, NullValues

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MODULES = {
    FormatKind.RAW: "raw_format",
    FormatKind.JSON: "json_format",
    FormatKind.CSV: "csv_format",
    FormatKind.AVRO: "avro_format",
    FormatKind.PROTOBUF: "protobuf_format",
    FormatKind.DEBEZIUM: "debezium_format",
}


class FormatError(ValueError):
    """The format cannot be used as declared; the message says why and what to do."""


class FormatModule(Protocol):
    def parse(self, frame: "DataFrame", how: Format) -> "DataFrame": ...

    def serialise(self, frame: "DataFrame", how: Format) -> "Column": ...


def parse(frame: "DataFrame", how: Format) -> "DataFrame":
    """`frame` has the source's columns: key, value, topic, partition, offset, timestamp."""
    parsed = _module(how.kind).parse(frame, how)
    if how.null_values is NullValues.BAD:
        return parsed
    null_values = import_module(f"{__name__}.null_values")
    return cast("DataFrame", null_values.handled(parsed, how))


def serialise(frame: "DataFrame", how: Format) -> "Column":
    """The bytes of each row, from all columns except those for the record's position."""
    return _module(how.kind).serialise(frame, how)


def _module(kind: FormatKind) -> FormatModule:
    if kind not in MODULES:
        raise FormatError(f"Records of a topic cannot be {kind}; formats are {', '.join(MODULES)}")
    return cast("FormatModule", import_module(f"{__name__}.{MODULES[kind]}"))

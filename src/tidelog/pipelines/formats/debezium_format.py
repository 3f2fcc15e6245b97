"""Debezium change events, as JSON or Avro: the row after the change, or before it if it is a delete."""

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tidelog.pipelines.definition.model import Format, FormatKind
from tidelog.pipelines.formats import FormatError, avro_format, json_format
from tidelog.pipelines.formats.parsed_rows import (
    CHANGED_AT,
    DELETED,
    ERROR,
    OP,
    POSITION_COLUMNS,
    SOURCE,
    VALUE,
    declared_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELETE = "d"
OPERATIONS = ("c", "r", "u", DELETE)
"""Created, read by a snapshot, updated, deleted."""
ROW_BEFORE, ROW_AFTER = "before", "after"


def parse(frame: "DataFrame", how: Format) -> "DataFrame":
    envelope = _avro_envelope(frame, how) if how.schema_file or how.registry else _json_envelope(frame, how)
    kind = envelope.schema[ROW_AFTER].dataType if ROW_AFTER in envelope.columns else None
    if not isinstance(kind, StructType) or not {ROW_BEFORE, "op"} <= set(envelope.columns):
        raise FormatError("The schema is not that of Debezium's envelope, which has before, after and op")
    is_delete = F.col("op") == DELETE
    row = F.when(is_delete, F.col(ROW_BEFORE)).otherwise(F.col(ROW_AFTER))
    wanted = declared_columns(how) if how.schema is not None else kind
    columns = [row.getField(field.name).try_cast(field.dataType).alias(field.name) for field in wanted.fields]
    moment = F.timestamp_millis(F.col("ts_ms")) if "ts_ms" in envelope.columns else F.lit(None).cast("timestamp")
    source = F.col("source") if "source" in envelope.columns else F.lit(None).cast("map<string,string>")
    return envelope.select(
        *columns,
        *POSITION_COLUMNS,
        F.coalesce(is_delete, F.lit(False)).alias(DELETED),
        F.col("op").alias(OP),
        moment.alias(CHANGED_AT),
        source.alias(SOURCE),
        VALUE,
        F.coalesce(F.col(ERROR), _problem(row, wanted)).alias(ERROR),
    )


def serialise(frame: "DataFrame", how: Format) -> "Column":
    raise FormatError("Records of a sink cannot be debezium; use json or avro")


def _json_envelope(frame: "DataFrame", how: Format) -> "DataFrame":
    """The envelope alone, or inside `payload` if the converter adds schemas."""
    row = declared_columns(how).simpleString()
    ddl = f"before {row}, after {row}, op string, ts_ms bigint, source map<string,string>"
    text = F.col("value").cast("string")
    inner = F.when(F.get_json_object(text, "$.payload.op").isNotNull(), F.get_json_object(text, "$.payload"))
    return json_format.parse(frame, replace(how, kind=FormatKind.JSON, schema=ddl), F.coalesce(inner, text))


def _avro_envelope(frame: "DataFrame", how: Format) -> "DataFrame":
    return avro_format.parse(frame, replace(how, kind=FormatKind.AVRO, schema=None))


def _problem(row: "Column", wanted: StructType) -> "Column":
    problem = F.when(F.col("op").isNull(), F.lit("the value is not a change of Debezium: it has no op"))
    known = F.col("op").isin(*OPERATIONS)
    problem = problem.when(~known, F.concat(F.lit("Debezium's operation "), F.col("op"), F.lit(" is not supported")))
    problem = problem.when(row.isNull(), F.lit("the change has no row"))
    for field in wanted.fields:
        if not field.nullable:
            is_missing = row.getField(field.name).isNull() & (F.col("op") != DELETE)
            problem = problem.when(is_missing, F.lit(f"field '{field.name}' is missing"))
    return problem

"""Model of a pipeline: sources, steps and sinks as declared in its file. Plain data, independent of Spark."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

SCHEMA_ID_OPTION = "schema_id"
"""Option of Avro and Protobuf sinks: the schema id in the prefix of Confluent's registry."""


class FormatKind(StrEnum):
    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    CSV = "csv"
    PARQUET = "parquet"
    DEBEZIUM = "debezium"


class NullValues(StrEnum):
    """Handling of records without a value, which delete a key in compacted topics."""

    BAD = "bad"
    SKIP = "skip"
    DELETE = "delete"


class BadRecords(StrEnum):
    """Handling of records that do not parse."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


class SchemaChanges(StrEnum):
    """Handling of rows whose columns differ from those of the table."""

    FAIL = "fail"
    ADD_COLUMNS = "add_columns"
    DEAD_LETTER = "dead_letter"


class OnViolation(StrEnum):
    """Handling of rows that do not meet an expectation; all are counted."""

    WARN = "warn"
    DROP = "drop"
    DEAD_LETTER = "dead_letter"
    FAIL = "fail"


class TableMode(StrEnum):
    APPEND = "append"
    UPSERT = "upsert"


class TableKind(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class RegistryUse(StrEnum):
    RUN = "run"
    CHECK = "check"
    """Nothing is registered."""
    OFFLINE = "offline"
    """Schemas come from the saved copy."""


@dataclass(frozen=True, slots=True)
class Registry:
    """A schema registry with Confluent's REST interface."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    copy: str | None = None
    """Directory for copies of the schemas, which a check without the registry reads; None: none are saved."""
    use: RegistryUse = RegistryUse.RUN


@dataclass(frozen=True, slots=True)
class Format:
    """Encoding of record values."""

    kind: FormatKind = FormatKind.RAW
    schema: str | None = None
    """The columns in Spark's DDL: `id bigint, amount double`."""
    schema_file: Path | None = None
    """Avro: a schema (.avsc). Protobuf: a descriptor set (`protoc --descriptor_set_out`) or a .proto file. JSON with a
    registry: a JSON Schema."""
    message: str | None = None
    """Protobuf: the full name of the message type."""
    confluent_prefix: bool | None = None
    """Whether values begin with the registry's magic byte and schema id; None: detected for each value."""
    null_values: NullValues = NullValues.BAD
    key_schema: str | None = None
    """Columns that a record without a value takes from its key, in Spark's DDL."""
    registry: Registry | None = None
    subject: str | None = None
    """Name of the schema in the registry."""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str
    """How late a row may arrive: `10 minutes`."""


@dataclass(frozen=True, slots=True)
class TopicSource:
    """Rows: the parsed columns and `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`; raw rows: the source's."""

    name: str
    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    starting: str = "earliest"
    """`earliest`, `latest`, or a time such as 2026-01-31T12:00:00Z."""
    format: Format = Format()
    bad_records: BadRecords = BadRecords.FAIL
    dead_letter_topic: str | None = None
    watermark: Watermark | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of `format("tidelog")`, such as maxOffsetsPerTrigger."""

    def reads(self, topic: str) -> bool:
        """A pattern may match any part of the name."""
        return topic in self.topics if self.pattern is None else re.search(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files read once as a table to join with; with `is_stream`, new files are followed."""

    name: str
    path: str
    format: Format
    is_stream: bool = False
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True)
class JdbcSource:
    """A table or query of a database, to join with: Spark reads it for every micro-batch. With `is_once`, its rows
    are a stream that ends after one micro-batch."""

    name: str
    url: str
    table: str | None = None
    query: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    jars: tuple[str, ...] = ()
    """Files with the driver of the database."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of Spark's JDBC reader, such as fetchsize."""
    is_once: bool = False
    watermark: None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition that every row should meet. A condition that is null is not met."""

    name: str
    condition: str
    on_violation: OnViolation = OnViolation.WARN


@dataclass(frozen=True, slots=True)
class Quality:
    """Expectations of a step or sink, and the topic for rows that do not meet them."""

    expectations: tuple[Expectation, ...] = ()
    dead_letter_topic: str | None = None
    dead_letter_bootstrap: str | None = None

    def has_dead_letters(self) -> bool:
        return any(expectation.on_violation is OnViolation.DEAD_LETTER for expectation in self.expectations)


@dataclass(frozen=True, slots=True)
class SqlStep:
    view: str
    sql: str
    quality: Quality = Quality()


@dataclass(frozen=True, slots=True)
class PythonStep:
    """`function` is `module:name`, DataFrame -> DataFrame; modules beside the pipeline file take precedence."""

    view: str
    of: str
    function: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    quality: Quality = Quality()


@dataclass(frozen=True, slots=True)
class WindowStep:
    """Rows: `window_start`, `window_end`, the columns of `group`, and those of `aggregates` (name -> expression)."""

    view: str
    of: str
    column: str
    size: str
    slide: str | None
    group: tuple[str, ...]
    aggregates: Mapping[str, str]
    quality: Quality = Quality()


@dataclass(frozen=True, slots=True)
class DeduplicateStep:
    """Keeps the first row for each value of `columns`, within the delay of the watermark."""

    view: str
    of: str
    columns: tuple[str, ...]
    quality: Quality = Quality()


Step: TypeAlias = SqlStep | PythonStep | WindowStep | DeduplicateStep


@dataclass(frozen=True, slots=True)
class TopicSink:
    name: str
    of: str
    bootstrap: str
    topic: str
    format: Format = Format(FormatKind.JSON)
    key: str | None = None
    """An expression for the key, as text, or as bytes if it is binary."""
    output_mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of `format("tidelog")`, such as kafka.compression.type."""
    quality: Quality = Quality()
    query: str | None = None
    """Name of the query that it shares with other sinks; None: it has its own."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition column of the table, computed if it has an expression: `day = date(at)`."""

    name: str
    expression: str | None = None


@dataclass(frozen=True, slots=True)
class Compaction:
    """Small files of a table partition are merged once there are `files` of them."""

    files: int = 32
    target_bytes: int = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Upsert:
    """Rows are changes of the table's rows by key, instead of new rows."""

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...] = ()
    """Columns that order the changes of a key; empty: the order of arrival."""
    delete_when: str | None = None
    """A condition; None: the column `_deleted`, if the rows have it."""
    has_history: bool = False
    """Every version of a row is kept, with `valid_from` and `valid_to`."""
    omit: tuple[str, ...] = ()
    """Columns that are not written."""


@dataclass(frozen=True, slots=True)
class TableSink:
    name: str
    of: str
    kind: TableKind
    location: str
    """A directory; for Iceberg the table's identifier in its catalog, `namespace.table`."""
    partition_by: tuple[PartitionField, ...] = ()
    schema_changes: SchemaChanges = SchemaChanges.FAIL
    dead_letter_topic: str | None = None
    dead_letter_bootstrap: str | None = None
    compaction: Compaction | None = Compaction()
    catalog: Mapping[str, str] = field(default_factory=dict)
    """Iceberg: catalog properties with pyiceberg's names; empty: a SQLite catalog beside the checkpoint."""
    quality: Quality = Quality()
    upsert: Upsert | None = None
    """None: rows are appended."""
    query: str | None = None
    """Name of the query that it shares with other sinks; None: it has its own."""


Source: TypeAlias = TopicSource | FileSource | JdbcSource
Sink: TypeAlias = TopicSink | TableSink


def query_of(sink: Sink) -> str:
    """Name of the streaming query that writes the sink, and of its directory in the checkpoint."""
    return sink.query or sink.name


def output_mode_of(sink: Sink) -> str:
    """Totals that change are upserts; for other rows the mode makes no difference."""
    if isinstance(sink, TopicSink):
        return sink.output_mode
    return "append" if sink.upsert is None else "update"


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    file: Path
    """Relative paths in the file start at its directory; they are absolute here."""
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    checkpoint: str | None = None
    """None: in the state directory of the pipeline."""
    trigger_ms: int = 0
    """Interval between micro-batches; 0: the next one starts when the last has ended."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Spark session."""

    @property
    def directory(self) -> Path:
        return self.file.parent


@dataclass(frozen=True, slots=True)
class ModulePipeline:
    """A Python module whose `build(spark)` returns a DataStreamWriter, or several by name, which the runner starts."""

    name: str
    file: Path
    checkpoint: str | None = None
    trigger_ms: int = 0
    spark: Mapping[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return self.file.parent


AnyPipeline: TypeAlias = Pipeline | ModulePipeline

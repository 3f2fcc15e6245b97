"""Parser for the tables [sinks.NAME] of a pipeline file."""

import re

from tidelog.pipelines.definition.durations import size_bytes
from tidelog.pipelines.definition.mistakes import listed, nearest
from tidelog.pipelines.definition.model import (
    Compaction,
    PartitionField,
    SchemaChanges,
    Sink,
    TableKind,
    TableMode,
    TableSink,
    TopicSink,
    Upsert,
)
from tidelog.pipelines.definition.parse_formats import (
    FORMAT_KEYS,
    PipelineContext,
    is_local,
    read_bootstrap,
    read_format_of_topic_sink,
    read_topic,
    resolve_location,
)
from tidelog.pipelines.definition.parse_quality import read_quality
from tidelog.pipelines.definition.parse_steps import NO_DEAD_LETTERS
from tidelog.pipelines.definition.toml_fields import Fields

TARGETS = ("topic", *TableKind)
TOPIC_ONLY = (*FORMAT_KEYS, "key", "output_mode", "options")
UPSERT_ONLY = ("keys", "sequence_by", "delete_when", "history", "omit")
TABLE_ONLY = ("partition_by", "schema_changes", "compact", "catalog", "mode", *UPSERT_ONLY)
OUTPUT_MODES = ("append", "update", "complete")
_PARTITION = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?:=\s*(?P<expression>[^\s=].*?)\s*)?", re.DOTALL)


def read_sink(name: str, fields: Fields, context: PipelineContext) -> Sink:
    of = fields.required("from", "'orders'")
    target = fields.choose(TARGETS)
    if target in (None, "topic"):
        return _topic_sink(name, of, fields, context)
    return _table_sink(name, of, TableKind(target), fields, context)


def _topic_sink(name: str, of: str, fields: Fields, context: PipelineContext) -> TopicSink:
    fields.kind = "a sink to a topic"
    bootstrap = read_bootstrap(fields, context.bootstrap)
    dead_letters = read_topic(fields, "dead_letters")
    quality = read_quality(fields, dead_letters, bootstrap)
    if dead_letters and not quality.has_dead_letters():
        fields.report("dead_letters", NO_DEAD_LETTERS)
    sink = TopicSink(
        name=name,
        of=of,
        bootstrap=bootstrap,
        topic=read_topic(fields, "topic") or "",
        format=read_format_of_topic_sink(fields, context),
        key=fields.text("key"),
        output_mode=_output_mode(fields),
        options=fields.settings("options"),
        quality=quality,
        query=fields.text("query"),
    )
    fields.finish((*TABLE_ONLY, "schema"))
    return sink


def _output_mode(fields: Fields) -> str:
    mode = fields.text("output_mode")
    if mode is not None and mode not in OUTPUT_MODES:
        fields.report("output_mode", f"expected {listed(OUTPUT_MODES)}, found '{mode}'{nearest(mode, OUTPUT_MODES)}")
    return mode or OUTPUT_MODES[0]


def _table_sink(name: str, of: str, kind: TableKind, fields: Fields, context: PipelineContext) -> TableSink:
    fields.kind = f"a sink to {'an' if kind is TableKind.ICEBERG else 'a'} {kind.capitalize()} table"
    dead_letters = read_topic(fields, "dead_letters")
    bootstrap = read_bootstrap(fields, context.bootstrap) if dead_letters else context.bootstrap
    quality = read_quality(fields, dead_letters, bootstrap)
    changes = _schema_changes(fields, is_dead_letter_used=quality.has_dead_letters())
    sink = TableSink(
        name=name,
        of=of,
        kind=kind,
        location=_location(kind, fields, context),
        partition_by=_partition_by(fields),
        schema_changes=changes,
        dead_letter_topic=dead_letters,
        dead_letter_bootstrap=bootstrap if dead_letters else None,
        compaction=_compaction(fields),
        catalog=fields.settings("catalog") if kind is TableKind.ICEBERG else {},
        quality=quality,
        upsert=_upsert(kind, fields),
        query=fields.text("query"),
    )
    if sink.upsert is not None and changes is SchemaChanges.DEAD_LETTER:
        fields.report("schema_changes", "mode = 'upsert' has no dead letters of the table; use expectations")
    fields.finish((*TOPIC_ONLY, "catalog", "bootstrap"))
    return sink


def _upsert(kind: TableKind, fields: Fields) -> Upsert | None:
    mode = fields.choice("mode", TableMode, TableMode.APPEND)
    keys = fields.texts("keys")
    upsert = Upsert(
        keys=keys,
        sequence_by=fields.texts("sequence_by"),
        delete_when=fields.text("delete_when"),
        has_history=fields.flag("history") or False,
        omit=fields.texts("omit"),
    )
    if mode is TableMode.APPEND:
        for key in fields.given(UPSERT_ONLY)[:1]:
            fields.report(key, f"{key} needs mode = 'upsert'")
        return None
    if kind is TableKind.PARQUET:
        fields.report("mode", "mode = 'upsert' needs a Delta or Iceberg table")
    if not fields.has("keys"):
        fields.report("mode", "mode = 'upsert' needs the columns of the key: keys = ['id']")
    if upsert.has_history and len(upsert.sequence_by) != 1:
        fields.report("history", "history = true needs one column that orders the changes: sequence_by = 'at'")
    for name in upsert.omit:
        if name in (*keys, *upsert.sequence_by):
            fields.report("omit", f"'{name}' is needed to find and order the rows; it cannot be left out")
    return upsert


def _location(kind: TableKind, fields: Fields, context: PipelineContext) -> str:
    text = fields.text(kind) or ""
    if kind is TableKind.PARQUET and not is_local(text) and not text.startswith("file://"):
        sentence = "a Parquet table must be a local directory; use delta for an object store"
        fields.report(kind, sentence)
    if kind is not TableKind.ICEBERG:
        return resolve_location(text, context.directory) if text else ""
    if text and not re.fullmatch(r"\w+(\.\w+)+", text):
        fields.report(kind, f"expected NAMESPACE.TABLE such as 'shop.orders', found '{text}'")
    return text


def _schema_changes(fields: Fields, *, is_dead_letter_used: bool) -> SchemaChanges:
    changes = fields.choice("schema_changes", SchemaChanges, SchemaChanges.FAIL)
    if changes is SchemaChanges.DEAD_LETTER and not fields.has("dead_letters"):
        fields.report("schema_changes", "schema_changes = 'dead_letter' needs a topic: dead_letters = 'orders.dead'")
    if fields.has("dead_letters") and changes is not SchemaChanges.DEAD_LETTER and not is_dead_letter_used:
        fields.report(
            "dead_letters",
            "dead_letters of a table needs schema_changes = 'dead_letter', or an expectation with on_violation ="
            " 'dead_letter'",
        )
    return changes


def _partition_by(fields: Fields) -> tuple[PartitionField, ...]:
    parts: list[PartitionField] = []
    for text in fields.texts("partition_by"):
        match = _PARTITION.fullmatch(text)
        if match is not None and match["name"].lower() in [part.name.lower() for part in parts]:
            fields.report("partition_by", f"partition column '{match['name']}' is given twice; remove one")
        elif match is None:
            fields.report(
                "partition_by", f"expected a column or 'NAME = EXPRESSION', such as 'day = date(at)', found '{text}'"
            )
        else:
            parts.append(PartitionField(match["name"], match["expression"]))
    return tuple(parts)


def _compaction(fields: Fields) -> Compaction | None:
    value = fields.anything("compact")
    if value is None or value is True:
        return Compaction()
    if value is False:
        return None
    table = fields.table("compact", "compact")
    if table is None:
        return None
    files = table.number("files")
    target_bytes = table.quantity("target", size_bytes)
    table.finish()
    default = Compaction()
    return Compaction(files or default.files, target_bytes or default.target_bytes)

"""Parser for the tables [sources.NAME] of a pipeline file."""

import re
from datetime import UTC, date, datetime

from tidelog.pipelines.definition.durations import interval
from tidelog.pipelines.definition.mistakes import nearest
from tidelog.pipelines.definition.model import BadRecords, FileSource, JdbcSource, Source, TopicSource, Watermark
from tidelog.pipelines.definition.parse_formats import (
    FORMAT_KEYS,
    PipelineContext,
    read_bootstrap,
    read_format_of_files,
    read_format_of_topic,
    read_topic,
    reject_illegal_topics,
    resolve_location,
)
from tidelog.pipelines.definition.toml_fields import Fields

ORIGINS = ("topic", "topics", "pattern", "files", "jdbc")
NULL_KEYS = ("null_values", "key_schema")
TOPIC_ONLY = (
    "topics",
    "pattern",
    "bootstrap",
    "starting",
    "bad_records",
    "dead_letters",
    "options",
    *NULL_KEYS,
    *FORMAT_KEYS,
)
FILE_ONLY = ("stream",)
JDBC_ONLY = ("table", "query", "user", "password", "jar", "once")
FIELDS_OF_JDBC_OPTIONS = {"url": "jdbc", "dbtable": "table", "query": "query", "user": "user", "password": "password"}
"""Options of Spark's reader that a field sets."""
STARTS = ("earliest", "latest")


def read_source(name: str, fields: Fields, context: PipelineContext) -> Source:
    origin = fields.choose(ORIGINS)
    if origin == "files":
        return _file_source(name, fields, context)
    if origin == "jdbc":
        return _jdbc_source(name, fields, context)
    return _topic_source(name, fields, context)


def _topic_source(name: str, fields: Fields, context: PipelineContext) -> TopicSource:
    fields.kind = "a source of topics"
    topic = read_topic(fields, "topic")
    topics = fields.texts("topics")
    reject_illegal_topics(fields, "topics", topics)
    format_ = read_format_of_topic(fields, context)
    dead_letters, bad_records = _bad_records(fields)
    source = TopicSource(
        name=name,
        bootstrap=read_bootstrap(fields, context.bootstrap),
        topics=(topic,) if topic else topics,
        pattern=_pattern(fields),
        starting=_starting(fields),
        format=format_,
        bad_records=bad_records,
        dead_letter_topic=dead_letters,
        watermark=_watermark(fields),
        options=fields.settings("options"),
    )
    fields.finish((*FILE_ONLY, *JDBC_ONLY))
    return source


def _file_source(name: str, fields: Fields, context: PipelineContext) -> FileSource:
    fields.kind = "a source of files"
    path = resolve_location(fields.text("files") or "", context.directory)
    is_stream = fields.flag("stream") or False
    source = FileSource(
        name=name,
        path=path,
        format=read_format_of_files(fields, context, path, is_stream=is_stream),
        is_stream=is_stream,
        watermark=_watermark(fields),
    )
    fields.finish((*TOPIC_ONLY, *JDBC_ONLY))
    return source


def _jdbc_source(name: str, fields: Fields, context: PipelineContext) -> JdbcSource:
    fields.kind = "a source of a database"
    url = fields.text("jdbc") or ""
    if url and not url.startswith("jdbc:"):
        fields.report("jdbc", f"expected a URL such as 'jdbc:postgresql://localhost/shop', found '{url}'")
    fields.choose(("table", "query"))
    options = fields.settings("options")
    for option in options:
        if option.lower() in FIELDS_OF_JDBC_OPTIONS:
            fields.report("options", f"{option} is set by {FIELDS_OF_JDBC_OPTIONS[option.lower()]}; remove it")
    source = JdbcSource(
        name=name,
        url=url,
        table=fields.text("table"),
        query=fields.text("query"),
        user=fields.text("user"),
        password=fields.text("password"),
        jars=tuple(resolve_location(jar, context.directory) for jar in fields.texts("jar")),
        options=options,
        is_once=fields.flag("once") or False,
    )
    fields.finish((*TOPIC_ONLY, *FILE_ONLY, "watermark"))
    return source


def _pattern(fields: Fields) -> str | None:
    text = fields.text("pattern")
    try:
        re.compile(text or "")
    except re.error as error:
        fields.report("pattern", f"'{text}' is not a valid regular expression: {error}")
        return None
    return text


def _starting(fields: Fields) -> str:
    """The time may be a string or a TOML time; without a time zone it is UTC."""
    value = fields.anything("starting")
    if value is None:
        return STARTS[0]
    if isinstance(value, str):
        if value in STARTS:
            return value
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            fields.report("starting", _not_a_start(str(value)))
            return STARTS[0]
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        fields.report("starting", _not_a_start(str(value)))
        return STARTS[0]
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat().replace("+00:00", "Z")


def _not_a_start(text: str) -> str:
    return f"expected earliest, latest or a time such as 2026-01-31T12:00:00Z, found '{text}'{nearest(text, STARTS)}"


def _bad_records(fields: Fields) -> tuple[str | None, BadRecords]:
    topic = read_topic(fields, "dead_letters")
    chosen = fields.choice("bad_records", BadRecords, BadRecords.DEAD_LETTER if topic else BadRecords.FAIL)
    if topic and chosen is not BadRecords.DEAD_LETTER:
        fields.report(
            "bad_records", f"bad_records = '{chosen}' and dead_letters exclude each other; keep only one of them"
        )
    if chosen is BadRecords.DEAD_LETTER and not fields.has("dead_letters"):
        fields.report("bad_records", "bad_records = 'dead_letter' needs a topic: dead_letters = 'orders.dead'")
    return topic, chosen


def _watermark(fields: Fields) -> Watermark | None:
    table = fields.table("watermark", "a watermark")
    if table is None:
        return None
    column = table.required("column", "'at'")
    table.required("delay", "'10 minutes'")
    delay = table.quantity("delay", interval) or ""
    table.finish()
    return Watermark(column, delay)

"""Parser for the format of a source or a sink."""

import contextlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from tidelog.client.network.bootstrap import BadBootstrap, parse_bootstrap
from tidelog.pipelines.definition.columns import RESERVED_COLUMNS
from tidelog.pipelines.definition.ddl import BadSchema, read_schema
from tidelog.pipelines.definition.mistakes import listed, nearest
from tidelog.pipelines.definition.model import SCHEMA_ID_OPTION, Format, FormatKind, NullValues, Registry
from tidelog.pipelines.definition.toml_fields import Fields

SINK_FORMATS = (FormatKind.RAW, FormatKind.JSON, FormatKind.AVRO, FormatKind.PROTOBUF, FormatKind.CSV)
TOPIC_FORMATS = (*SINK_FORMATS, FormatKind.DEBEZIUM)
FILE_FORMATS = (FormatKind.CSV, FormatKind.JSON, FormatKind.PARQUET)
FORMAT_KEYS = (
    "format",
    "schema",
    "schema_file",
    "message",
    "confluent_prefix",
    "format_options",
    "registry",
    "subject",
)
WITH_REGISTRY = (FormatKind.AVRO, FormatKind.PROTOBUF, FormatKind.JSON, FormatKind.DEBEZIUM)
WITH_SCHEMA_FILE = (FormatKind.AVRO, FormatKind.PROTOBUF)
KINDS_WITH = {
    "schema": tuple(kind for kind in FormatKind if kind is not FormatKind.RAW),
    "schema_file": (*WITH_SCHEMA_FILE, FormatKind.JSON, FormatKind.DEBEZIUM),
    "message": (FormatKind.PROTOBUF,),
    "confluent_prefix": (*WITH_SCHEMA_FILE, FormatKind.DEBEZIUM),
}
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ADDRESS_OF_STORE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
EXAMPLE_SCHEMA = "'id bigint, name string'"


@dataclass(frozen=True, slots=True)
class PipelineContext:
    """Defaults that a part of a pipeline takes from the pipeline."""

    directory: Path
    bootstrap: str


def resolve_location(text: str, directory: Path) -> str:
    """Relative paths start at the pipeline file; URLs (s3://...) are unchanged."""
    if _ADDRESS_OF_STORE.match(text):
        return text
    return os.path.normpath(directory / os.path.expanduser(text))


def is_local(location: str) -> bool:
    return not _ADDRESS_OF_STORE.match(location)


def read_bootstrap(fields: Fields, default: str) -> str:
    text = fields.text("bootstrap")
    try:
        if text and "${" not in text:  # an unset variable is already reported
            parse_bootstrap(text)
    except BadBootstrap as error:
        fields.report("bootstrap", str(error))
    return text or default


def read_topic(fields: Fields, key: str) -> str | None:
    name = fields.text(key)
    reject_illegal_topics(fields, key, (name,) if name else ())
    return name


def is_legal_topic(name: str) -> bool:
    return TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def reject_illegal_topics(fields: Fields, key: str, names: tuple[str, ...]) -> None:
    for name in names:
        if not is_legal_topic(name):
            fields.report(key, f"'{name}' is not a valid topic name: use letters, digits, '.', '_' and '-'")


def read_format_of_topic(fields: Fields, context: PipelineContext) -> Format:
    format_ = _read(fields, context, FormatKind.RAW, TOPIC_FORMATS)
    if format_.kind in (FormatKind.JSON, FormatKind.CSV) and not fields.given(("schema", "registry")):
        fields.report(None, f"format = '{format_.kind}' needs a schema: schema = {EXAMPLE_SCHEMA}")
    if format_.kind is FormatKind.DEBEZIUM and not fields.given(("schema", "schema_file", "registry")):
        fields.report(
            None, f"format = 'debezium' needs the columns of the rows, schema = {EXAMPLE_SCHEMA}, or Avro's schema_file"
        )
    _reject_position_columns(fields, format_)
    return _with_schema_file(fields, _with_null_values(fields, format_))


def _with_null_values(fields: Fields, format_: Format) -> Format:
    default = NullValues.SKIP if format_.kind is FormatKind.DEBEZIUM else NullValues.BAD
    key_schema = _schema(fields, "key_schema")
    if key_schema is not None:
        default = NullValues.DELETE
    null_values = fields.choice("null_values", NullValues, default)
    if key_schema is not None and null_values is not NullValues.DELETE:
        fields.report("key_schema", "key_schema is for records without a value: null_values = 'delete'")
    if format_.kind is FormatKind.RAW and fields.given(("null_values", "key_schema")):
        fields.report("null_values", "format = 'raw' has no null_values: its rows have the value as it is")
    return replace(format_, null_values=null_values, key_schema=key_schema)


def _reject_position_columns(fields: Fields, format_: Format) -> None:
    with contextlib.suppress(BadSchema):  # already reported
        columns = read_schema(format_.schema) if format_.schema else ()
        for taken in [column.name for column in columns if column.name in RESERVED_COLUMNS][:1]:
            fields.report(
                "schema", f"a column cannot be named {taken}: the name is reserved for the position of the record"
            )


def read_format_of_files(fields: Fields, context: PipelineContext, path: str, *, is_stream: bool) -> Format:
    guessed = next((kind for kind in FILE_FORMATS if path.endswith(f".{kind}")), None)
    if guessed is None and not fields.has("format"):
        fields.report(None, f"the file names have no known extension; add format = {_choices(FILE_FORMATS)}")
    format_ = _read(fields, context, guessed or FormatKind.PARQUET, FILE_FORMATS)
    for key in fields.given(("registry", "schema_file"))[:1]:
        fields.report(key, f"{key} does not apply to files")
    if is_stream and not fields.has("schema"):
        fields.report(None, f"files with stream = true need a schema: schema = {EXAMPLE_SCHEMA}")
    return format_


def read_format_of_topic_sink(fields: Fields, context: PipelineContext) -> Format:
    """No schema is needed: the sink writes the columns of its view."""
    format_ = _read(fields, context, FormatKind.JSON, SINK_FORMATS, has_schema=False)
    _check_schema_id(fields, format_)
    return _with_schema_file(fields, format_)


def _check_schema_id(fields: Fields, format_: Format) -> None:
    if format_.kind not in WITH_SCHEMA_FILE:
        return
    schema_id = format_.options.get(SCHEMA_ID_OPTION)
    if format_.registry is not None:
        if schema_id is not None:
            fields.report("format_options", f"the registry gives the id of the schema; remove {SCHEMA_ID_OPTION}")
        return
    if schema_id is None and format_.confluent_prefix:
        fields.report(
            "confluent_prefix", f"the prefix needs a schema id: format_options = {{ {SCHEMA_ID_OPTION} = 1 }}"
        )
    if schema_id is not None and not schema_id.isdecimal():
        fields.report(
            "format_options", f"{SCHEMA_ID_OPTION} must be the id of the schema in the registry, not '{schema_id}'"
        )
    if schema_id is not None and format_.confluent_prefix is False:
        fields.report("confluent_prefix", f"{SCHEMA_ID_OPTION} needs confluent_prefix = true; remove one of them")


def _read(
    fields: Fields,
    context: PipelineContext,
    default: FormatKind,
    among: tuple[FormatKind, ...],
    *,
    has_schema: bool = True,
) -> Format:
    kind = fields.choice("format", FormatKind, default, among)
    for key, kinds in KINDS_WITH.items():
        if key == "schema" and not has_schema:
            continue
        if fields.has(key) and kind not in kinds and _is_clear(fields):
            possible = [str(each) for each in among if each in kinds]
            remedy = f"it belongs to {listed(possible)}" if possible else "it does not apply to files"
            fields.report(key, f"format = '{kind}' has no '{key}'; {remedy}")
    schema_file = fields.text("schema_file")
    registry = _registry(fields, context)
    if registry is not None and kind not in WITH_REGISTRY and _is_clear(fields):
        fields.report("registry", f"format = '{kind}' has no registry; it belongs to {listed(map(str, WITH_REGISTRY))}")
    return Format(
        kind=kind,
        schema=_schema(fields) if has_schema else None,
        schema_file=Path(resolve_location(schema_file, context.directory)) if schema_file else None,
        message=fields.text("message"),
        confluent_prefix=fields.flag("confluent_prefix"),
        options=_options(fields, kind, is_sink=not has_schema),
        registry=registry,
        subject=_subject(fields, registry),
    )


def _registry(fields: Fields, context: PipelineContext) -> Registry | None:
    """A URL, or a table with more."""
    if not isinstance(fields.anything("registry"), dict):
        url = fields.text("registry")
        found = Registry(url) if url else None
    else:
        table = fields.table("registry", "a registry")
        assert table is not None
        files = {key: table.text(key) for key in ("ca", "certificate", "key", "copy")}
        paths = {key: resolve_location(file, context.directory) if file else None for key, file in files.items()}
        found = Registry(
            url=table.required("url", "'https://localhost:8081'"),
            user=table.text("user"),
            password=table.text("password"),
            ca_file=paths["ca"],
            certificate_file=paths["certificate"],
            key_file=paths["key"],
            copy=paths["copy"],
        )
        if found.key_file is not None and found.certificate_file is None:
            fields.report("registry", "key needs the certificate that it belongs to: certificate = 'me.pem'")
        table.finish()
    if found is not None and found.url and not re.match(r"https?://", found.url):
        fields.report("registry", f"expected a URL such as 'http://localhost:8081', found '{found.url}'")
    return found


def _subject(fields: Fields, registry: Registry | None) -> str | None:
    """By default that of Confluent's clients, which is named after the topic."""
    subject = fields.text("subject")
    if registry is None:
        if subject is not None:
            fields.report("subject", "subject needs a registry: registry = 'http://localhost:8081'")
        return None
    topic = fields.anything("topic")
    if subject is None and not isinstance(topic, str):
        fields.report(
            "registry", "a registry for several topics needs the name of the schema: subject = 'orders-value'"
        )
    return subject or f"{topic}-value"


def _options(fields: Fields, kind: FormatKind, *, is_sink: bool) -> dict[str, str]:
    """Options of Spark's own formats are not checked here."""
    options = fields.settings("format_options")
    if kind in (FormatKind.RAW, *WITH_SCHEMA_FILE) and _is_clear(fields):
        known = [SCHEMA_ID_OPTION] if is_sink and kind in WITH_SCHEMA_FILE else []
        for name in options:
            if name not in known:
                side = "writing" if is_sink else "reading"
                fields.report(
                    "format_options", f"format = '{kind}' has no option '{name}' for {side}{nearest(name, known)}"
                )
    return options


def _is_clear(fields: Fields) -> bool:
    """False if the format is unknown, which is already reported."""
    return fields.anything("format") in (None, *FormatKind)


def _schema(fields: Fields, key: str = "schema") -> str | None:
    text = fields.text(key)
    try:
        if text:
            read_schema(text)
    except BadSchema as error:
        fields.report(key, str(error), newlines=error.newlines)
    return text


def _with_schema_file(fields: Fields, format_: Format) -> Format:
    if format_.registry is not None:
        return format_
    if format_.kind is FormatKind.JSON and fields.has("schema_file"):
        fields.report("schema_file", "schema_file of JSON needs a registry: registry = 'http://localhost:8081'")
    if format_.kind in WITH_SCHEMA_FILE and not fields.has("schema_file"):
        example = "'order.avsc'" if format_.kind is FormatKind.AVRO else "'order.desc' (of protoc --descriptor_set_out)"
        fields.report(None, f"format = '{format_.kind}' needs a schema file: schema_file = {example}")
    if format_.kind is FormatKind.PROTOBUF and not fields.has("message"):
        fields.report(None, "format = 'protobuf' needs the message type: message = 'shop.Order'")
    return format_


def _choices(kinds: tuple[FormatKind, ...]) -> str:
    return listed([f"'{kind}'" for kind in kinds])

"""Table sinks from options, as programs of Spark give them: the keys of a sink in a pipeline file."""

import os
from collections.abc import Mapping
from pathlib import Path

from tidelog.pipelines.definition.model import TableKind, TableSink
from tidelog.pipelines.definition.parse_formats import PipelineContext, is_local
from tidelog.pipelines.definition.parse_sinks import read_sink
from tidelog.pipelines.definition.toml_fields import Diagnostics, Fields
from tidelog.pipelines.definition.toml_lines import Lines
from tidelog.spark.options.values import OptionError

NAME = "name"
LISTS = ("keys", "sequence_by", "partition_by", "omit")
FLAGS = ("history", "compact")
CATALOG = "catalog."
SQLITE = "sqlite:///"
NO_BROKERS = "localhost:29092"
OF_OTHERS = ("checkpointlocation", "queryname", "path")
"""Options that Spark passes on to a sink."""


def sink_of_options(options: Mapping[str, object]) -> TableSink:
    """Raises OptionError with all mistakes. Relative paths start at the current directory."""
    diagnostics = Diagnostics(Lines(""))
    fields = Fields(
        {"from": "rows", **{key: value for key, value in options.items() if key != NAME}},
        (),
        diagnostics,
        "a table",
    )
    sink = read_sink(str(options.get(NAME) or "table"), fields, PipelineContext(Path(os.getcwd()), NO_BROKERS))
    if diagnostics.has_mistakes():
        found = [f"{mistake.where}: {mistake.sentence}".removeprefix(": ") for mistake in diagnostics.in_order()]
        raise OptionError("; ".join(found))
    if not isinstance(sink, TableSink):
        raise OptionError(f"A table needs one of {', '.join(TableKind)}; for a topic use format('tidelog')")
    if sink.kind is TableKind.ICEBERG and not sink.catalog:
        raise OptionError("An Iceberg table needs its catalog, such as catalog.type = 'sql' and catalog.uri")
    return sink


def relative_path(options: Mapping[str, object]) -> str | None:
    """The first setting with a path that starts at the directory of a process."""
    catalog = options.get("catalog", {})
    assert isinstance(catalog, Mapping)
    paths = {str(kind): options.get(kind) for kind in (TableKind.DELTA, TableKind.PARQUET)}
    paths |= {f"{CATALOG}{key}": catalog.get(key) for key in ("uri", "warehouse")}
    return next((f"{name} = '{path}'" for name, path in paths.items() if path and _is_relative(str(path))), None)


def _is_relative(path: str) -> bool:
    path = os.path.expanduser(path.removeprefix(SQLITE))
    return is_local(path) and not path.startswith("/")


def from_texts(options: Mapping[str, str]) -> dict[str, object]:
    """Options of a data source, which are texts: lists are separated by commas."""
    values: dict[str, object] = {}
    catalog: dict[str, str] = {}
    for name, text in options.items():
        if name.startswith(CATALOG):
            catalog[name.removeprefix(CATALOG)] = text
        elif name in LISTS:
            values[name] = [part.strip() for part in text.split(",")]
        elif name in FLAGS:
            values[name] = {"true": True, "false": False}.get(text.lower(), text)
        elif name not in OF_OTHERS:
            values[name] = text
    return {**values, "catalog": catalog} if catalog else values

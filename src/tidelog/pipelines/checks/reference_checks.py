"""Reference checks between the parts of a pipeline: views, cycles, watermarks, columns."""

# Core: no clock, no I/O, no await.

import re
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from tidelog.pipelines.checks.sql_names import views_read_by
from tidelog.pipelines.definition.columns import columns_of_source, columns_of_step, type_in_schema
from tidelog.pipelines.definition.mistakes import listed, nearest
from tidelog.pipelines.definition.model import (
    DeduplicateStep,
    FileSource,
    JdbcSource,
    Pipeline,
    PythonStep,
    Sink,
    Source,
    SqlStep,
    Step,
    TableSink,
    TopicSink,
    TopicSource,
    WindowStep,
    output_mode_of,
)
from tidelog.pipelines.definition.toml_fields import Diagnostics
from tidelog.pipelines.definition.toml_lines import KeyPath

QUERY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""Without dots: queries of dead letters have them."""
TIME_TYPES = ("timestamp", "timestamp_ltz", "timestamp_ntz")
SQL_WORDS = frozenset(
    {"null", "true", "false", "user", "current_user", "session_user", "current_date", "current_time"}
    | {"current_timestamp", "localtimestamp", "current_catalog", "current_database", "current_schema"}
)
"""Names that are SQL expressions themselves."""


def reads(step: Step) -> list[str]:
    """The views that a step reads."""
    if isinstance(step, SqlStep):
        return [view.name for view in views_read_by(step.sql)]
    return [step.of] if step.of else []


def in_order_of_reading(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps in dependency order; file order where there is no dependency."""
    waiting = list(steps)
    ordered: list[Step] = []
    while waiting:
        unread = {step.view.lower() for step in waiting}
        ready = next(step for step in waiting if not unread & {name.lower() for name in reads(step)})
        ordered.append(ready)
        waiting.remove(ready)
    return tuple(ordered)


def sources_of(pipeline: Pipeline, view: str) -> list[Source]:
    """The sources that a view is computed from, directly or through steps."""
    steps = {step.view.lower(): step for step in pipeline.steps}
    found: set[str] = set()
    waiting = [view.lower()]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [read.lower() for read in reads(steps[name])] if name in steps else []
    return [source for source in pipeline.sources if source.name.lower() in found]


def is_bounded(pipeline: Pipeline, view: str) -> bool:
    """Whether the rows of the view end: its only streams are tables of databases that are read once."""
    streams = [source for source in sources_of(pipeline, view) if _is_stream(source)]
    return bool(streams) and all(isinstance(source, JdbcSource) for source in streams)


def check_references(pipeline: Pipeline, diagnostics: Diagnostics, step_positions: Mapping[str, int]) -> None:
    _References(pipeline, diagnostics, step_positions).check()


class _References:
    """View names are case-insensitive, as in Spark."""

    def __init__(self, pipeline: Pipeline, diagnostics: Diagnostics, step_positions: Mapping[str, int]) -> None:
        self._pipeline = pipeline
        self._diagnostics = diagnostics
        self._positions = step_positions
        self._sources: dict[str, Source] = {source.name.lower(): source for source in pipeline.sources}
        self._steps: dict[str, Step] = {step.view.lower(): step for step in pipeline.steps if step.view}
        self._names = [source.name for source in pipeline.sources] + [step.view for step in pipeline.steps]

    def check(self) -> None:
        self._check_views_exist()
        if self._check_cycles():
            self._check_used()
            self._check_sinks()
            self._check_columns()
            self._check_loops()
        self._check_queries()

    def _path(self, step: Step, *keys: str) -> KeyPath:
        return ("steps", self._positions.get(step.view, 0), *keys)

    def _check_views_exist(self) -> None:
        for step in self._pipeline.steps:
            if isinstance(step, SqlStep):
                self._check_sql(step)
            else:
                self._check_view(step.of, self._path(step, "from"))
        for sink in self._pipeline.sinks:
            self._check_view(sink.of, ("sinks", sink.name, "from"))

    def _check_sql(self, step: SqlStep) -> None:
        found = views_read_by(step.sql)
        path = self._path(step, "sql")
        for view in found:
            self._check_view(view.name, path, self._diagnostics.lines.within(path, view.newlines))
        if step.sql and not found:
            self._diagnostics.report(path, f"the SQL reads no view; add FROM {listed(self._others(step))}")

    def _others(self, step: Step) -> list[str]:
        return [name for name in self._names if name != step.view] or ["a view"]

    def _check_view(self, name: str, path: KeyPath, line: int | None = None) -> None:
        if not name or name.lower() in self._sources or name.lower() in self._steps:
            return
        known = f"; views are {listed(self._names, 'and')}" if self._names else ""
        self._diagnostics.report(path, f"unknown view '{name}'{nearest(name, self._names) or known}", line=line)

    def _check_cycles(self) -> bool:
        graph = {name: {read.lower() for read in reads(step)} for name, step in self._steps.items()}
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            names = [self._steps[name].view for name in reversed(error.args[1])]
            step = self._steps[names[0].lower()]
            self._diagnostics.report(self._path(step), f"these steps form a cycle: {' <- '.join(names)}")
            return False
        return True

    def _above(self, name: str) -> set[str]:
        """The view and all views that it is computed from, in lower case."""
        found: set[str] = set()
        waiting = [name.lower()]
        while waiting:
            view = waiting.pop()
            if view not in found and (view in self._sources or view in self._steps):
                found.add(view)
                waiting += [read.lower() for read in reads(self._steps[view])] if view in self._steps else []
        return found

    def _check_used(self) -> None:
        if not self._pipeline.sinks:
            return
        used = set().union(*(self._above(sink.of) for sink in self._pipeline.sinks))
        wanted = [sink.of for sink in self._pipeline.sinks] + [
            read for step in self._pipeline.steps for read in reads(step)
        ]
        if any(not self._above(view) for view in wanted if view):
            return  # an unknown view may be a misspelled one, so that "unused" could be wrong
        places: list[tuple[KeyPath, str]] = [
            (("sources", source.name), source.name) for source in self._pipeline.sources
        ]
        places += [(self._path(step), step.view) for step in self._pipeline.steps if step.view]
        for path, name in places:
            if name.lower() not in used:
                self._diagnostics.report(path, f"no sink reads '{name}', directly or through steps", is_warning=True)

    def _check_sinks(self) -> None:
        for sink in self._pipeline.sinks:
            above = self._above(sink.of)
            if self._reads_unknown_views(above):
                continue  # the misspelled view may be a stream with a watermark
            self._check_has_stream(sink, above)
            if _is_appending(sink):
                self._check_watermarks(sink, above)

    def _reads_unknown_views(self, views: set[str]) -> bool:
        all_reads = [read.lower() for view in views if view in self._steps for read in reads(self._steps[view])]
        return any(read not in self._sources and read not in self._steps for read in all_reads)

    def _check_has_stream(self, sink: Sink, above: set[str]) -> None:
        sources = [self._sources[name] for name in above if name in self._sources]
        if sources and not any(map(_is_stream, sources)):
            self._diagnostics.report(
                ("sinks", sink.name, "from"),
                f"'{sink.of}' is computed only from files and tables that are read once;"
                " a sink needs a topic among its sources, files with stream = true, or a database with once = true",
            )

    def _check_watermarks(self, sink: Sink, above: set[str]) -> None:
        for step in self._pipeline.steps:
            if isinstance(step, WindowStep) and step.view.lower() in above and not self._may_have_watermark(step):
                sources = [self._sources[name].name for name in sorted(self._above(step.view)) if name in self._sources]
                to = f"source {sources[0]}" if sources else "its source"
                self._diagnostics.report(
                    self._path(step, "window"),
                    f"sink {sink.name} appends a window when it is complete, which needs a watermark;"
                    f" add watermark = {{ column = '{step.column}', delay = '10 minutes' }} to {to}",
                )

    def _may_have_watermark(self, step: WindowStep) -> bool:
        """A Python step may set a watermark itself."""
        above = self._above(step.view)
        if any(isinstance(self._steps.get(name), PythonStep) for name in above):
            return True
        return any(self._sources[name].watermark is not None for name in above if name in self._sources)

    def _check_queries(self) -> None:
        """Sinks that share a query get the same rows in the same way."""
        first: dict[str, Sink] = {}
        names = {sink.name for sink in self._pipeline.sinks if sink.query is None}
        for sink in self._pipeline.sinks:
            if sink.query is None:
                continue
            other = first.setdefault(sink.query, sink)
            if not QUERY_NAME.fullmatch(sink.query) or sink.query in names:
                sentence = "expected letters, digits, '_' and '-', and a name that no sink with its own query has"
                self._report_query(sink, f"{sentence}; found '{sink.query}'")
            elif sink.of.lower() != other.of.lower():
                self._report_query(sink, f"sinks of one query have the same 'from'; {other.name} reads '{other.of}'")
            elif output_mode_of(sink) != output_mode_of(other):
                self._report_query(sink, f"sinks of one query all append rows or all update them; {other.name} differs")
            elif sink.quality.expectations:
                self._report_query(sink, "a sink that shares its query has no expectations of its own; a step can")

    def _report_query(self, sink: Sink, sentence: str) -> None:
        self._diagnostics.report(("sinks", sink.name, "query"), sentence)

    def _check_loops(self) -> None:
        for source in self._pipeline.sources:
            letters = source.dead_letter_topic if isinstance(source, TopicSource) else None
            if letters is not None and isinstance(source, TopicSource) and source.reads(letters):
                sentence = (
                    "is read by this source: dead letters would be read again in an endless loop; choose another topic"
                )
                self._diagnostics.report(("sources", source.name, "dead_letters"), f"'{letters}' {sentence}")
        for sink in self._pipeline.sinks:
            if isinstance(sink, TopicSink) and any(self._feeds(name, sink) for name in self._above(sink.of)):
                sentence = f"the sink writes to topic '{sink.topic}', which one of its sources reads: an endless loop"
                self._diagnostics.report(("sinks", sink.name, "topic"), sentence, is_warning=True)

    def _feeds(self, view: str, sink: TopicSink) -> bool:
        source = self._sources.get(view)
        return isinstance(source, TopicSource) and source.bootstrap == sink.bootstrap and source.reads(sink.topic)

    def _check_columns(self) -> None:
        for source in self._pipeline.sources:
            if source.watermark is not None:
                path = ("sources", source.name, "watermark", "column")
                self._check_column(source.watermark.column, columns_of_source(source), path, source.name)
                self._check_time(source, source.watermark.column, path)
        for step in self._pipeline.steps:
            if isinstance(step, WindowStep | DeduplicateStep):
                self._check_columns_of_step(step, self._columns(step.of, set()))
        for sink in self._pipeline.sinks:
            self._check_columns_of_sink(sink, self._columns(sink.of, set()))

    def _check_columns_of_step(self, step: WindowStep | DeduplicateStep, known: list[str] | None) -> None:
        if isinstance(step, DeduplicateStep):
            for column in step.columns:
                self._check_column(column, known, self._path(step, "deduplicate"), step.of)
            return
        self._check_column(step.column, known, (*self._path(step, "window"), "column"), step.of)
        for column in step.group:
            self._check_column(column, known, self._path(step, "group"), step.of)

    def _check_columns_of_sink(self, sink: Sink, known: list[str] | None) -> None:
        if isinstance(sink, TopicSink):
            if sink.key is not None and sink.key.lower() not in SQL_WORDS:
                self._check_column(sink.key, known, ("sinks", sink.name, "key"), sink.of)
            return
        for key, names in _upsert_columns(sink).items():
            for name in names:
                self._check_column(name, known, ("sinks", sink.name, key), sink.of)
        for part in sink.partition_by:
            if part.expression is None:
                self._check_column(part.name, known, ("sinks", sink.name, "partition_by"), sink.of)

    def _check_time(self, source: Source, column: str, path: KeyPath) -> None:
        found = type_in_schema(source, column)
        if found is not None and found not in TIME_TYPES:
            self._diagnostics.report(path, f"'{column}' is {found}, but a watermark needs a timestamp")

    def _check_column(self, column: str, known: list[str] | None, path: KeyPath, view: str) -> None:
        if known is None or not column.isidentifier() or column.lower() in map(str.lower, known):
            return
        hint = nearest(column, known) or f"; it has {listed(known, 'and')}"
        self._diagnostics.report(path, f"view '{view}' has no column '{column}'{hint}")

    def _columns(self, view: str, seen: set[str]) -> list[str] | None:
        name = view.lower()
        if name in seen:
            return None
        if name in self._sources:
            return columns_of_source(self._sources[name])
        step = self._steps.get(name)
        if isinstance(step, DeduplicateStep):
            return self._columns(step.of, seen | {name})
        return None if step is None else columns_of_step(step)


def _upsert_columns(sink: TableSink) -> dict[str, tuple[str, ...]]:
    """Columns of the view that an upsert names, by field."""
    if sink.upsert is None:
        return {}
    return {"keys": sink.upsert.keys, "sequence_by": sink.upsert.sequence_by, "omit": sink.upsert.omit}


def _is_stream(source: Source) -> bool:
    match source:
        case FileSource():
            return source.is_stream
        case JdbcSource():
            return source.is_once
    return True


def _is_appending(sink: Sink) -> bool:
    return output_mode_of(sink) == "append"

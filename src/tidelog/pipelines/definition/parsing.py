"""Parser for pipeline files: the definition, or all mistakes in the file."""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidelog.pipelines.checks.reference_checks import check_references, in_order_of_reading
from tidelog.pipelines.definition.durations import duration_ms
from tidelog.pipelines.definition.environment import with_environment
from tidelog.pipelines.definition.mistakes import Mistake, Mistakes
from tidelog.pipelines.definition.model import AnyPipeline, Pipeline, Sink, Source, SqlStep, Step
from tidelog.pipelines.definition.parse_formats import PipelineContext, read_bootstrap, resolve_location
from tidelog.pipelines.definition.parse_sinks import read_sink
from tidelog.pipelines.definition.parse_sources import read_source
from tidelog.pipelines.definition.parse_steps import VIEW_NAME, read_step
from tidelog.pipelines.definition.python_modules import load_module
from tidelog.pipelines.definition.toml_fields import Diagnostics, Fields
from tidelog.pipelines.definition.toml_lines import KeyPath, Lines
from tidelog.pipelines.running.pipeline_state import PIPELINE_NAME
from tidelog.runtime.cluster_choice import NoCluster, choose_cluster

_PLACE_IN_MESSAGE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_SINK_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Draft:
    """A parsed file, possibly with mistakes. Broken parts are included as far as others may refer to them."""

    pipeline: Pipeline
    diagnostics: Diagnostics
    step_positions: Mapping[str, int]
    """Position of each view among the [[steps]]."""
    broken: frozenset[tuple[str, str]]
    """Parts with mistakes, as ("sources", "orders")."""


def load_any(path: Path) -> AnyPipeline:
    return load_module(path) if path.suffix == ".py" else load(path)


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Pipeline:
    """Raises Mistakes with all mistakes that can be found in the file alone."""
    draft = read_draft(path, environment)
    check_references(draft.pipeline, draft.diagnostics, draft.step_positions)
    mistakes = [mistake for mistake in draft.diagnostics.in_order() if not mistake.is_warning]
    if mistakes:
        raise Mistakes(path, mistakes)
    return finished(draft)


def finished(draft: Draft) -> Pipeline:
    """A draft without mistakes: steps in dependency order, each view under its declared name."""
    pipeline = draft.pipeline
    declared = [source.name for source in pipeline.sources] + [step.view for step in pipeline.steps]
    names = {name.lower(): name for name in declared}
    steps = [step if isinstance(step, SqlStep) else replace(step, of=names[step.of.lower()]) for step in pipeline.steps]
    sinks = [replace(sink, of=names[sink.of.lower()]) for sink in pipeline.sinks]
    return replace(pipeline, steps=in_order_of_reading(steps), sinks=tuple(sinks))


def read_draft(path: Path, environment: Mapping[str, str] = os.environ) -> Draft:
    """Raises Mistakes if the file cannot be read or is not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise Mistakes(path, [Mistake(None, "", str(error.strerror))]) from None
    except UnicodeDecodeError:
        raise Mistakes(path, [Mistake(None, "", "not valid UTF-8")]) from None
    except tomllib.TOMLDecodeError as error:
        raise Mistakes(path, [_syntax_mistake(str(error), text)]) from None
    return _FileParser(path.absolute(), document, Diagnostics(Lines(text)), environment).draft()


def _syntax_mistake(message: str, text: str) -> Mistake:
    place = _PLACE_IN_MESSAGE.search(message)
    line = int(place[1]) if place and place[1] else text.count("\n") + 1
    return Mistake(line, "", f"not valid TOML: {_PLACE_IN_MESSAGE.sub('', message)}")


class _FileParser:
    """Parser of one file, table by table."""

    def __init__(
        self, file: Path, document: Mapping[str, object], diagnostics: Diagnostics, environment: Mapping[str, str]
    ) -> None:
        self._file = file
        self._diagnostics = diagnostics
        self._environment = environment
        replaced = with_environment(dict(document), environment, diagnostics.report)
        assert isinstance(replaced, dict)
        self._top = Fields(replaced, (), diagnostics, "a pipeline")
        self._broken: set[tuple[str, str]] = set()
        self._no_cluster = ""

    def draft(self) -> Draft:
        head = self._top.table("pipeline", "[pipeline]") or Fields({}, ("pipeline",), self._diagnostics, "[pipeline]")
        context = PipelineContext(self._file.parent, self._bootstrap(head))
        sources = self._sources(context)
        steps, positions = self._steps(sources, context)
        sinks = self._sinks(context)
        self._report_missing_bootstrap(head, [*sources, *sinks])
        checkpoint = head.text("checkpoint")
        pipeline = Pipeline(
            name=self._name(head),
            file=self._file,
            sources=tuple(sources),
            steps=tuple(steps),
            sinks=tuple(sinks),
            checkpoint=resolve_location(checkpoint, self._file.parent) if checkpoint else None,
            trigger_ms=head.quantity("trigger", duration_ms) or 0,
            spark=self._spark(),
        )
        head.finish()
        self._top.finish()
        return Draft(pipeline, self._diagnostics, positions, frozenset(self._broken))

    def _bootstrap(self, head: Fields) -> str:
        """Of topics without an address of their own, by the rule of all commands; empty if nothing names a cluster."""
        if head.has("bootstrap"):
            return read_bootstrap(head, "")
        try:
            return choose_cluster(environment=self._environment, option="bootstrap =").bootstrap
        except NoCluster as reason:
            self._no_cluster = str(reason)
            return ""

    def _report_missing_bootstrap(self, head: Fields, parts: Sequence[Source | Sink]) -> None:
        """Only if a topic needs it."""
        addresses = [getattr(part, name, None) for part in parts for name in ("bootstrap", "dead_letter_bootstrap")]
        if self._no_cluster and "" in addresses:
            head.report("bootstrap", self._no_cluster)

    def _name(self, head: Fields) -> str:
        name = head.text("name") or self._file.stem
        if not PIPELINE_NAME.fullmatch(name):
            head.report("name", f"'{name}' is not a valid pipeline name: use letters, digits, '.', '_' and '-'")
        return name

    def _spark(self) -> dict[str, str]:
        """All names begin with `spark.`, which is optional under the heading [spark]."""
        settings = self._top.settings("spark")
        return {f"spark.{name.removeprefix('spark.')}": value for name, value in settings.items()}

    def _named(self, key: str, kind: str, example: str) -> list[tuple[str, Fields]]:
        tables = self._top.table(key, key)
        if tables is None or not tables.names():
            if not self._top.has(key) or tables is not None:
                self._top.report(key, f"the pipeline has no {kind}; add a table {example}")
            return []
        found = [(name, tables.table(name, f"the {kind} {name}")) for name in tables.names()]
        return [(name, fields) for name, fields in found if fields is not None]

    def _sources(self, context: PipelineContext) -> list[Source]:
        sources = []
        taken: dict[str, KeyPath] = {}
        for name, fields in self._named("sources", "source", "[sources.orders]"):
            before = len(self._diagnostics.mistakes)
            self._check_unique(name, fields, taken, None)
            if not VIEW_NAME.fullmatch(name):
                fields.report(None, f"'{name}' is not a valid view name: use letters, digits and '_'")
            sources.append(read_source(name, fields, context))
            self._mark(("sources", name), before)
        return sources

    def _sinks(self, context: PipelineContext) -> list[Sink]:
        sinks = []
        for name, fields in self._named("sinks", "sink", "[sinks.table]"):
            before = len(self._diagnostics.mistakes)
            if not _SINK_NAME.fullmatch(name):
                fields.report(None, f"'{name}' is not a valid sink name: use letters, digits, '_' and '-'")
            sinks.append(read_sink(name, fields, context))
            self._mark(("sinks", name), before)
        return sinks

    def _steps(self, sources: list[Source], context: PipelineContext) -> tuple[list[Step], dict[str, int]]:
        steps: list[Step] = []
        positions: dict[str, int] = {}
        taken: dict[str, KeyPath] = {source.name.lower(): ("sources", source.name) for source in sources}
        for index, fields in enumerate(self._top.tables("steps", "a step")):
            before = len(self._diagnostics.mistakes)
            step = read_step(fields, context)
            if step is None:
                continue
            if step.view:
                self._check_unique(step.view, fields, taken, "view")
            steps.append(step)
            positions.setdefault(step.view, index)
            self._mark(("steps", step.view), before)
        return steps, positions

    def _check_unique(self, view: str, fields: Fields, taken: dict[str, KeyPath], key: str | None) -> None:
        """Spark's view names are case-insensitive."""
        other = taken.setdefault(view.lower(), fields.path)
        if other != fields.path:
            line = self._diagnostics.lines.of(other)
            fields.report(key, f"view '{view}' already exists (line {line}); choose another name")

    def _mark(self, part: tuple[str, str], mistakes_before: int) -> None:
        if len(self._diagnostics.mistakes) > mistakes_before:
            self._broken.add(part)

"""From a pipeline's file to its definition, or to all the mistakes that are in it."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidelog.pipelines.checks.reference_checks import check_references, in_order_of_reading
from tidelog.pipelines.definition.durations import duration_ms
from tidelog.pipelines.definition.environment import with_environment
from tidelog.pipelines.definition.mistakes import Mistake, Mistakes
from tidelog.pipelines.definition.model import AnyPipeline, Pipeline, Sink, Source, SqlStep, Step
from tidelog.pipelines.definition.parse_formats import Surroundings, located, read_bootstrap
from tidelog.pipelines.definition.parse_sinks import read_sink
from tidelog.pipelines.definition.parse_sources import read_source
from tidelog.pipelines.definition.parse_steps import VIEW_NAME, read_step
from tidelog.pipelines.definition.python_modules import load_module
from tidelog.pipelines.definition.toml_fields import Fields, Notes
from tidelog.pipelines.definition.toml_lines import KeyPath, Lines
from tidelog.pipelines.running.pipeline_state import PIPELINE_NAME

BOOTSTRAP_VARIABLE = "TIDELOG_BOOTSTRAP"
DEFAULT_BOOTSTRAP = "localhost:29092"
_PLACE_IN_MESSAGE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_SINK_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Draft:
    """A file as far as it could be read. Parts with mistakes are there too, as far as they can be referred to."""

    pipeline: Pipeline
    notes: Notes
    step_positions: Mapping[str, int]
    """Where each view stands among the [[steps]]."""
    broken: frozenset[tuple[str, str]]
    """The parts with mistakes: ("sources", "orders")."""


def load_any(path: Path) -> AnyPipeline:
    return load_module(path) if path.suffix == ".py" else load(path)


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Pipeline:
    """Raises Mistakes: all that can be found without looking further than the file."""
    draft = read_draft(path, environment)
    check_references(draft.pipeline, draft.notes, draft.step_positions)
    mistakes = [mistake for mistake in draft.notes.in_order() if not mistake.is_warning]
    if mistakes:
        raise Mistakes(path, mistakes)
    return finished(draft)


def finished(draft: Draft) -> Pipeline:
    """Of a draft without mistakes: steps behind those they read, and each view by the name it was declared with."""
    pipeline = draft.pipeline
    declared = [source.name for source in pipeline.sources] + [step.view for step in pipeline.steps]
    names = {name.lower(): name for name in declared}
    steps = [step if isinstance(step, SqlStep) else replace(step, of=names[step.of.lower()]) for step in pipeline.steps]
    sinks = [replace(sink, of=names[sink.of.lower()]) for sink in pipeline.sinks]
    return replace(pipeline, steps=in_order_of_reading(steps), sinks=tuple(sinks))


def read_draft(path: Path, environment: Mapping[str, str] = os.environ) -> Draft:
    """Raises Mistakes if the file cannot be read at all."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise Mistakes(path, [Mistake(None, "", str(error.strerror))]) from None
    except UnicodeDecodeError:
        raise Mistakes(path, [Mistake(None, "", "this is not text in UTF-8")]) from None
    except tomllib.TOMLDecodeError as error:
        raise Mistakes(path, [_syntax_mistake(str(error), text)]) from None
    return _Reading(path.absolute(), document, Notes(Lines(text)), environment).draft()


def _syntax_mistake(message: str, text: str) -> Mistake:
    place = _PLACE_IN_MESSAGE.search(message)
    line = int(place[1]) if place and place[1] else text.count("\n") + 1
    return Mistake(line, "", f"not TOML: {_PLACE_IN_MESSAGE.sub('', message)}")


class _Reading:
    """One file, table by table."""

    def __init__(
        self, file: Path, document: Mapping[str, object], notes: Notes, environment: Mapping[str, str]
    ) -> None:
        self._file = file
        self._notes = notes
        self._environment = environment
        replaced = with_environment(dict(document), environment, notes.complain)
        assert isinstance(replaced, dict)
        self._top = Fields(replaced, (), notes, "a pipeline")
        self._broken: set[tuple[str, str]] = set()

    def draft(self) -> Draft:
        head = self._top.table("pipeline", "[pipeline]") or Fields({}, ("pipeline",), self._notes, "[pipeline]")
        default = self._environment.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
        surroundings = Surroundings(self._file.parent, read_bootstrap(head, default))
        sources = self._sources(surroundings)
        steps, positions = self._steps(sources)
        checkpoint = head.text("checkpoint")
        pipeline = Pipeline(
            name=self._name(head),
            file=self._file,
            sources=tuple(sources),
            steps=tuple(steps),
            sinks=tuple(self._sinks(surroundings)),
            checkpoint=located(checkpoint, self._file.parent) if checkpoint else None,
            trigger_ms=head.quantity("trigger", duration_ms) or 0,
            spark=self._spark(),
        )
        head.finish()
        self._top.finish()
        return Draft(pipeline, self._notes, positions, frozenset(self._broken))

    def _name(self, head: Fields) -> str:
        name = head.text("name") or self._file.stem
        if not PIPELINE_NAME.fullmatch(name):
            head.complain(
                "name", f"'{name}' cannot be a pipeline's name: letters, digits, '.', '_' and '-' make a name"
            )
        return name

    def _spark(self) -> dict[str, str]:
        """All names begin with `spark.`, which may be left out under the heading [spark]."""
        settings = self._top.settings("spark")
        return {f"spark.{name.removeprefix('spark.')}": value for name, value in settings.items()}

    def _named(self, key: str, kind: str, example: str) -> list[tuple[str, Fields]]:
        tables = self._top.table(key, key)
        if tables is None or not tables.names():
            if not self._top.has(key) or tables is not None:
                self._top.complain(key, f"there is no {kind}; a table {example} declares one")
            return []
        found = [(name, tables.table(name, f"the {kind} {name}")) for name in tables.names()]
        return [(name, fields) for name, fields in found if fields is not None]

    def _sources(self, surroundings: Surroundings) -> list[Source]:
        sources = []
        taken: dict[str, KeyPath] = {}
        for name, fields in self._named("sources", "source", "[sources.orders]"):
            before = len(self._notes.mistakes)
            self._refuse_taken(name, fields, taken, None)
            if not VIEW_NAME.fullmatch(name):
                fields.complain(None, f"'{name}' cannot be a view: SQL names have letters, digits and '_'")
            sources.append(read_source(name, fields, surroundings))
            self._mark(("sources", name), before)
        return sources

    def _sinks(self, surroundings: Surroundings) -> list[Sink]:
        sinks = []
        for name, fields in self._named("sinks", "sink", "[sinks.table]"):
            before = len(self._notes.mistakes)
            if not _SINK_NAME.fullmatch(name):
                fields.complain(None, f"'{name}' cannot be a sink's name: letters, digits, '_' and '-' make a name")
            sinks.append(read_sink(name, fields, surroundings))
            self._mark(("sinks", name), before)
        return sinks

    def _steps(self, sources: list[Source]) -> tuple[list[Step], dict[str, int]]:
        steps: list[Step] = []
        positions: dict[str, int] = {}
        taken: dict[str, KeyPath] = {source.name.lower(): ("sources", source.name) for source in sources}
        for index, fields in enumerate(self._top.tables("steps", "a step")):
            before = len(self._notes.mistakes)
            step = read_step(fields)
            if step is None:
                continue
            if step.view:
                self._refuse_taken(step.view, fields, taken, "view")
            steps.append(step)
            positions.setdefault(step.view, index)
            self._mark(("steps", step.view), before)
        return steps, positions

    def _refuse_taken(self, view: str, fields: Fields, taken: dict[str, KeyPath], key: str | None) -> None:
        """Spark makes no difference between capitals and small letters."""
        other = taken.setdefault(view.lower(), fields.path)
        if other != fields.path:
            line = self._notes.lines.of(other)
            fields.complain(key, f"there is a view '{view}' already, in line {line}; give each its own name")

    def _mark(self, part: tuple[str, str], mistakes_before: int) -> None:
        if len(self._notes.mistakes) > mistakes_before:
            self._broken.add(part)

"""All checks of a pipeline before it runs: the file first, then the machine, the cluster, and the analysis by Spark."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.pipelines.checks.cluster_checks import AskCluster, ask_cluster, check_topics
from tidelog.pipelines.checks.machine_checks import MachineChecks, check_directories, check_spark
from tidelog.pipelines.checks.reference_checks import check_references
from tidelog.pipelines.checks.registry_copies import for_check
from tidelog.pipelines.checks.spark_checks import AskSpark
from tidelog.pipelines.definition.mistakes import Mistake, Mistakes
from tidelog.pipelines.definition.model import AnyPipeline, ModulePipeline, Pipeline
from tidelog.pipelines.definition.parsing import Draft, finished, read_draft
from tidelog.pipelines.definition.python_modules import load_module
from tidelog.pipelines.definition.toml_fields import Diagnostics
from tidelog.pipelines.definition.toml_lines import Lines
from tidelog.pipelines.running.pipeline_state import default_state_directory


@dataclass(frozen=True, slots=True)
class Checked:
    pipeline: AnyPipeline | None
    """None if there are mistakes; warnings are allowed."""
    findings: list[Mistake]
    """Mistakes and warnings by line."""

    @property
    def mistakes(self) -> list[Mistake]:
        return [found for found in self.findings if not found.is_warning]


def check_file(
    path: Path,
    *,
    is_offline: bool = False,
    state_directory: str | None = None,
    environment: Mapping[str, str] = os.environ,
    ask: AskCluster = ask_cluster,
    ask_spark: AskSpark | None = None,
) -> Checked:
    """All mistakes at once. `is_offline` skips the checks that need brokers; `ask_spark` analyses a file that has no
    other mistakes."""
    place = state_directory or default_state_directory()
    try:
        if path.suffix == ".py":
            return _check_module(load_module(path), place)
        draft = read_draft(path, environment)
    except Mistakes as found:
        return Checked(None, found.mistakes)
    check_references(draft.pipeline, draft.diagnostics, draft.step_positions)
    _check_environment(draft, place, None if is_offline else ask)
    if ask_spark is not None and not draft.diagnostics.has_mistakes():
        ask_spark(for_check(finished(draft), place, is_offline), draft.diagnostics, draft.step_positions)
    has_mistakes = draft.diagnostics.has_mistakes()
    return Checked(None if has_mistakes else finished(draft), draft.diagnostics.in_order())


def check(pipeline: AnyPipeline, *, is_offline: bool = False, state_directory: str | None = None) -> list[Mistake]:
    """Mistakes and warnings of a loaded pipeline."""
    return check_file(pipeline.file, is_offline=is_offline, state_directory=state_directory).findings


def _check_environment(draft: Draft, state_directory: str, ask: AskCluster | None) -> None:
    """Skips parts with mistakes in the file itself, except for their topics: they would only cause follow-up errors."""
    pipeline, diagnostics = draft.pipeline, draft.diagnostics
    whole = _without_broken(draft)
    checks = MachineChecks(whole, diagnostics, draft.step_positions)
    checks.check()
    check_directories(pipeline, diagnostics, state_directory)
    if ask is not None:
        check_topics(pipeline, diagnostics, ask)


def _without_broken(draft: Draft) -> Pipeline:
    pipeline = draft.pipeline
    return Pipeline(
        name=pipeline.name,
        file=pipeline.file,
        sources=tuple(part for part in pipeline.sources if ("sources", part.name) not in draft.broken),
        steps=tuple(part for part in pipeline.steps if ("steps", part.view) not in draft.broken),
        sinks=tuple(part for part in pipeline.sinks if ("sinks", part.name) not in draft.broken),
        spark=pipeline.spark,
    )


def _check_module(pipeline: ModulePipeline, state_directory: str) -> Checked:
    diagnostics = Diagnostics(Lines(""))
    check_spark(diagnostics)
    check_directories(pipeline, diagnostics, state_directory)
    findings = [found._replace(line=None) for found in diagnostics.in_order()]
    return Checked(None if findings else pipeline, findings)

"""Implementation of `tidelog pipeline new|check|run|list|status|stop|replay`."""

import argparse
import json
import sys
from importlib import resources
from pathlib import Path

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.hints import program
from tidelog.cli.pipeline import TEMPLATES
from tidelog.cli.pipeline_view import as_json, lines_of_one, table_of_all
from tidelog.pipelines.checks.machine_checks import NEEDS_SPARK, has_spark
from tidelog.pipelines.checks.pipeline_checks import Checked, check_file
from tidelog.pipelines.definition.mistakes import listed, nearest
from tidelog.pipelines.definition.model import AnyPipeline, ModulePipeline
from tidelog.pipelines.running.pipeline_state import (
    PIPELINE_NAME,
    PipelineState,
    RunState,
    StateRejected,
    list_pipelines,
)
from tidelog.pipelines.running.run_options import RunOptions
from tidelog.terminal.plurals import plural


def run_command(action: str, options: argparse.Namespace) -> int:
    """Runs one action. An error becomes one sentence on standard error and exit code 1."""
    try:
        return _WORK[action](options)
    except (CommandError, StateRejected) as rejected:
        print(f"tidelog pipeline {action}: {rejected}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def new(options: argparse.Namespace) -> int:
    if options.template not in TEMPLATES:
        hint = nearest(options.template, TEMPLATES) or f"; templates are {listed(TEMPLATES, 'and')}"
        raise CommandError(f"unknown template '{options.template}'{hint}")
    file = Path(options.file or f"{options.template}.toml")
    text = resources.files("tidelog.pipelines").joinpath(f"templates/{options.template}.toml").read_text()
    try:
        with file.open("x", encoding="utf-8") as output:
            output.write(text.replace("FILE", str(file)))
    except FileExistsError:
        raise CommandError(
            f"{file} already exists; choose another file: tidelog pipeline new {options.template} FILE"
        ) from None
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}") from error
    if options.json:
        print(json.dumps({"file": str(file), "template": options.template}))
        return 0
    print(f"wrote {file}: {TEMPLATES[options.template]}")
    print("its first lines explain how to produce sample records and run it")
    return 0


def check(options: argparse.Namespace) -> int:
    from tidelog.pipelines.checks.spark_checks import ask_spark

    checked = check_file(
        Path(options.file),
        is_offline=options.offline,
        state_directory=options.state,
        ask_spark=None if options.no_spark else ask_spark,
    )
    if options.json:
        mistakes = checked.mistakes
        warnings = [each for each in checked.findings if each not in mistakes]
        found = {"mistakes": mistakes, "warnings": warnings}
        lines = {kind: [each.text(options.file) for each in several] for kind, several in found.items()}
        print(json.dumps({"file": options.file, "is_valid": checked.pipeline is not None, **lines}))
        return 1 if checked.pipeline is None else 0
    for finding in checked.findings:
        print(finding.text(options.file))
    if checked.pipeline is None:
        print(_count(checked))
        return 1
    print(f"{options.file} is valid: {_summary(checked.pipeline)}{', ' + _count(checked) if checked.findings else ''}")
    return 0


def _summary(pipeline: AnyPipeline) -> str:
    if isinstance(pipeline, ModulePipeline):
        return f"pipeline {pipeline.name}, built by Python"
    parts = ((pipeline.sources, "source"), (pipeline.steps, "step"), (pipeline.sinks, "sink"))
    return f"pipeline {pipeline.name}, " + ", ".join(plural(len(found), noun) for found, noun in parts)


def _count(checked: Checked) -> str:
    mistakes = len(checked.mistakes)
    warnings = len(checked.findings) - mistakes
    parts = [plural(number, noun) for number, noun in ((mistakes, "mistake"), (warnings, "warning")) if number]
    return ", ".join(parts)


def run(options: argparse.Namespace) -> int:
    if not has_spark():
        raise CommandError(NEEDS_SPARK)
    checked = check_file(Path(options.file), state_directory=options.state)
    for found in checked.findings:
        print(found.text(options.file), file=sys.stderr)
    if checked.pipeline is None:
        raise CommandError(f"{options.file} has {_count(checked)}; the pipeline was not started")
    from tidelog.pipelines.running.pipeline_run import run_pipeline

    return run_pipeline(
        checked.pipeline,
        RunOptions(
            state_directory=options.state,
            is_once=options.once,
            master=options.master,
            metrics_port=options.metrics,
            has_view=not options.no_view,
        ),
    )


def list_all(options: argparse.Namespace) -> int:
    if options.json:
        return status(argparse.Namespace(name=None, json=True, state=options.state))
    print("\n".join(table_of_all([(state.name, state.present()) for state in list_pipelines(options.state)])))
    return 0


def status(options: argparse.Namespace) -> int:
    states = list_pipelines(options.state) if options.name is None else [_find_pipeline(options)]
    if options.json:
        found = [as_json(state.name, state.present()) for state in states]
        json.dump(found if options.name is None else found[0], sys.stdout, indent=2)
        print()
        return 0
    if not states:
        return list_all(options)
    print("\n\n".join("\n".join(lines_of_one(state.name, state.present())) for state in states))
    return 0


def _find_pipeline(options: argparse.Namespace) -> PipelineState:
    names = [state.name for state in list_pipelines(options.state)]
    if options.name not in names:
        others = nearest(options.name, names) or f"; `{program()} pipeline list` lists the pipelines"
        raise CommandError(f"pipeline {options.name} has not run in {options.state}{others}")
    return PipelineState(options.state, options.name)


def stop(options: argparse.Namespace) -> int:
    state = _find_pipeline(options)
    holder = state.holder()
    if not state.stop(options.timeout):
        assert holder is not None
        raise CommandError(
            f"pipeline {state.name} (pid {holder.pid}) was asked to stop but is still running after"
            f" {options.timeout:g} s; it may be in a long batch: try a longer --timeout"
        )
    last = state.present()
    if last is not None and last.state is RunState.FAILED:
        raise CommandError(f"pipeline {state.name} ended with an error: {last.error}")
    print(json.dumps({"stopped": state.name}) if options.json else f"pipeline {state.name} has stopped")
    return 0


def replay(options: argparse.Namespace) -> int:
    if not has_spark():
        raise CommandError(NEEDS_SPARK)
    file = _file_of(options.pipeline, options.state)
    checked = check_file(file, state_directory=options.state)
    for found in checked.findings:
        print(found.text(file), file=sys.stderr)
    if checked.pipeline is None:
        raise CommandError(f"{file} has {_count(checked)}; the replay was not started")
    from tidelog.pipelines.replay.replay import replay_pipeline

    return replay_pipeline(
        checked.pipeline,
        options.start,
        RunOptions(state_directory=options.state, master=options.master),
        sink_name=options.sink,
        may_leave_out=options.yes,
    )


def _file_of(file_or_name: str, state_directory: str) -> Path:
    """The file itself, or the file of the last run of the pipeline with this name."""
    if Path(file_or_name).exists() or not PIPELINE_NAME.fullmatch(file_or_name):
        return Path(file_or_name)
    last = PipelineState(state_directory, file_or_name).status()
    if last is not None:
        return Path(last.file)
    if Path(file_or_name).suffix in (".toml", ".py"):
        return Path(file_or_name)
    raise CommandError(f"{file_or_name} is neither a file nor the name of a pipeline that has run in {state_directory}")


_WORK = {
    "new": new,
    "check": check,
    "run": run,
    "list": list_all,
    "status": status,
    "stop": stop,
    "replay": replay,
}

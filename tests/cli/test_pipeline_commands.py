"""`tidelog pipeline` as a newcomer meets it: real processes, their output and exit codes. No Spark is started."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.process import TIME_LIMIT_S, RunningBroker, running_broker, settings
from tidelog.cli.main import main
from tidelog.cli.pipeline import TEMPLATES
from tidelog.pipelines.definition.parsing import load
from tidelog.pipelines.running.pipeline_state import PipelineState, RunState

NOBODY = "127.0.0.1:1"
RUN = """
import signal, sys
from pathlib import Path
from tidelog.pipelines.running.pipeline_state import PipelineState, RunState
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
state = PipelineState(Path(sys.argv[1]), "orders")
query = {"name": "table", "state": "running", "rows_in": 1234, "rows_out": 1200, "lag": 5, "batches": 7,
         "batch_duration_ms": 80}
with state.running(Path(sys.argv[2])):
    state.report(RunState.RUNNING, progress={"queries": [query], "dead_letters": 34, "skipped_records": 0})
    print("running", flush=True)
    while not stopped:
        signal.pause()
    state.report(RunState.STOPPED)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("broker")
    with running_broker(directory / "log", *settings(directory / "data", broker_id="1")) as running:
        yield running


def run(directory: Path, *arguments: str, bootstrap: str = NOBODY, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        cwd=directory,
        env=os.environ | {"TIDELOG_BOOTSTRAP": bootstrap, "TIDELOG_PIPELINES": "pipelines"},
        check=False,
    )


def good(directory: Path, *arguments: str, bootstrap: str = NOBODY, given: str = "") -> str:
    ended = run(directory, *arguments, bootstrap=bootstrap, given=given)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return ended.stdout


def rejection(directory: Path, *arguments: str) -> str:
    ended = run(directory, "pipeline", *arguments)
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    (line,) = ended.stderr.splitlines()
    return line.removeprefix(f"tidelog pipeline {arguments[0]}: ")


@contextmanager
def running_pipeline(directory: Path) -> Iterator[subprocess.Popen[str]]:
    file = directory / "orders.toml"
    file.touch()
    command = [sys.executable, "-c", RUN, str(directory / "pipelines"), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            yield process
        finally:
            process.kill()


# -- new and check


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_is_written_and_has_no_mistake(tmp_path: Path, template: str) -> None:
    shown = good(tmp_path, "pipeline", "new", template, "mine.toml")
    assert shown.startswith(f"wrote mine.toml: {TEMPLATES[template]}\n")
    text = (tmp_path / "mine.toml").read_text()
    assert "tidelog pipeline run mine.toml --once" in text
    assert "FILE" not in text
    (tmp_path / "customers.csv").touch()
    checked = good(tmp_path, "pipeline", "check", "mine.toml", "--offline", "--no-spark")
    assert checked.startswith(
        f"mine.toml is valid: pipeline {load(tmp_path / 'mine.toml', {'TIDELOG_BOOTSTRAP': NOBODY}).name}, "
    )


def test_template_is_never_written_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / "topic-to-table.toml"
    file.write_text("mine")
    assert rejection(tmp_path, "new").startswith("topic-to-table.toml already exists;")
    assert file.read_text() == "mine"
    assert rejection(tmp_path, "new", "minmal") == "unknown template 'minmal'; did you mean 'minimal'?"


def test_check_asks_the_cluster_and_says_what_is_missing(tmp_path: Path, broker: RunningBroker) -> None:
    good(tmp_path, "pipeline", "new", "minimal")
    ended = run(tmp_path, "pipeline", "check", "minimal.toml", "--no-spark", bootstrap=broker.address)
    assert (ended.returncode, ended.stderr) == (1, "")
    said = "topic 'numbers' does not exist; `tidelog topic create numbers` creates it"
    assert ended.stdout == f"minimal.toml:10: sources.numbers.topic: {said}\n1 mistake\n"
    good(tmp_path, "topic", "create", "numbers", bootstrap=broker.address)
    checked = good(tmp_path, "pipeline", "check", "minimal.toml", "--no-spark", bootstrap=broker.address)
    assert checked == "minimal.toml is valid: pipeline minimal, 1 source, 0 steps, 1 sink\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["minimal.toml"]


def test_check_and_run_without_a_cluster_say_so(tmp_path: Path) -> None:
    good(tmp_path, "pipeline", "new", "minimal")
    said = (
        f"no broker answers at {NOBODY} (Connection refused); start a cluster with `tidelog up`, or correct 'bootstrap'"
    )
    checked = run(tmp_path, "pipeline", "check", "minimal.toml")
    assert checked.stdout == f"minimal.toml:1: pipeline.bootstrap: {said}\n1 mistake\n"
    ended = run(tmp_path, "pipeline", "run", "minimal.toml")
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        f"minimal.toml:1: pipeline.bootstrap: {said}",
        "tidelog pipeline run: minimal.toml has 1 mistake; the pipeline was not started",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["minimal.toml"]


def test_missing_file_is_reported_without_a_traceback(tmp_path: Path) -> None:
    for name in ("nowhere.toml", "nowhere.py"):
        ended = run(tmp_path, "pipeline", "check", name)
        assert (ended.returncode, ended.stderr) == (1, "")
        assert ended.stdout == f"{name}: No such file or directory\n1 mistake\n"
        printed = json.loads(run(tmp_path, "pipeline", "check", name, "--json").stdout)
        mistakes = [f"{name}: No such file or directory"]
        assert printed == {"file": name, "is_valid": False, "mistakes": mistakes, "warnings": []}


# -- list, status, stop


def test_nothing_has_run_yet(tmp_path: Path) -> None:
    said = "no pipeline has run on this machine; write one with `tidelog pipeline new`\n"
    assert good(tmp_path, "pipeline", "list") == said
    assert good(tmp_path, "pipeline", "status") == said
    assert json.loads(good(tmp_path, "pipeline", "status", "--json")) == []
    assert rejection(tmp_path, "status", "orders").startswith("pipeline orders has not run in pipelines; `")
    assert rejection(tmp_path, "stop", "orders").startswith("pipeline orders has not run in pipelines; `")
    assert list(tmp_path.iterdir()) == []


def test_running_pipeline_is_listed_shown_and_stopped(tmp_path: Path) -> None:
    with running_pipeline(tmp_path) as process:
        titles, row = good(tmp_path, "pipeline", "list").splitlines()
        assert titles.split() == ["PIPELINE", "STATE", "PID", "SINCE", "FILE"]
        assert row.split()[:3] == ["orders", "running", str(process.pid)]
        shown = good(tmp_path, "pipeline", "status", "orders").splitlines()
        assert shown[:3] == [
            "pipeline  orders",
            f"state     running (pid {process.pid})",
            f"file      {tmp_path / 'orders.toml'}",
        ]
        assert shown[-3].split() == ["table", "running", "1234", "1200", "-", "-", "5", "7", "80", "ms"]
        assert shown[-1] == "34 dead letters"
        reported = json.loads(good(tmp_path, "pipeline", "status", "orders", "--json"))
        assert (reported["name"], reported["state"], reported["pid"]) == ("orders", "running", process.pid)
        assert reported["progress"]["dead_letters"] == 34
        (listed,) = json.loads(good(tmp_path, "pipeline", "list", "--json"))
        assert listed == reported
        assert json.loads(good(tmp_path, "pipeline", "stop", "orders", "--json")) == {"stopped": "orders"}
        assert process.wait(TIME_LIMIT_S) == 0
    assert good(tmp_path, "pipeline", "list").splitlines()[1].split()[:3] == ["orders", "stopped", "-"]
    assert rejection(tmp_path, "stop", "orders") == "pipeline orders is not running"


def test_pipeline_that_was_killed_is_shown_as_failed(tmp_path: Path) -> None:
    with running_pipeline(tmp_path) as process:
        process.kill()
        process.wait(TIME_LIMIT_S)
    shown = good(tmp_path, "pipeline", "status")
    assert "state     failed\n" in shown
    assert f"error     process {process.pid} ended unexpectedly while running; see " in shown


def test_state_directory_may_be_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    state = PipelineState(tmp_path / "elsewhere", "orders")
    with state.running(file):
        state.report(RunState.STOPPED)
    assert "orders" in good(tmp_path, "pipeline", "list", "--state", "elsewhere")
    assert "orders" not in good(tmp_path, "pipeline", "list")


def test_replay_of_what_nobody_knows_is_refused(tmp_path: Path) -> None:
    ended = run(tmp_path, "pipeline", "replay", "ordres")
    assert ended.returncode == 1
    shown = "ordres is neither a file nor the name of a pipeline that has run in pipelines"
    assert ended.stderr == f"tidelog pipeline replay: {shown}\n"


# -- the flags


@pytest.mark.parametrize("action", ["new", "check", "run", "list", "status", "stop", "replay"])
def test_every_action_explains_itself(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", action, "--help"])
    assert ended.value.code == 0
    assert f"tidelog pipeline {action}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "FILE"),
        (["run", "x.toml", "--metrics", "many"], "expected a port number, found 'many'"),
        (["stop", "x", "--timeout", "soon"], "expected a number of seconds, found 'soon'"),
        (["replay"], "FILE|NAME"),
        ([], "ACTION"),
    ],
)
def test_mistake_in_a_flag_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_command_line_does_not_load_what_spark_needs() -> None:
    heavy = ("pyspark", "numba", "numpy", "pyarrow", "deltalake", "pyiceberg", "fastavro")
    code = f"import sys, tidelog.cli.main; print([name for name in {heavy} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"

"""The state directory: one run at a time, a status that is always whole, and a stop that never hits a stranger."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog.pipelines.running.pipeline_state import (
    PipelineState,
    RunState,
    StateRejected,
    default_state_directory,
    list_pipelines,
)

RUN = """
import signal, sys
from pathlib import Path
from tidelog.pipelines.running.pipeline_state import PipelineState, RunState
stubborn = sys.argv[3] == "stubborn"
stopped = []
signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else lambda *_: stopped.append(True))
state = PipelineState(Path(sys.argv[1]), "orders")
with state.running(Path(sys.argv[2])):
    state.report(RunState.RUNNING)
    print("running", flush=True)
    while not stopped:
        signal.pause()
    state.report(RunState.STOPPED)
"""


@contextmanager
def running(root: Path, file: Path, manner: str = "orderly") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", RUN, str(root), str(file), manner]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "orders.toml"
    file.touch()
    return file


@pytest.fixture
def state(tmp_path: Path) -> PipelineState:
    return PipelineState(tmp_path / "state", "orders")


def test_nothing_is_known_of_a_pipeline_that_never_ran(tmp_path: Path, state: PipelineState) -> None:
    assert state.status() is None
    assert state.present() is None
    assert state.holder() is None
    assert list_pipelines(tmp_path / "state") == []
    assert not state.directory.exists()


def test_run_shows_progress_and_keeps_other_lines(state: PipelineState, file: Path) -> None:
    with state.running(file):
        status = state.status()
        assert status is not None
        assert (status.pid, status.file, status.state) == (os.getpid(), str(file), RunState.STARTING)
        state.report(RunState.RUNNING, progress={"rows": 5})
        state.report(RunState.FAILED, error="topic 'orders' is gone")
    status = state.present()
    assert status is not None
    assert (status.state, status.error) == (RunState.FAILED, "topic 'orders' is gone")
    assert status.progress == {"rows": 5}
    assert [found.name for found in list_pipelines(state.directory.parent)] == ["orders"]


def test_second_run_is_refused_with_the_pid_of_the_first(tmp_path: Path, state: PipelineState, file: Path) -> None:
    with running(tmp_path / "state", file) as process:
        before = state.status()
        with pytest.raises(StateRejected, match=rf"is already running \(pid {process.pid}\)"), state.running(file):
            pass
        assert state.status() == before


def test_stop_ends_the_run_in_order(tmp_path: Path, state: PipelineState, file: Path) -> None:
    with running(tmp_path / "state", file) as process:
        assert state.stop(timeout_s=20)
        assert process.wait(120) == 0
    status = state.present()
    assert status is not None
    assert status.state == RunState.STOPPED


def test_stop_of_a_run_that_does_not_listen_gives_up(tmp_path: Path, state: PipelineState, file: Path) -> None:
    with running(tmp_path / "state", file, "stubborn") as process:
        assert not state.stop(timeout_s=0.1)
        assert process.poll() is None


def test_killed_run_is_shown_as_failed_and_can_be_run_again(tmp_path: Path, state: PipelineState, file: Path) -> None:
    with running(tmp_path / "state", file) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(120)
    status = state.present()
    assert status is not None
    assert status.state == RunState.FAILED
    assert f"process {process.pid} ended unexpectedly" in str(status.error)
    with state.running(file):
        assert state.holder() is not None


def test_stale_pid_of_a_living_stranger_is_never_signalled(state: PipelineState, file: Path) -> None:
    with state.running(file):
        state.report(RunState.RUNNING)
    assert json.loads((state.directory / "lock").read_text())["pid"] == os.getpid()
    with pytest.raises(StateRejected, match="is not running"):
        state.stop(timeout_s=0)


def test_lock_of_somebody_who_has_not_written_himself_down_yet_names_nobody(state: PipelineState, file: Path) -> None:
    """The lock is held, but the file still names a run of long ago whose pid may belong to a stranger now."""
    with state.running(file):
        (state.directory / "lock").write_text(json.dumps({"pid": os.getpid(), "started": "another boot 1"}))
        assert state.holder() is None
        with pytest.raises(StateRejected, match="is not running"):
            state.stop(timeout_s=0)


def test_an_inspection_never_keeps_a_run_from_starting(state: PipelineState, file: Path) -> None:
    with state.running(file):
        pass
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            state.holder()

    inspection = threading.Thread(target=look)
    inspection.start()
    try:
        for _ in range(10):
            with state.running(file):
                pass
    finally:
        done.set()
        inspection.join()


def test_name_taken_by_another_file_is_refused_until_that_file_is_gone(state: PipelineState, file: Path) -> None:
    other = file.with_name("other.toml")
    with state.running(file):
        pass
    with pytest.raises(StateRejected, match="pipeline name orders belongs to"), state.running(other):
        pass
    file.unlink()
    with state.running(other):
        pass


def test_damaged_status_is_reported(state: PipelineState, file: Path) -> None:
    with state.running(file):
        pass
    (state.directory / "status.json").write_text("{")
    with pytest.raises(StateRejected, match="is not valid"):
        state.status()


def test_directory_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELOG_PIPELINES", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/home/someone/data")
    assert default_state_directory() == "/home/someone/data/tidelog-pipelines"
    monkeypatch.setenv("TIDELOG_PIPELINES", "/var/lib/pipelines")
    assert default_state_directory() == "/var/lib/pipelines"

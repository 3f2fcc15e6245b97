"""Supervision of queries that are many, busy or stuck; with fakes."""

import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipelines.test_runner import Event, FakeQuery, supervised
from tidelog.pipelines.definition.model import ModulePipeline
from tidelog.pipelines.definition.python_modules import load_function
from tidelog.pipelines.running import pipeline_run as running
from tidelog.pipelines.running import query_runner
from tidelog.pipelines.running.broker_probe import reason_of_silence
from tidelog.pipelines.running.failures import PipelineFailed
from tidelog.pipelines.running.pipeline_run import INTERRUPTED, Run, session_settings
from tidelog.pipelines.running.pipeline_state import PipelineState
from tidelog.pipelines.running.progress import PipelineProgress, QueryState
from tidelog.pipelines.running.query_runner import _planned_writers
from tidelog.pipelines.running.run_options import RunOptions
from tidelog.pipelines.running.views import with_step_named


class CountedEvent(Event):
    """Each question is a way to Java and back."""

    asked = 0

    def batchId(self) -> int:
        CountedEvent.asked += 1
        return super().batchId()


class BusyQuery(FakeQuery):
    """Spark remembers a hundred events."""

    def __init__(self) -> None:
        super().__init__(0, None, is_active=True)
        self.events = [CountedEvent(number) for number in range(100)]


@pytest.mark.usefixtures("no_sleep")
def test_a_look_asks_only_about_what_is_new(tmp_path: Path) -> None:
    query = BusyQuery()
    looks = 0

    def on_progress(progress: Any) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            CountedEvent.asked = 0
        if looks == 11:
            query.events = [*query.events[1:], CountedEvent(100)]
        if looks == 20:
            query.isActive = False

    runner = supervised([query], tmp_path)
    runner.run(on_progress)
    assert runner.progress().queries[0].batches == 101
    assert CountedEvent.asked < 60


@pytest.mark.usefixtures("no_sleep")
def test_a_source_that_does_not_answer_is_reported_once_each_time(tmp_path: Path) -> None:
    query = FakeQuery(1, None, is_active=True)
    looks = 0

    def on_progress(progress: Any) -> None:
        nonlocal looks
        looks += 1
        is_away = looks < 100 or 110 < looks < 200
        query.status = {"isTriggerActive": True, "message": f"{'Getting offsets from x' if is_away else 'Waiting'}"}
        query.isActive = looks < 200

    runner = supervised([query], tmp_path)
    runner.run(on_progress)
    assert runner.said == 2 * ["query: no answer from its source for 8 s, retrying; check that the brokers are running"]


@pytest.mark.usefixtures("no_sleep")
def test_brokers_that_leave_a_micro_batch_waiting_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks try for two minutes, and Spark says only that it processes data."""
    query = FakeQuery(1, None, is_active=True)
    looks = 0

    def on_progress(progress: Any) -> None:
        nonlocal looks
        looks += 1
        query.isActive = looks < 200

    def silence(bootstrap: str) -> str | None:
        return "Connection refused" if looks < 50 or 100 < looks < 150 else None

    monkeypatch.setattr(query_runner, "bootstraps_of", lambda pipeline: {"localhost:9"})
    monkeypatch.setattr(query_runner, "reason_of_silence", silence)
    runner = supervised([query], tmp_path)
    runner.run(on_progress)
    assert runner.said == 2 * ["fake: no broker answers at localhost:9 (Connection refused), retrying"]


@pytest.mark.usefixtures("no_sleep")
def test_brokers_are_not_probed_without_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = FakeQuery(1, None, is_active=True)
    probed: list[str] = []
    looks = 0

    def on_progress(progress: Any) -> None:
        nonlocal looks
        looks += 1
        query.events = [*query.events, Event(looks)]
        query.isActive = looks < 100

    monkeypatch.setattr(query_runner, "bootstraps_of", lambda pipeline: {"localhost:9"})
    monkeypatch.setattr(query_runner, "reason_of_silence", probed.append)
    supervised([query], tmp_path).run(on_progress)
    assert probed == []


def test_a_cluster_answers_if_one_of_its_addresses_does() -> None:
    with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)) as listening:
        closed.bind(("127.0.0.1", 0))
        silent, open_ = (f"127.0.0.1:{end.getsockname()[1]}" for end in (closed, listening))
        assert reason_of_silence(f"{silent},{open_}") is None
        assert reason_of_silence(silent) == "Connection refused"


@pytest.mark.usefixtures("no_sleep")
def test_a_query_in_its_first_long_micro_batch_is_running(tmp_path: Path) -> None:
    query = FakeQuery(0, None, is_active=True)
    states: list[str] = []

    def on_progress(progress: Any) -> None:
        states.append(progress.queries[0].state)
        is_idle = len(states) < 10
        message = "Waiting for data to arrive" if is_idle else "Processing new data"
        query.status = {"isTriggerActive": not is_idle, "message": message}
        query.isActive = len(states) < 20

    query.status = {"isTriggerActive": True, "message": "Initializing sources"}
    supervised([query], tmp_path).run(on_progress)
    assert list(dict.fromkeys(states)) == [
        QueryState.STARTING,
        QueryState.IDLE,
        QueryState.RUNNING,
        QueryState.DONE,
    ]


@pytest.mark.usefixtures("no_sleep")
def test_a_query_without_records_is_idle_not_starting(tmp_path: Path) -> None:
    query = FakeQuery(0, None, is_active=True)
    states: list[str] = []

    def on_progress(progress: Any) -> None:
        states.append(progress.queries[0].state)
        query.status = {"isTriggerActive": False, "message": "Waiting for data to arrive"}
        if len(states) == 3:
            query.events = [Event(0)]
        query.isActive = len(states) < 100

    query.status = {"isTriggerActive": True, "message": "Initializing sources"}
    supervised([query], tmp_path).run(on_progress)
    assert [state for state, before in zip(states, ["", *states], strict=False) if state != before] == [
        QueryState.STARTING,
        QueryState.IDLE,
        QueryState.RUNNING,
        QueryState.IDLE,
        QueryState.DONE,
    ]


class StuckQuery(FakeQuery):
    def __init__(self) -> None:
        super().__init__(1, None, is_active=True)
        self.asked_to_stop = 0

    def stop(self) -> None:
        self.asked_to_stop += 1
        assert self.asked_to_stop < 10
        raise TimeoutError("the query did not stop in time")


@pytest.mark.usefixtures("no_sleep")
def test_a_query_that_does_not_stop_is_left_to_the_end_of_the_process(tmp_path: Path) -> None:
    query = StuckQuery()
    runner = supervised([query], tmp_path)
    runner.run(lambda progress: runner.request_stop())
    assert query.asked_to_stop == 1


@pytest.fixture
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def test_an_error_in_the_function_of_a_step_is_reported_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "steps_that_fail.py"
    file.write_text("def price(frame):\n    return 1 / 0\n")
    price = load_function("steps_that_fail:price", tmp_path)
    with pytest.raises(PipelineFailed) as failed:
        with_step_named("step prices", lambda: price(None))
    assert str(failed.value) == f"step prices: ZeroDivisionError: division by zero ({file}, line 2, in price)"


def test_spark_leaves_nothing_in_the_current_directory_unless_it_is_configured_to(tmp_path: Path) -> None:
    state, name = PipelineState(tmp_path, "job"), "spark.sql.warehouse.dir"
    job = ModulePipeline("job", tmp_path / "job.py")
    assert session_settings(job, state)[name] == f"file://{tmp_path}/job/warehouse"
    assert session_settings(replace(job, spark={name: "/warehouse"}), state)[name] == "/warehouse"


def test_a_log_that_has_grown_long_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LOG_BYTES_MAX", 10)
    log = tmp_path / "log.txt"
    for content in ("first run", "second run, which has more to say", "third run"):
        with running.logging_to(log), log.open("a") as file:
            file.write(content)
    assert log.read_text() == "third run"
    assert (tmp_path / "log.old.txt").read_text() == "first runsecond run, which has more to say"


@pytest.mark.parametrize("name", ["../elsewhere", "", "a/b", 7])
def test_a_query_of_a_module_needs_a_name_that_can_be_a_directory(tmp_path: Path, name: object) -> None:
    with pytest.raises(PipelineFailed, match="returned the query name"):
        _planned_writers({name: object()}, ModulePipeline("job", tmp_path / "job.py"))


class SlowSpark:
    """Ends only when its queries do."""

    sparkContext = SimpleNamespace(uiWebUrl="http://driver:4040")  # noqa: N815

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def stop(self) -> None:
        self._seen.append("waited for Spark")


def test_the_second_interrupt_ends_the_process_without_waiting_for_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def end(code: int) -> None:
        seen.append(f"ended with {code}")
        raise SystemExit

    class InterruptedRunner:
        def __init__(self, *_: object, **__: object) -> None: ...

        def start(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(running, "start_session", lambda *_: SlowSpark(seen))
    monkeypatch.setattr(running, "Runner", InterruptedRunner)
    monkeypatch.setattr("os._exit", end)
    pipeline = ModulePipeline("job", tmp_path / "job.py")
    state = PipelineState(tmp_path, "job")
    with pytest.raises(SystemExit), state.running(pipeline.file):
        Run(pipeline, RunOptions(str(tmp_path), has_view=False), state).run()
    assert seen[0] == f"ended with {INTERRUPTED}"


def test_a_run_shows_the_address_of_sparks_own_page_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, seen = PipelineState(tmp_path, "job"), []

    class ShortRunner:
        def __init__(self, *_: object, **__: object) -> None: ...

        def start(self) -> None: ...

        def progress(self) -> PipelineProgress:
            return PipelineProgress("job", ())

        def run(self, on_progress: Any, on_stopping: Any) -> None:
            on_progress(PipelineProgress("job", (), uptime_s=5.0))
            seen.append(state.status())

    monkeypatch.setattr(running, "start_session", lambda *_: SlowSpark([]))
    monkeypatch.setattr(running, "Runner", ShortRunner)
    pipeline = ModulePipeline("job", tmp_path / "job.py")
    with state.running(pipeline.file):
        assert Run(pipeline, RunOptions(str(tmp_path), has_view=False), state).run() == 0
    seen.append(state.status())
    assert [None if status is None else status.spark_ui for status in seen] == ["http://driver:4040", None]

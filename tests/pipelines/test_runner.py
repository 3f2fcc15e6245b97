"""Pipelines from a topic to tables and topics, with the real source and sinks; and their supervision, with fakes."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.broker import TidelogProcess
from tests.spark_session import Message, TopicMaker, produce
from tidelog.pipelines.definition.model import (
    BadRecords,
    DeduplicateStep,
    Format,
    FormatKind,
    ModulePipeline,
    Pipeline,
    PythonStep,
    SqlStep,
    TableKind,
    TableSink,
    TopicSink,
    TopicSource,
    Watermark,
    WindowStep,
)
from tidelog.pipelines.running.failures import PipelineFailed, StepFailed
from tidelog.pipelines.running.pipeline_state import PipelineState
from tidelog.pipelines.running.progress import QueryKind, QueryState
from tidelog.pipelines.running.query_runner import PlannedQuery, Runner
from tidelog.pipelines.running.views import topic_options
from tidelog.pipelines.tables.exactly_once_writer import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = Format(FormatKind.JSON, "id bigint not null, product string, amount double, at timestamp")
STEPS = """
from pyspark.sql import functions as F

LIMIT = 2

def is_above_limit(amount):
    return amount > LIMIT

is_large = F.udf(is_above_limit, "boolean", useArrow=False)

def flag(frame, name):
    return frame.withColumn(name, is_large("amount"))
"""


def order(number: int, second: int | None = None) -> bytes:
    at = f"2026-01-31T12:{(second or number) // 60:02}:{(second or number) % 60:02}Z"
    return json.dumps({"id": number, "product": "ab"[number % 2], "amount": number / 2, "at": at}).encode()


def consumed(bootstrap: str, topic: str, expected: int) -> list[Any]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", "enable.auto.commit": False})
    messages: list[Any] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(messages) < expected:
            found = consumer.consume(expected - len(messages), timeout=60)
            assert found, f"only {len(messages)} of {expected}"
            messages += found
    finally:
        consumer.close()
    return messages


def orders_source(broker: TidelogProcess, topic: str, **more: Any) -> TopicSource:
    return TopicSource("orders", broker.bootstrap, (topic,), format=ORDERS, **more)


def table(directory: Path, of: str, kind: TableKind = TableKind.DELTA) -> TableSink:
    return TableSink("table", of, kind, str(directory / "table"))


def run_once(spark: "SparkSession", pipeline: Pipeline | ModulePipeline, directory: Path) -> Runner:
    runner = Runner(spark, pipeline, state=PipelineState(directory, pipeline.name), once=True)
    runner.start()
    runner.run()
    return runner


@pytest.mark.spark
def test_topic_to_table_and_topic_with_dead_letters(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic, dead, out = new_topic(suffix=".in"), new_topic(suffix=".dead"), new_topic(suffix=".out")
    values = [order(number) for number in range(10)]
    values[3] = b"not an order"
    produce(running_broker.bootstrap, topic, [Message(value, b"key", timestamp_ms=1000) for value in values])
    (tmp_path / "my_steps.py").write_text(STEPS)
    pipeline = Pipeline(
        "shop",
        tmp_path / "shop.toml",
        (
            orders_source(
                running_broker,
                topic,
                bad_records=BadRecords.DEAD_LETTER,
                dead_letter_topic=dead,
                watermark=Watermark("at", "1 minute"),
            ),
        ),
        (
            SqlStep("priced", "SELECT id, product, amount, _offset FROM orders WHERE id <> 5"),
            PythonStep("flagged", "priced", "my_steps:flag", {"name": "is_large"}),
        ),
        (
            table(tmp_path, "flagged"),
            TopicSink("out", "flagged", running_broker.bootstrap, out, key="product"),
        ),
    )
    runner = run_once(spark, pipeline, tmp_path)

    rows = read_table(pipeline.sinks[0], tmp_path).to_pylist()  # type: ignore[arg-type]
    expected = [number for number in range(10) if number not in (3, 5)]
    assert sorted(row["id"] for row in rows) == expected
    assert {row["id"]: row["is_large"] for row in rows} == {number: number / 2 > 2 for number in expected}

    (letter,) = consumed(running_broker.bootstrap, dead, 1)
    headers = dict(letter.headers())
    assert (letter.key(), letter.value()) == (b"key", b"not an order")
    assert headers == {
        "tidelog.error": b"the value is not JSON",
        "tidelog.topic": topic.encode(),
        "tidelog.partition": b"0",
        "tidelog.offset": b"3",
        "tidelog.timestamp": b"1970-01-01T00:00:01.000Z",
    }

    records = consumed(running_broker.bootstrap, out, 8)
    assert sorted(json.loads(record.value())["id"] for record in records) == expected
    assert {record.key() for record in records} == {b"a", b"b"}
    assert "_offset" not in json.loads(records[0].value())

    progress = {query.name: query for query in runner.progress().queries}
    assert {name: query.rows_out for name, query in progress.items()} == {
        "orders.dead-letters": 1,
        "table": 8,
        "out": 8,
    }
    assert {name: query.rows_in for name, query in progress.items()} == dict.fromkeys(progress, 10)
    assert runner.progress().dead_letters == 1
    assert [(lag.topic, lag.position, lag.lag) for lag in progress["table"].lags] == [(topic, 10, 0)]

    produce(running_broker.bootstrap, topic, [Message(order(10))])
    only_table = replace(
        pipeline, sources=(orders_source(running_broker, topic, bad_records=BadRecords.SKIP),), sinks=pipeline.sinks[:1]
    )
    run_once(spark, only_table, tmp_path)
    rows = read_table(pipeline.sinks[0], tmp_path).to_pylist()  # type: ignore[arg-type]
    assert sorted(row["id"] for row in rows) == [*expected, 10]


@pytest.mark.spark
def test_a_bad_record_that_must_not_be_left_out_is_named(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic()
    produce(running_broker.bootstrap, topic, [Message(order(0)), Message(b'{"id": "x"}')])
    pipeline = Pipeline(
        "strict", tmp_path / "p.toml", (orders_source(running_broker, topic),), (), (table(tmp_path, "orders"),)
    )
    with pytest.raises(PipelineFailed, match=f"^table: {topic}-0 at offset 1: field 'id' is not bigint$"):
        run_once(spark, pipeline, tmp_path)

    misspelled = Pipeline(
        "strict",
        tmp_path / "p.toml",
        pipeline.sources,
        (SqlStep("priced", "SELECT amuont FROM orders"),),
        (table(tmp_path, "priced"),),
    )
    with pytest.raises(
        PipelineFailed, match=r"^step priced: .*`amuont` cannot be resolved\. Did you mean.*`amount`"
    ) as failed:
        run_once(spark, misspelled, tmp_path)
    assert "\n" not in str(failed.value)
    assert "SQLSTATE" not in str(failed.value)


@pytest.mark.spark
def test_windows_and_deduplication_until_asked_to_stop(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic, out = new_topic(suffix=".in"), new_topic(suffix=".out")
    values = [order(number) for number in range(4)] * 2 + [b"bad", order(200), order(201)]
    produce(running_broker.bootstrap, topic, [Message(value) for value in values])
    pipeline = Pipeline(
        "windows",
        tmp_path / "p.toml",
        (orders_source(running_broker, topic, bad_records=BadRecords.SKIP, watermark=Watermark("at", "1 second")),),
        (
            DeduplicateStep("once", "orders", ("id",)),
            WindowStep(
                "minutes", "once", "at", "1 minute", None, ("product",), {"orders": "count(*)", "sum": "sum(amount)"}
            ),
        ),
        (TopicSink("totals", "minutes", running_broker.bootstrap, out, output_mode="update"),),
    )
    runner = Runner(spark, pipeline, state=PipelineState(tmp_path, "windows"), once=False)
    runner.start()
    timer = threading.Timer(120, runner.request_stop)
    timer.start()
    stopping: list[bool] = []

    def stop_when_read(progress: Any) -> None:
        if progress.queries[0].rows_out >= 4:
            runner.request_stop()

    runner.run(stop_when_read, lambda: stopping.append(True))
    timer.cancel()
    (query,) = runner.progress().queries
    assert stopping == [True]
    assert query.state is QueryState.DONE
    assert query.state_rows > 0
    assert runner.progress().skipped_records == 1
    totals = [json.loads(record.value()) for record in consumed(running_broker.bootstrap, out, 4)]
    first = {total["product"]: (total["orders"], total["sum"]) for total in totals if "12:00" in total["window_start"]}
    assert first == {"a": (2, 1.0), "b": (2, 2.0)}


@pytest.mark.spark
def test_a_module_builds_its_own_queries(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "rates.py").write_text(
        "def build(spark):\n"
        "    rows = spark.readStream.format('rate-micro-batch').option('rowsPerBatch', 5).load()\n"
        "    return {'a': rows.writeStream.format('noop')}\n"
    )
    pipeline = ModulePipeline("rates", tmp_path / "rates.py", trigger_ms=100)
    runner = Runner(spark, pipeline, state=PipelineState(tmp_path, "rates"), once=False)
    runner.start()
    runner.run(lambda progress: runner.request_stop() if progress.queries[0].rows_in >= 10 else None)
    assert runner.progress().queries[0].name == "a"
    assert (tmp_path / "rates" / "checkpoint" / "a" / "commits").is_dir()

    (tmp_path / "rates.py").write_text("def build(spark):\n    return spark.range(3)\n")
    with pytest.raises(PipelineFailed, match="must return DataStreamWriters, but rates is a DataFrame"):
        run_once(spark, pipeline, tmp_path)


def test_a_start_in_time_is_given_in_milliseconds() -> None:
    source = TopicSource("s", "h:1", ("a", "b"), starting="2026-01-31T12:00:00Z", options={"maxOffsetsPerTrigger": "5"})
    assert topic_options(source) == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "a,b",
        "startingTimestamp": "1769860800000",
        "startingOffsetsByTimestampStrategy": "latest",
        "maxOffsetsPerTrigger": "5",
    }


# -- supervision


class Event:
    def __init__(self, batch_id: int) -> None:
        self._batch_id = batch_id

    def batchId(self) -> int:
        return self._batch_id

    def timestamp(self) -> str:
        return f"2026-01-31T12:00:{self._batch_id:02}Z"

    def json(self) -> str:
        return json.dumps({"batchId": self._batch_id, "numInputRows": 1, "durationMs": {"addBatch": 1}})


class FakeQuery:
    """Spark's, as far as the runner looks at it."""

    def __init__(self, batches: int, error: str | None, *, is_active: bool = False) -> None:
        self.events = [Event(number) for number in range(batches)]
        self.error = error
        self.isActive = is_active
        self.status: Mapping[str, object] = {"isTriggerActive": is_active, "message": "Processing new data"}
        self._jsq = self

    def recentProgress(self) -> list[Event]:
        return self.events

    def exception(self) -> Exception | None:
        return None if self.error is None else Exception(self.error)

    def stop(self) -> None:
        self.isActive = False


class SupervisedRunner(Runner):
    """One query whose starts are given; time passes with every look at the clock."""

    def __init__(self, starts: "Sequence[FakeQuery | Exception]", directory: Path) -> None:
        self.now_s = 0.0
        self.starts = list(starts)
        self.said: list[str] = []
        state = PipelineState(directory, "fake")
        pipeline = ModulePipeline("fake", directory / "fake.py")
        super().__init__(None, pipeline, state=state, once=True, say=self.said.append, clock=self.clock)  # type: ignore[arg-type]

    def clock(self) -> float:
        self.now_s += 0.5
        return self.now_s

    def _planned(self) -> list[PlannedQuery]:
        return [PlannedQuery("query", QueryKind.SINK, lambda written: None)]  # type: ignore[arg-type,return-value]

    def _start_query(self, planned: PlannedQuery, written: Any) -> Any:
        start = self.starts.pop(0)
        if isinstance(start, Exception):
            raise start
        return start


AWAY = "tidelog.spark.errors.BrokersUnavailable: no broker answers at localhost:9"


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def supervised(starts: "Sequence[FakeQuery | Exception]", directory: Path) -> SupervisedRunner:
    runner = SupervisedRunner(starts, directory)
    runner.start()
    return runner


@pytest.mark.usefixtures("without_pauses")
def test_a_query_whose_failure_passes_starts_again_after_growing_pauses(tmp_path: Path) -> None:
    runner = supervised([FakeQuery(1, AWAY), *(FakeQuery(0, AWAY) for _ in range(3)), FakeQuery(2, None)], tmp_path)
    runner.run()
    (query,) = runner.progress().queries
    assert (query.state, query.restarts, query.batches) == (QueryState.DONE, 4, 3)
    assert runner.said == [
        f"query: no broker answers at localhost:9; restarting in {pause} s" for pause in (1, 2, 4, 8)
    ]


@pytest.mark.usefixtures("without_pauses")
def test_a_query_that_never_did_anything_is_given_up_soon(tmp_path: Path) -> None:
    runner = supervised([FakeQuery(0, AWAY) for _ in range(5)], tmp_path)
    with pytest.raises(PipelineFailed, match=r"^query: no broker answers at localhost:9$"):
        runner.run()
    assert runner.progress().queries[0].state is QueryState.FAILED


CRASHED = RuntimeError("Python worker exited unexpectedly (crashed)")


@pytest.mark.usefixtures("without_pauses")
def test_a_start_that_fails_for_a_passing_reason_is_tried_again(tmp_path: Path) -> None:
    runner = supervised([CRASHED, FakeQuery(1, AWAY), CRASHED, FakeQuery(1, None)], tmp_path)
    runner.run()
    (query,) = runner.progress().queries
    assert (query.state, query.restarts, query.batches) == (QueryState.DONE, 3, 2)
    assert runner.said[0] == "query: a Python worker of Spark exited; restarting in 1 s"


@pytest.mark.usefixtures("without_pauses")
def test_planning_that_fails_for_a_passing_reason_is_tried_again(tmp_path: Path) -> None:
    failures = [StepFailed("source a: a Python worker of Spark exited", is_transient=True)]

    class FailsToPlan(SupervisedRunner):
        def _planned(self) -> list[PlannedQuery]:
            if failures:
                raise failures.pop()
            return super()._planned()

    runner = FailsToPlan([FakeQuery(1, None)], tmp_path)
    runner.start()
    runner.run()
    assert runner.said == ["source a: a Python worker of Spark exited; retrying in 1 s"]

    failures.append(StepFailed("step b: no such column"))
    with pytest.raises(StepFailed, match="no such column"):
        FailsToPlan([], tmp_path).start()


@pytest.mark.usefixtures("without_pauses")
def test_a_lasting_failure_ends_the_pipeline(tmp_path: Path) -> None:
    lasting = "tidelog.spark.errors.UnknownTopic: topic 'ordres' does not exist; did you mean 'orders'?"
    runner = supervised([FakeQuery(5, lasting)], tmp_path)
    with pytest.raises(PipelineFailed, match=r"^query: topic 'ordres' does not exist"):
        runner.run()


@pytest.mark.usefixtures("without_pauses")
def test_a_running_micro_batch_is_finished_before_the_query_stops(tmp_path: Path) -> None:
    query = FakeQuery(1, None, is_active=True)
    looks = 0

    def on_progress(progress: Any) -> None:
        nonlocal looks
        looks += 1
        runner.request_stop()
        if looks == 5:
            assert query.isActive
            query.events.append(Event(1))

    runner = supervised([query], tmp_path)
    run: Callable[..., None] = runner.run
    run(on_progress)
    assert not query.isActive
    assert runner.progress().queries[0].batches == 2


@pytest.mark.usefixtures("without_pauses")
def test_a_micro_batch_without_end_is_cut_off_after_a_limit(tmp_path: Path) -> None:
    query = FakeQuery(1, None, is_active=True)
    runner = supervised([query], tmp_path)
    runner.run(lambda progress: runner.request_stop())
    assert not query.isActive
    assert runner.now_s > 60

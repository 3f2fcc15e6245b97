"""Expectations of steps and sinks: what the file may say, what is counted, and what happens to the rows."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.broker import TidelogProcess
from tests.pipelines.test_runner import consumed, order, orders_source, run_once, table
from tests.spark_session import Message, TopicMaker, produce
from tidelog.pipelines.definition.mistakes import Mistakes
from tidelog.pipelines.definition.model import Expectation, OnViolation, Pipeline, Quality, SqlStep, TopicSink
from tidelog.pipelines.definition.parsing import load
from tidelog.pipelines.running.failures import PipelineFailed
from tidelog.pipelines.running.live_view import summary_line
from tidelog.pipelines.running.metrics import text
from tidelog.pipelines.running.progress import PipelineProgress, QueryKind, QueryMeter
from tidelog.pipelines.tables.exactly_once_writer import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """
[sources.orders]
topic = "orders"
format = "json"
schema = "id bigint, amount double"
[[steps]]
view = "priced"
sql = "SELECT * FROM orders"
{step}
[sinks.out]
from = "priced"
topic = "out"
{sink}
"""


def parsed(directory: Path, step: str = "", sink: str = "") -> Pipeline:
    file = directory / "shop.toml"
    file.write_text(FILE.format(step=step, sink=sink))
    return load(file, {"TIDELOG_BOOTSTRAP": "localhost:29092"})


def test_expectations_of_steps_and_sinks(tmp_path: Path) -> None:
    pipeline = parsed(
        tmp_path,
        "expect = { positive = 'amount > 0' }\non_violation = 'drop'",
        "expect = { known = { condition = 'id > 0', on_violation = 'dead_letter' }, small = 'amount < 9' }\n"
        "dead_letters = 'out.dead'",
    )
    assert pipeline.steps[0].quality == Quality((Expectation("positive", "amount > 0", OnViolation.DROP),))
    assert pipeline.sinks[0].quality == Quality(
        (Expectation("known", "id > 0", OnViolation.DEAD_LETTER), Expectation("small", "amount < 9", OnViolation.WARN)),
        "out.dead",
        "localhost:29092",
    )


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ("on_violation = 'drop'", "on_violation needs expectations"),
        ("expect = { a = 'x > 0' }\non_violation = 'dorp'", "did you mean 'drop'?"),
        ("expect = { a = 'x > 0' }\non_violation = 'dead_letter'", "dead letters need a topic"),
        ("expect = { a = 'x > 0' }\ndead_letters = 'dead'", "needs an expectation with on_violation = 'dead_letter'"),
        ("expect = { a = 7 }", "expected a string, found the number 7"),
        ("expect = { 'a b' = 'x > 0' }", "'a b' is not a valid name"),
        ("expect = { a = { condition = 'x', acton = 'drop' } }", "unknown key"),
        ("expect = { a = 'drop' }", "expected a condition"),
        ("expect = 'x > 0'", "expected a table"),
    ],
)
def test_mistakes_in_expectations(tmp_path: Path, step: str, sentence: str) -> None:
    with pytest.raises(Mistakes) as found:
        parsed(tmp_path, step)
    assert sentence in str(found.value)


def test_violations_are_counted_over_batches_and_once_for_several_queries() -> None:
    meters = [QueryMeter(name, QueryKind.SINK, 0.0) for name in ("a", "b")]
    observed = {"tidelog expect priced": {"positive": 2, "known": 0}}
    for meter in meters:
        for batch in range(2):
            meter.on_progress({"batchId": batch, "durationMs": {"addBatch": 1}, "observedMetrics": observed}, 1.0)
    progress = PipelineProgress("shop", tuple(meter.progress(1.0) for meter in meters))
    assert progress.as_json()["violations"] == {"priced.positive": 4, "priced.known": 0}
    assert 'tidelog_pipeline_violations_total{pipeline="shop",expectation="priced.positive"} 4\n' in text(progress)
    assert summary_line(progress).endswith(", priced.positive violated by 4 rows")


@pytest.mark.spark
def test_rows_are_warned_about_dropped_and_sent_to_dead_letters(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic, dead, out = new_topic(suffix=".in"), new_topic(suffix=".dead"), new_topic(suffix=".out")
    produce(running_broker.bootstrap, topic, [Message(order(number)) for number in range(10)])
    quality = Quality(
        (
            Expectation("early", "id < 8", OnViolation.WARN),
            Expectation("second", "id <> 1", OnViolation.DROP),
            Expectation("cheap", "if(id = 0, null, amount < 3)", OnViolation.DEAD_LETTER),
        ),
        dead,
        running_broker.bootstrap,
    )
    pipeline = Pipeline(
        "shop",
        tmp_path / "shop.toml",
        (orders_source(running_broker, topic),),
        (SqlStep("priced", "SELECT id, amount FROM orders", quality),),
        (
            table(tmp_path, "priced"),
            TopicSink(
                "out", "priced", running_broker.bootstrap, out, quality=Quality((Expectation("odd", "id % 2 = 1"),))
            ),
        ),
    )
    runner = run_once(spark, pipeline, tmp_path)
    sink = pipeline.sinks[0]
    rows = read_table(sink, tmp_path).to_pylist()  # type: ignore[arg-type]
    assert sorted(row["id"] for row in rows) == [2, 3, 4, 5]
    assert runner.progress().violations == {
        "priced.early": 2,
        "priced.second": 1,
        "priced.cheap": 5,
        "out.odd": 2,
    }
    letters = [json.loads(message.value()) for message in consumed(running_broker.bootstrap, dead, 5)]
    assert sorted(letter["row"]["id"] for letter in letters) == [0, 6, 7, 8, 9]
    assert {letter["error"] for letter in letters} == {"violates cheap (if(id = 0, null, amount < 3))"}
    assert runner.progress().dead_letters == 5
    assert len(consumed(running_broker.bootstrap, out, 4)) == 4


@pytest.mark.spark
def test_a_violation_may_end_the_pipeline(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic()
    produce(running_broker.bootstrap, topic, [Message(order(number)) for number in range(3)])
    quality = Quality((Expectation("small", "id < 2", OnViolation.FAIL),))
    steps = (SqlStep("priced", "SELECT id, amount FROM orders", quality),)
    source = orders_source(running_broker, topic)
    pipeline = Pipeline("shop", tmp_path / "shop.toml", (source,), steps, (table(tmp_path, "priced"),))
    with pytest.raises(
        PipelineFailed, match=r'^table: a row of priced violates small \(id < 2\): \{"id":2,"amount":1.0\}$'
    ):
        run_once(spark, pipeline, tmp_path)

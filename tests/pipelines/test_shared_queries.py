"""Sinks that share a streaming query: mistakes, and every row once in each of them, whatever happens between two."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.broker import TidelogProcess
from tests.spark_session import Message, TopicMaker, produce
from tidelog.pipelines.definition.mistakes import Mistakes
from tidelog.pipelines.definition.model import Pipeline, TableSink, query_of
from tidelog.pipelines.definition.parsing import load
from tidelog.pipelines.running.failures import PipelineFailed
from tidelog.pipelines.running.pipeline_state import PipelineState
from tidelog.pipelines.running.query_runner import Runner
from tidelog.pipelines.tables.exactly_once_writer import read_table
from tidelog.pipelines.tables.foreach_batch import ForEachBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE = """
[sources.orders]
topic = "{topic}"
bootstrap = "{bootstrap}"
format = "json"
schema = "id bigint"
[sinks.topic]
from = "orders"
topic = "{topic}.copy"
bootstrap = "{bootstrap}"
query = "all"
[sinks.more]
from = "orders"
topic = "{topic}.more"
bootstrap = "{bootstrap}"
query = "all"
[sinks.first]
from = "orders"
delta = "first"
query = "all"
[sinks.second]
from = "orders"
parquet = "second"
query = "all"
"""


def parsed(directory: Path, text: str, topic: str = "orders", bootstrap: str = "localhost:29092") -> Pipeline:
    file = directory / "shop.toml"
    file.write_text(text.format(topic=topic, bootstrap=bootstrap))
    return load(file)


def test_sinks_name_the_query_that_they_share(tmp_path: Path) -> None:
    assert {query_of(sink) for sink in parsed(tmp_path, FILE).sinks} == {"all"}


@pytest.mark.parametrize(
    ("sink", "sentence"),
    [
        ('from = "orders"\ndelta = "t"\nquery = "a/b"', "expected letters, digits"),
        ('from = "orders"\ndelta = "t"\n[sinks.x]\nfrom = "orders"\ndelta = "u"\nquery = "third"', "no sink with its"),
        ('from = "same"\ndelta = "t"\nquery = "all"', "have the same 'from'; topic reads 'orders'"),
        ('from = "orders"\ndelta = "t"\nmode = "upsert"\nkeys = "id"\nquery = "all"', "all append rows or all update"),
        ('from = "orders"\ndelta = "t"\nexpect = {{ a = "id > 0" }}\nquery = "all"', "no expectations of its own"),
    ],
)
def test_mistakes_in_shared_queries(tmp_path: Path, sink: str, sentence: str) -> None:
    step = '[[steps]]\nview = "same"\nsql = "SELECT * FROM orders"\n'
    with pytest.raises(Mistakes) as found:
        parsed(tmp_path, FILE + step + f"[sinks.third]\n{sink}\n")
    assert sentence in str(found.value)


@pytest.mark.spark
def test_every_row_is_once_in_each_sink_of_a_query(
    spark: "SparkSession",
    running_broker: TidelogProcess,
    new_topic: TopicMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first run ends between two sinks: both topics and the first table have the batch, the last one has not."""
    topic = new_topic()
    pipeline, state = parsed(tmp_path, FILE, topic, running_broker.bootstrap), PipelineState(tmp_path / "state", "shop")
    write = ForEachBatch.__call__

    def fail_in_second(batches: ForEachBatch, rows: "DataFrame", batch_id: int) -> None:
        assert batches._sink.name != "second", "killed here"
        write(batches, rows, batch_id)

    def run() -> int:
        runner = Runner(spark, pipeline, state=state, once=True)
        runner.start()
        runner.run()
        (query,) = runner.progress().queries
        assert query.name == "all"
        return query.rows_out

    def contents() -> list[list[int]]:
        """Of both topics, then of both tables."""
        reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", running_broker.bootstrap)
        reader = reader.option("kafka.isolation.level", "read_committed")
        topics = [reader.option("subscribe", f"{topic}.{name}").load().collect() for name in ("copy", "more")]
        tables = [read_table(sink, state.directory) for sink in pipeline.sinks if isinstance(sink, TableSink)]
        found = [[json.loads(row.value)["id"] for row in rows] for rows in topics]
        return [sorted(ids) for ids in (*found, *(table["id"].to_pylist() for table in tables))]

    produce(running_broker.bootstrap, topic, [Message(b'{"id": %d}' % number) for number in range(100)])
    monkeypatch.setattr(ForEachBatch, "__call__", fail_in_second)
    with pytest.raises(PipelineFailed, match="killed here"):
        run()
    monkeypatch.undo()
    run()
    assert contents() == [list(range(100))] * 4
    produce(running_broker.bootstrap, topic, [Message(b'{"id": %d}' % number) for number in range(100, 150)])
    assert run() == 4 * 50
    assert contents() == [list(range(150))] * 4

"""All streaming queries of a session are seen, whatever they do."""

import urllib.request
from typing import TYPE_CHECKING

import pytest

from tidelog.pipelines.running.progress import QueryState
from tidelog.pipelines.running.query_watch import QueryWatch
from tidelog.spark import watch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

BATCH = {
    "batchId": 0,
    "numInputRows": 10,
    "durationMs": {"addBatch": 5, "triggerExecution": 70},
    "sources": [{"endOffset": {"orders": {"0": 10}}, "latestOffset": {"orders": {"0": 17}}}],
}


def test_a_query_from_its_start_to_its_end() -> None:
    now_s = 0.0
    seen = QueryWatch("job", lambda: now_s)
    seen.started("a", "orders")
    seen.idle("a")
    assert [(query.name, query.state) for query in seen.progress().queries] == [("orders", QueryState.IDLE)]
    seen.progressed("a", BATCH)
    (query,) = seen.progress().queries
    assert (query.state, query.rows_in, query.batch_duration_ms, query.lag) == (QueryState.RUNNING, 10, 70, 7)
    now_s = 60.0
    seen.idle("a")
    assert seen.progress().queries[0].state is QueryState.IDLE
    seen.ended("a", has_failed=True)
    seen.started("a", "orders")
    assert (seen.progress().queries[0].restarts, seen.progress().queries[0].state) == (1, QueryState.STARTING)


def test_queries_that_ended_are_forgotten_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.pipelines.running.query_watch.ENDED_QUERIES_MAX", 2)
    seen = QueryWatch("job")
    for number in range(5):
        seen.started(str(number), None)
        seen.ended(str(number), has_failed=False)
    seen.started("last", None)
    assert [query.name for query in seen.progress().queries] == ["3", "4", "last"]
    seen.progressed("0", BATCH)


def test_metrics_are_served() -> None:
    seen = QueryWatch("job")
    seen.serve(0)
    try:
        seen.started("a", "orders")
        seen.progressed("a", BATCH)
        assert seen.address is not None
        with urllib.request.urlopen(seen.address) as page:
            text = page.read().decode()
        assert 'tidelog_pipeline_rows_read_total{pipeline="job",query="orders"} 10' in text
        assert 'tidelog_pipeline_lag{pipeline="job",query="orders",topic="orders",partition="0"} 7' in text
    finally:
        seen.close()


@pytest.mark.spark
def test_one_line_adds_it_to_a_session(spark: "SparkSession", tmp_path: "Path") -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\ntwo\n")
    seen = watch(spark)
    try:
        rows = spark.readStream.schema("value string").text(str(tmp_path / "in"))
        writer = rows.writeStream.format("noop").queryName("lines").option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(seen)
    (query,) = [query for query in seen.progress().queries if query.name == "lines"]
    assert (query.rows_in, query.batches, query.state) == (2, 1, QueryState.DONE)

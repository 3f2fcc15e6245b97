"""Micro-batches of Spark in tables of every kind: repeated, of other columns, partitioned, few rows and many."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.broker import TidelogProcess
from tests.pipelines.table_writing import sink_of
from tests.spark_session import TopicMaker
from tidelog.pipelines.definition.model import SchemaChanges, TableKind, TableSink
from tidelog.pipelines.tables import exactly_once_writer as sinks
from tidelog.pipelines.tables.exactly_once_writer import open_table, read_table, table_facts
from tidelog.pipelines.tables.schema_changes import SchemaMismatch
from tidelog.pipelines.tables.table import TableError
from tidelog.pipelines.tables.written import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PARTITIONS = {
    TableKind.PARQUET: ("day = date(at)", "country"),
    TableKind.DELTA: ("day = date(at)", "country"),
    TableKind.ICEBERG: ("at_day = days(at)", "country", "shard = bucket(2, id)", "hour_of_day = cast(hour(at) as int)"),
}


def orders(spark: "SparkSession", start: int, end: int) -> "DataFrame":
    """Over two days and two countries, in two tasks."""
    return spark.range(start, end, 1, 2).selectExpr(
        "id",
        "if(id % 2 = 0, 'CH', 'DE') AS country",
        "cast(id / 2 AS double) AS amount",
        "timestamp'2026-01-31 12:00:00' + make_interval(0, 0, 0, cast(id % 2 AS int)) AS at",
        "array(named_struct('k', cast(id AS string))) AS items",
    )


@pytest.mark.parametrize("kind", list(TableKind))
def test_batches_are_appended_once_and_the_table_follows_its_policy(
    spark: "SparkSession", kind: TableKind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    sink = sink_of(kind, tmp_path, PARTITIONS[kind])
    writer = open_table(sink, "query", tmp_path)
    for batch_id in range(3):
        rows = orders(spark, batch_id * 10, batch_id * 10 + 10)
        assert writer.write(rows, batch_id).rows == 10
    for repeating in (writer, open_table(sink, "query", tmp_path)):
        assert repeating.write(orders(spark, 20, 30), 2) == Written(0, 0, was_already_there=True)

    wider = orders(spark, 30, 40).withColumnRenamed("amount", "price")
    with pytest.raises(SchemaMismatch, match="added: price double; missing: amount"):
        writer.write(wider, 3)
    adding = open_table(replace(sink, schema_changes=SchemaChanges.ADD_COLUMNS), "query", tmp_path)
    assert adding.write(wider, 3).rows == 10

    there = read_table(sink, tmp_path)
    assert sorted(there["id"].to_pylist()) == list(range(40))
    assert (there["amount"].null_count, there["price"].null_count) == (10, 30)
    assert there["items"].to_pylist()[0] == [{"k": str(there["id"][0])}]
    assert table_facts(sink, "query", tmp_path).last_batch == 3
    check_partitions(kind, tmp_path, sink)
    assert "table compacted" in caplog.text
    assert "compaction failed" not in caplog.text


def check_partitions(kind: TableKind, directory: Path, sink: TableSink) -> None:
    if kind is TableKind.ICEBERG:
        assert set(read_table(sink, directory)["hour_of_day"].to_pylist()) == {12}
        return
    names = {str(path.parent.relative_to(directory / "orders")) for path in directory.rglob("*.parquet")}
    assert names == {"day=2026-01-31/country=CH", "day=2026-02-01/country=DE"}


def test_a_plain_reader_of_the_parquet_directory_sees_what_was_committed(spark: "SparkSession", tmp_path: Path) -> None:
    sink = sink_of(TableKind.PARQUET, tmp_path, ("day = date(at)",))
    writer = open_table(sink, "query", tmp_path)
    writer.write(orders(spark, 0, 10), 0)
    writer.write(orders(spark, 10, 20), 1)
    there = spark.read.parquet(sink.location)
    assert sorted(row.id for row in there.select("id").collect()) == list(range(20))
    assert dict(there.dtypes)["day"] == "date"


def test_partition_columns_that_are_not_there_or_there_twice_are_reported_by_name(
    spark: "SparkSession", tmp_path: Path
) -> None:
    rows = orders(spark, 0, 1)
    with pytest.raises(TableError, match=r"partitioned by 'region', which is not a column of the rows .*id, country"):
        open_table(sink_of(TableKind.PARQUET, tmp_path, ("region",)), "query", tmp_path).write(rows, 0)
    with pytest.raises(TableError, match=r"'country' is computed as upper\(country\), but the rows already have"):
        open_table(sink_of(TableKind.DELTA, tmp_path, ("country = upper(country)",)), "query", tmp_path).write(rows, 0)


def test_few_rows_make_one_file_and_a_sudden_crowd_is_written_by_the_tasks(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "SMALL_BATCH_ROWS", 20)
    writer = open_table(sink_of(TableKind.DELTA, tmp_path, ()), "query", tmp_path)
    written = [writer.write(orders(spark, *span), batch) for batch, span in enumerate([(0, 4), (4, 8), (8, 100)])]
    assert [(batch.rows, batch.files) for batch in written] == [(4, 2), (4, 1), (92, 2)]


def test_rows_that_do_not_fit_go_to_the_dead_letter_topic_and_the_others_to_the_table(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic()
    sink = replace(
        sink_of(TableKind.DELTA, tmp_path, ()),
        schema_changes=SchemaChanges.DEAD_LETTER,
        dead_letter_topic=topic,
        dead_letter_bootstrap=running_broker.bootstrap,
    )
    writer = open_table(sink, "query", tmp_path)
    writer.write(spark.sql("SELECT cast(id AS int) AS id, 'a' AS name FROM range(3)"), 0)
    odd = "SELECT * FROM VALUES ('7', 'fits', null), ('x', 'text', null), ('8', 'extra', 1.5) AS t(id, name, more)"
    assert writer.write(spark.sql(odd), 1).rows == 1
    assert sorted(read_table(sink, tmp_path)["id"].to_pylist()) == [0, 1, 2, 7]

    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", running_broker.bootstrap)
    letters = [json.loads(row.value) for row in reader.option("subscribe", topic).load().select("value").collect()]
    assert sorted(letter["row"]["name"] for letter in letters) == ["extra", "text"]
    assert "id (int in the table, string in the rows)" in letters[0]["error"]


def test_a_stream_writes_a_batch_it_runs_again_no_second_time_and_keeps_its_state(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "SMALL_BATCH_ROWS", 1)
    sink = sink_of(TableKind.DELTA, tmp_path, ())
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    written: list[Written] = []

    def run() -> list[int]:
        rows = spark.readStream.schema("k int, at timestamp").option("maxFilesPerTrigger", 1).json(str(source))
        distinct = rows.withWatermark("at", "1 second").dropDuplicatesWithinWatermark(["k"])
        writer = open_table(sink, "query", tmp_path)
        written.clear()
        query = (
            distinct.writeStream.foreachBatch(lambda batch, batch_id: written.append(writer.write(batch, batch_id)))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [batch.rows for batch in written]

    def arrive(number: int, keys: range) -> None:
        lines = [json.dumps({"k": k, "at": "2026-01-31T12:00:00Z"}) for k in keys]
        (source / f"{number}.json").write_text("\n".join(lines))

    for number in range(3):
        arrive(number, range(number, number + 2))
    assert run() == [2, 1, 1]
    (checkpoint / "commits" / "2").unlink()
    arrive(3, range(1))
    arrive(4, range(3, 8))
    arrive(5, range(8))
    # Batch 2 again; nothing new, written by the tasks; more than the driver takes after a small batch; nothing new.
    assert run() == [0, 0, 4, 0]
    assert written[0].was_already_there
    assert sorted(read_table(sink, tmp_path)["k"].to_pylist()) == list(range(8))

"""Exactly-once tables of any Spark program: `foreachBatch(table(...))` and `format("tidelog-table")`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tidelog.pipelines.definition.model import TableKind, Upsert
from tidelog.pipelines.tables.spark_table import application_of_table
from tidelog.pipelines.tables.table import TableError
from tidelog.pipelines.tables.table_options import from_texts, relative_path, sink_of_options
from tidelog.spark import table
from tidelog.spark.options.values import OptionError
from tidelog.spark.session_directory import ARTIFACTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    Sink = Callable[[DataFrame], DataStreamWriter]

ROWS = "id bigint, country string, at bigint, gone boolean"


def test_options_are_those_of_a_pipelines_sink() -> None:
    texts = {"delta": "/t", "mode": "upsert", "keys": "id, country", "history": "true", "sequence_by": "at"}
    sink = sink_of_options(from_texts({**texts, "checkpointlocation": "/c", "compact": "false"}))
    assert (sink.kind, sink.location, sink.compaction) == (TableKind.DELTA, "/t", None)
    assert sink.upsert == Upsert(("id", "country"), ("at",), has_history=True)
    iceberg = sink_of_options(from_texts({"iceberg": "a.b", "catalog.type": "sql", "catalog.uri": "sqlite://"}))
    assert iceberg.catalog == {"type": "sql", "uri": "sqlite://"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "needs one of topic, parquet, delta or iceberg"),
        ({"topic": "t"}, r"for a topic use format\('tidelog'\)"),
        ({"delta": "/t", "key": "id"}, "key"),
        ({"delta": "/t", "mode": "upset"}, "did you mean 'upsert'"),
        ({"delta": "/t", "partitionby": "a"}, "did you mean 'partition_by'"),
        ({"iceberg": "a.b"}, "needs its catalog"),
        ({"parquet": "/t", "mode": "upsert", "keys": "id"}, "needs a Delta or Iceberg table"),
    ],
)
def test_mistakes_in_options(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        sink_of_options(from_texts(options))


@pytest.mark.parametrize(
    ("options", "relative"),
    [
        ({"delta": "tables/orders"}, "delta = 'tables/orders'"),
        ({"parquet": "../orders"}, "parquet = '../orders'"),
        ({"iceberg": "a.b", "catalog": {"uri": "sqlite:///orders.db"}}, "catalog.uri = 'sqlite:///orders.db'"),
        ({"iceberg": "a.b", "catalog": {"uri": "http://localhost", "warehouse": "w"}}, "catalog.warehouse = 'w'"),
        ({"delta": "/tables/orders"}, None),
        ({"delta": "~/orders"}, None),
        ({"delta": "s3://bucket/orders"}, None),
        ({"iceberg": "a.b", "catalog": {"uri": "sqlite:////orders.db", "warehouse": "file:///w"}}, None),
    ],
)
def test_relative_paths_are_recognised(options: dict[str, object], relative: str | None) -> None:
    assert relative_path(options) == relative


def test_a_relative_path_is_refused_where_it_starts_at_a_directory_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Spark Connect, which removes that directory with the session."""
    from pyspark.sql.types import LongType, StructField, StructType

    from tidelog.pipelines.tables.stream_writer import stream_writer

    rows = StructType([StructField("id", LongType())])
    monkeypatch.chdir(tmp_path)
    stream_writer({"delta": "tables/orders"}, rows)
    monkeypatch.setenv(ARTIFACTS, "0f0ce7ea")
    stream_writer({"delta": "/tables/orders"}, rows)
    with pytest.raises(OptionError, match=r"delta = 'tables/orders' is a relative path.*Give a path from the root"):
        stream_writer({"delta": "tables/orders"}, rows)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"delta": "orders", "name": "orders"}, "delta = 'orders' is a relative path"),
        ({"delta": "/orders"}, r"needs a name that belongs to one checkpoint: table\(name=...\)"),
    ],
)
def test_tables_that_spark_connect_cannot_write_are_refused_at_once(
    arguments: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function runs on its server, which is in another directory and does not tell the id of the query."""
    table(**arguments)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    table(delta="/orders", name="orders")
    with pytest.raises(OptionError, match=sentence):
        table(**arguments)


def test_a_table_made_before_the_session_is_refused_on_the_server() -> None:
    assert application_of_table("orders", "a problem", "an-id") == "spark/orders/an-id"
    assert application_of_table("orders", None, None) == "spark-connect/orders"
    with pytest.raises(TableError, match="a problem"):
        application_of_table("orders", "a problem", None)


def by_foreach_batch(directory: Path, **options: Any) -> "Sink":
    return lambda frame: frame.writeStream.foreachBatch(table(delta=str(directory / "table"), **options))


def by_format(directory: Path, **options: Any) -> "Sink":
    texts = {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in options.items()}
    return lambda frame: frame.writeStream.format("tidelog-table").options(delta=str(directory / "table"), **texts)


class Stream:
    """A directory of files, each of which becomes a micro-batch, and a checkpoint."""

    def __init__(self, spark: "SparkSession", directory: Path, sink: "Sink") -> None:
        self._spark = spark
        self._directory = directory
        self._sink = sink
        self._files = 0
        (directory / "in").mkdir()

    def add(self, *rows: dict[str, object]) -> None:
        file = self._directory / "in" / f"{self._files:03}.json"
        file.write_text("\n".join(json.dumps(row) for row in rows))
        self._files += 1

    def run(self) -> None:
        frame = self._spark.readStream.schema(ROWS).option("maxFilesPerTrigger", "1").json(str(self._directory / "in"))
        writer = self._sink(frame).option("checkpointLocation", str(self._directory / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    def forget_last_commit(self) -> None:
        """As if the driver had died after the table's commit and before Spark's own."""
        commits = self._directory / "checkpoint" / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
        for file in (commits / str(last), commits / f".{last}.crc"):
            file.unlink(missing_ok=True)

    def rows(self) -> list[dict[str, Any]]:
        rows = DeltaTable(str(self._directory / "table")).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["id"], row.get("at")))


@pytest.mark.spark
@pytest.mark.parametrize("sink", [by_foreach_batch, by_format], ids=["foreachBatch", "format"])
def test_each_row_is_there_once(spark: "SparkSession", tmp_path: Path, sink: "Callable[..., Sink]") -> None:
    stream = Stream(spark, tmp_path, sink(tmp_path, partition_by=["country"]))
    stream.add({"id": 1, "country": "CH"}, {"id": 2, "country": "DE"})
    stream.add({"id": 3, "country": "CH"})
    stream.run()
    stream.forget_last_commit()
    stream.add({"id": 4})
    stream.run()
    assert [row["id"] for row in stream.rows()] == [1, 2, 3, 4]
    assert DeltaTable(str(tmp_path / "table")).metadata().partition_columns == ["country"]


@pytest.mark.spark
@pytest.mark.parametrize("sink", [by_foreach_batch, by_format], ids=["foreachBatch", "format"])
def test_changes_are_merged_once(spark: "SparkSession", tmp_path: Path, sink: "Callable[..., Sink]") -> None:
    options = {"mode": "upsert", "keys": ["id"], "sequence_by": ["at"], "delete_when": "gone", "omit": ["gone"]}
    stream = Stream(spark, tmp_path, sink(tmp_path, **options))
    stream.add(*({"id": number, "country": "CH", "at": 1} for number in range(3)))
    stream.add({"id": 1, "country": "DE", "at": 2}, {"id": 2, "at": 3, "gone": True})
    stream.run()
    stream.forget_last_commit()
    stream.add({"id": 2, "country": "late", "at": 2})
    stream.run()
    assert stream.rows() == [{"id": 0, "country": "CH", "at": 1}, {"id": 1, "country": "DE", "at": 2}]
    assert not list((tmp_path / "table").rglob("changes-*"))


@pytest.mark.spark
def test_another_checkpoint_of_the_same_name_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    for index, sink in enumerate((by_foreach_batch, by_format)):
        directory = tmp_path / str(index)
        directory.mkdir()
        stream = Stream(spark, directory, sink(directory, name="orders"))
        stream.add({"id": 1})
        stream.run()
        shutil.rmtree(directory / "checkpoint")
        with pytest.raises(Exception, match="wrote with another checkpoint"):
            stream.run()
        assert [row["id"] for row in stream.rows()] == [1]


@pytest.mark.spark
def test_a_wrong_option_is_one_sentence(spark: "SparkSession", tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, by_format(tmp_path, modus="upsert"))
    stream.add({"id": 1})
    with pytest.raises(Exception, match="modus: unknown key; did you mean 'mode'"):
        stream.run()

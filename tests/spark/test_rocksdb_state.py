"""Stateful queries that keep their state in RocksDB, in a session with our settings."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def on_rocksdb(spark: "SparkSession") -> "Iterator[SparkSession]":
    spark.conf.set(PROVIDER, ROCKSDB)
    yield spark
    spark.conf.unset(PROVIDER)


def stream_of(spark: "SparkSession", directory: Path, rows: list[str]) -> "DataFrame":
    directory.mkdir()
    for number, row in enumerate(rows):
        (directory / f"{number}.json").write_text(row)
    reader = spark.readStream.schema("key string, at timestamp, amount long").option("maxFilesPerTrigger", 1)
    return reader.json(str(directory)).withWatermark("at", "10 minutes")


def run_to_end(frame: "DataFrame", name: str, directory: Path) -> list[Any]:
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    return sorted(tuple(row) for row in frame.sparkSession.table(name).collect())


def row(key: str, amount: int) -> str:
    return f'{{"key": "{key}", "at": "2026-01-01T00:00:00Z", "amount": {amount}}}'


def test_two_streams_are_joined(on_rocksdb: "SparkSession", tmp_path: Path) -> None:
    orders = stream_of(on_rocksdb, tmp_path / "orders", [row("a", 1), row("b", 2)])
    payments = stream_of(on_rocksdb, tmp_path / "payments", [row("b", 20), row("a", 10)])
    joined = orders.alias("o").join(payments.alias("p"), on="key").selectExpr("key", "o.amount", "p.amount AS paid")
    assert run_to_end(joined, "joined_on_rocksdb", tmp_path) == [("a", 1, 10), ("b", 2, 20)]


def test_state_of_a_processor_in_python_outlives_its_batch(on_rocksdb: "SparkSession", tmp_path: Path) -> None:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class RunningSum(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._sum = handle.getValueState("sum", "total long")

        def handleInputRows(
            self, key: Any, rows: "Iterator[pd.DataFrame]", timer_values: Any
        ) -> "Iterator[pd.DataFrame]":
            import pandas as pd

            held = self._sum.get()
            total = (held[0] if held else 0) + sum(int(frame["amount"].sum()) for frame in rows)
            self._sum.update((total,))
            yield pd.DataFrame({"key": [key[0]], "total": [total]})

        def close(self) -> None:
            pass

    amounts = stream_of(on_rocksdb, tmp_path / "amounts", [row("a", 1)] * 3)
    summed = amounts.groupBy("key").transformWithStateInPandas(
        statefulProcessor=RunningSum(), outputStructType="key string, total long", outputMode="append", timeMode="None"
    )
    assert run_to_end(summed, "summed_on_rocksdb", tmp_path) == [("a", 1), ("a", 2), ("a", 3)]

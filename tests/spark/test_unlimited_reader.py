"""The reader for PySpark 4.1, as 4.1 calls it and in the PySpark of today, which takes both kinds of readers."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.client.fake_cluster import TOPIC, FakeCluster
from tests.clients.broker import TidelogProcess
from tests.server.harness import batch_of
from tests.spark.queries import Collected, numbered
from tests.spark.test_offset_bounds import FAKE
from tests.spark_session import TopicMaker, produce
from tidelog.spark.accelerators import switches
from tidelog.spark.data_source import DefaultSource
from tidelog.spark.options.values import OptionError
from tidelog.spark.source.unlimited_reader import UnlimitedReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

SCHEMA = StructType([StructField("value", BinaryType())])
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "orders"}


@pytest.fixture
def with_pyspark_4_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switches, "pyspark_version", lambda: "4.1.4")


@pytest.mark.usefixtures("with_pyspark_4_1")
def test_pyspark_4_1_gets_a_reader_without_limits() -> None:
    assert isinstance(DefaultSource(OPTIONS).streamReader(SCHEMA), UnlimitedReader)


@pytest.mark.usefixtures("with_pyspark_4_1")
@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_a_limit_that_pyspark_4_1_cannot_keep_is_refused(option: str) -> None:
    reader = DefaultSource(OPTIONS | {option: "10"}).streamReader(SCHEMA)
    with pytest.raises(
        OptionError, match=r"PySpark 4\.1\.4 cannot limit a micro-batch: leave out .*, or install 4\.2 or newer"
    ):
        reader.initialOffset()


def position(reader: UnlimitedReader) -> int:
    found: int = reader.latestOffset()[TOPIC]["0"]
    return found


def a_reader(fakes: FakeCluster) -> UnlimitedReader:
    return UnlimitedReader(replace(FAKE, bootstrap=str(fakes.bootstrap[0])), ("value",))


def test_a_batch_ends_where_the_log_does_and_the_next_one_begins_there(fakes: FakeCluster) -> None:
    fakes.partitions[0].append(batch_of(b"0", b"1"))
    reader = a_reader(fakes)
    first = reader.latestOffset()
    reader.partitions(reader.initialOffset(), first)
    assert first[TOPIC] == {"0": 2}
    assert reader.latestOffset() == first
    fakes.partitions[0].append(batch_of(b"2"))
    assert position(reader) == 3


def test_a_reader_that_continues_learns_its_position_from_spark(fakes: FakeCluster) -> None:
    """Spark plans an empty batch at the last position of the checkpoint before it asks for the latest offset."""
    fakes.partitions[0].append(batch_of(b"0", b"1"))
    end = a_reader(fakes).latestOffset()
    again = a_reader(fakes)
    again.partitions(end, end)
    fakes.partitions[0].end = 1
    with pytest.raises(Exception, match="records that were read before are gone from the log: t-0 ends at 1"):
        again.latestOffset()


# -- in Spark


def source_of_4_1() -> "type[DataSource]":
    """Made here, so that it travels with its code to processes without tests."""
    from tidelog.spark.data_source import DefaultSource as TodaysSource

    class Source(TodaysSource):
        @classmethod
        def name(cls) -> str:
            return "tidelog-4-1"

        def streamReader(self, schema: StructType) -> UnlimitedReader:
            from tidelog.spark.options.query import read_options
            from tidelog.spark.source.row_schema import columns_of
            from tidelog.spark.source.unlimited_reader import UnlimitedReader

            return UnlimitedReader(read_options(self.options, is_stream=True), columns_of(schema))

    return Source


@pytest.mark.spark
@pytest.mark.parametrize("driver_read_rows", ["1000", "0"], ids=["on the driver", "by tasks"])
def test_a_query_reads_everything_in_one_batch_and_goes_on_from_its_checkpoint(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path, driver_read_rows: str
) -> None:
    spark.dataSource.register(source_of_4_1())
    topic, bootstrap = new_topic(2), running_broker.bootstrap
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("tidelog-4-1").options(**options, driverReadRows=driver_read_rows).load()
    produce(bootstrap, topic, numbered(60, 0, 0) + numbered(30, 60, 1))
    first = Collected(frame, tmp_path).finish()
    assert [len(batch) for batch in first.batches.values()] == [90]
    produce(bootstrap, topic, numbered(5, 90, 0))
    with pytest.raises(Exception, match="batch 1 is refused"):
        Collected(frame, tmp_path, fail_in_batch=1).finish()
    produce(bootstrap, topic, numbered(3, 95, 1))
    again = Collected(frame, tmp_path).finish()
    assert [(number, len(batch)) for number, batch in again.batches.items()] == [(1, 5)], "one batch is all of a run"
    rest = Collected(frame, tmp_path).finish()
    assert sorted(first.values() + again.values() + rest.values()) == sorted(f"value-{number}" for number in range(98))

"""`format("tidelog")` in a real Spark session against a real broker, with records that another client wrote."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.broker import TidelogProcess
from tests.spark.pyspark_version import needs_latest_offsets, needs_limits
from tests.spark.queries import NOON_MS, Collected, Reader, numbered, running, values
from tests.spark_session import Message, TopicMaker, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

TIME_LIMIT_S = 180.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def bootstrap(running_broker: TidelogProcess) -> str:
    return running_broker.bootstrap


def latest_offsets(query: "StreamingQuery") -> dict[str, Any]:
    """As the last progress reports them."""
    progress = query.lastProgress
    found: dict[str, Any] = json.loads((progress and progress.sources[0].latestOffset) or "{}")
    return found


def test_every_column_is_that_of_sparks_kafka_source(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic(2)
    sent = [
        Message(b"v0", b"k0", 0, NOON_MS, (("trace", b"7"), ("empty", None))),
        Message(None, b"tombstone", 0, NOON_MS + 1),
        Message(b"", None, 1, NOON_MS + 2),
    ]
    produce(bootstrap, topic, sent)
    frame = Reader(spark, bootstrap, topic).batch(includeHeaders="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.topic, row.partition, row.offset, row.timestampType) for row in rows] == [
        (topic, 0, 0, 0),
        (topic, 0, 1, 0),
        (topic, 1, 0, 0),
    ]
    assert [(row.key, row.value) for row in rows] == [(b"k0", b"v0"), (b"tombstone", None), (None, b"")]
    assert [[tuple(header) for header in row.headers or ()] for row in rows] == [
        [("trace", b"7"), ("empty", None)],
        [],
        [],
    ]
    times = frame.selectExpr("unix_millis(timestamp) AS ms", "partition", "offset").orderBy("partition", "offset")
    assert [row.ms for row in times.collect()] == [NOON_MS, NOON_MS + 1, NOON_MS + 2]


def test_headers_are_left_out_unless_asked_for(spark: "SparkSession", bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    assert "headers" not in Reader(spark, bootstrap, topic).batch().columns


def test_all_codecs_are_read(spark: "SparkSession", bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(1)
    for number, codec in enumerate(CODECS):
        produce(bootstrap, topic, numbered(500, 500 * number), codec)
    rows = Reader(spark, bootstrap, topic).batch().orderBy("offset").collect()
    assert [row.value for row in rows] == [b"value-%d" % number for number in range(500 * len(CODECS))]


def test_a_schema_chooses_columns(spark: "SparkSession", bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(10))
    frame = Reader(spark, bootstrap, topic).batch("offset long, key binary")
    assert [(row.offset, row.key) for row in frame.collect()] == [(n, b"key-%d" % n) for n in range(10)]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("ofset long", "The schema has column 'ofset', which records do not have; did you mean 'offset'?"),
        ("offset int", "The schema has column 'offset' as int, but it is bigint"),
    ],
)
def test_a_schema_that_cannot_be_is_one_sentence(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, schema: str, sentence: str
) -> None:
    with pytest.raises(Exception, match="The schema") as raised:
        Reader(spark, bootstrap, new_topic()).batch(schema).collect()
    assert sentence in str(raised.value)


def test_times_are_those_of_utc_whatever_the_session_calls_a_timestamp(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(1))
    settings = {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.session.timeZone": "America/New_York"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        times = Reader(spark, bootstrap, topic).batch().selectExpr("unix_millis(timestamp) AS ms").collect()
    finally:
        for name, text in before.items():
            spark.conf.set(name, text or "")
    assert [row.ms for row in times] == [NOON_MS]


def test_a_batch_reads_between_the_offsets_of_its_options(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, numbered(20, 0, 0) + numbered(20, 20, 1))
    reader = Reader(spark, bootstrap, topic)
    between = reader.batch(
        startingOffsets=json.dumps({topic: {"0": 5, "1": -2}}), endingOffsets=json.dumps({topic: {"0": 7, "1": 1}})
    )
    assert values(between) == ["value-20", "value-5", "value-6"]
    late = reader.batch(startingTimestamp=str(NOON_MS + 38), startingOffsetsByTimestampStrategy="latest")
    assert values(late) == ["value-38", "value-39"]


def test_ranges_are_divided_among_tasks_without_loss(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(1000))
    frame = Reader(spark, bootstrap, topic).batch(minPartitions="7", maxRecordsPerPartition="90")
    assert frame.rdd.getNumPartitions() == 12
    assert values(frame) == sorted(f"value-{number}" for number in range(1000))


def test_an_empty_topic_has_no_rows(spark: "SparkSession", bootstrap: str, new_topic: TopicMaker) -> None:
    assert Reader(spark, bootstrap, new_topic(3)).batch().count() == 0


@needs_limits
def test_a_stream_that_takes_what_is_there_keeps_its_limit_and_goes_on_from_its_checkpoint(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, numbered(60, 0, 0) + numbered(30, 60, 1))
    frame = Reader(spark, bootstrap, topic).stream(maxOffsetsPerTrigger="30")
    first = Collected(frame, tmp_path).finish()
    assert [len(batch) for batch in first.batches.values()] == [30, 30, 30]
    assert {row.partition for row in first.batches[0]} == {0, 1}
    produce(bootstrap, topic, numbered(5, 90, 0))
    second = Collected(frame, tmp_path).finish()
    assert second.values() == [f"value-{number}" for number in range(90, 95)]
    assert first.values() == sorted(f"value-{number}" for number in range(90))


@needs_latest_offsets
def test_a_running_stream_sees_new_records_and_new_partitions(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    admin, topic = AdminClient({"bootstrap.servers": bootstrap}), new_topic()
    produce(bootstrap, topic, numbered(3))
    with running(Reader(spark, bootstrap, topic).stream(), tmp_path) as collected:
        collected.wait_for(3)
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
        produce(bootstrap, topic, numbered(3, 3, 1))
        collected.wait_for(6)
        # Spark reports a batch after its rows are there.
        deadline_s = time.monotonic() + TIME_LIMIT_S
        while latest_offsets(collected.query).get(topic) != {"0": 3, "1": 3}:
            assert time.monotonic() < deadline_s, latest_offsets(collected.query)
            time.sleep(0.02)
    assert collected.values() == [f"value-{number}" for number in range(6)]


@needs_limits
def test_a_batch_that_failed_is_read_again_as_it_was(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, numbered(20, 0, 0) + numbered(10, 20, 1))
    frame = Reader(spark, bootstrap, topic).stream(maxOffsetsPerTrigger="12")
    with pytest.raises(Exception, match="batch 1 is refused"):
        Collected(frame, tmp_path, fail_in_batch=1).finish()
    produce(bootstrap, topic, numbered(10, 30, 1))
    again = Collected(frame, tmp_path).finish()
    assert min(again.batches) == 1
    assert len(again.batches[1]) == 12
    assert not any(row.value == b"value-30" for row in again.batches[1]), "it came after the batch was planned"
    assert len(again.rows()) == len(set(again.values())) == 40 - 12


def test_large_micro_batches_are_read_by_tasks(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, numbered(300, 0, 0) + numbered(200, 300, 1))
    frame = Reader(spark, bootstrap, topic).stream(driverReadRows="10")
    assert Collected(frame, tmp_path).finish().values() == sorted(f"value-{number}" for number in range(500))


def test_few_large_records_are_read_by_tasks_too(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic(2, max_message_bytes="20000000")
    large = Message(bytes(10_000_000), None, 0)
    produce(bootstrap, topic, [Message(b"small", None, 1)])
    reader = Reader(spark, bootstrap, topic)
    frame = reader.stream().selectExpr("length(value) AS size", "spark_partition_id() AS task")
    assert [row.size for row in Collected(frame, tmp_path).finish().rows()] == [5]
    produce(bootstrap, topic, [large, large, Message(b"small", None, 1)], largest_message_bytes=20_000_000)
    rows = Collected(frame, tmp_path).finish().rows()
    assert sorted((row.size, row.task) for row in rows) == [(5, 1), (10_000_000, 0), (10_000_000, 0)]


def test_records_that_were_deleted_fail_the_query_or_are_passed_over(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin, topic = AdminClient({"bootstrap.servers": bootstrap}), new_topic()
    produce(bootstrap, topic, numbered(10))
    reader = Reader(spark, bootstrap, topic)
    Collected(reader.stream(), tmp_path).finish()
    produce(bootstrap, topic, numbered(10, 10))
    place = TopicPartition(topic, 0, 15)
    admin.delete_records([place])[place].result(60)
    with pytest.raises(Exception, match="failOnDataLoss") as raised:
        Collected(reader.stream(), tmp_path).finish()
    assert "the log now begins at 15 and ends at 20" in str(raised.value)
    rest = Collected(reader.stream(failOnDataLoss="false"), tmp_path).finish()
    assert rest.values() == [f"value-{number}" for number in range(15, 20)]


def test_a_topic_that_was_made_again_is_noticed(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    topic = new_topic()
    produce(bootstrap, topic, numbered(10))
    reader = Reader(spark, bootstrap, topic)
    Collected(reader.stream(), tmp_path).finish()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    produce(bootstrap, topic, numbered(12, 100))
    with pytest.raises(Exception, match="created again"):
        Collected(reader.stream(), tmp_path).finish()
    afresh = Collected(reader.stream(failOnDataLoss="false"), tmp_path).finish()
    assert afresh.values() == [f"value-{number}" for number in range(100, 112)]


def test_filters_on_the_place_of_records_are_pushed_down(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, [Message(b"v", None, number % 2, NOON_MS + number) for number in range(200)])
    frame = Reader(spark, bootstrap, topic).batch()
    filtered = frame.where("partition = 1 AND offset >= 90 AND key IS NULL").select("offset")
    assert sorted(row.offset for row in filtered.collect()) == list(range(90, 100))
    plan = filtered._jdf.queryExecution().executedPlan()
    assert "offset" not in plan.toString().partition("Filter")[2].partition("\n")[0]  # Spark evaluates only the key
    assert rows_read(plan) == 10
    since = frame.where(
        f"timestamp >= timestamp_millis({NOON_MS + 190}) AND timestamp < timestamp_millis({NOON_MS + 194})"
    )
    assert since.count() == 4
    later = since.select("offset")
    assert (len(later.collect()), rows_read(later._jdf.queryExecution().executedPlan())) == (4, 10)


def rows_read(plan: Any) -> int:
    """Rows that the scan of an executed plan has read."""
    while plan.children().size():
        plan = plan.children().head()
    return int(plan.metrics().apply("numOutputRows").value())


@pytest.mark.spark
def test_a_table_of_the_catalog_is_refused_with_the_reason(spark: "SparkSession") -> None:
    """Spark does not pass its options on when the table is read. With columns, CREATE TABLE does not ask the source."""
    options = "OPTIONS ('kafka.bootstrap.servers' 'localhost:1', subscribe 'orders')"
    reason = "a table of Spark's catalog does not pass them on; use CREATE TEMPORARY"
    with pytest.raises(Exception, match=reason):
        spark.sql(f"CREATE TABLE refused USING tidelog {options}")
    assert not spark.catalog.tableExists("refused")
    spark.sql(f"CREATE TABLE unreadable (value binary) USING tidelog {options}")
    try:
        with pytest.raises(Exception, match=reason):
            spark.table("unreadable").collect()
    finally:
        spark.sql("DROP TABLE unreadable")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW accepted USING tidelog {options}")
    assert spark.table("accepted").columns[:2] == ["key", "value"]

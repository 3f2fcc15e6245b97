import pickle
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.clients.broker import TidelogProcess
from tests.spark.pyspark_version import limit
from tests.spark_session import Message, TopicMaker, produce
from tidelog.client.producer.partitioner import partition_of_key
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import ClusterMetadata
from tidelog.errors import InvalidReplicationFactor
from tidelog.protocol.compression import Codec
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from tidelog.protocol.messages.describe_producers import (
    TopicRequest as DescribeProducersTopic,
)
from tidelog.spark import client_thread
from tidelog.spark.data_source import DefaultSource
from tidelog.spark.errors import BrokersUnavailable, UnknownTopic
from tidelog.spark.options.client_settings import ClientSettings
from tidelog.spark.options.query import WriteOptions
from tidelog.spark.options.values import OptionError
from tidelog.spark.sink.delivery import NotWritten
from tidelog.spark.sink.task_messages import Written
from tidelog.spark.sink.writer import BatchWriter, check_columns, write_rows
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = WriteOptions("localhost:9092", topic="orders")
KEYED = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class Read(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def read_all(bootstrap: str, topic: str, count: int) -> list[Read]:
    """The first so many records, by librdkafka, each partition in order."""
    from confluent_kafka import Consumer

    settings = {"group.id": "tests", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    found: list[Read] = []
    try:
        consumer.assign(_beginnings(consumer, topic))
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=60)
            assert messages, f"{len(found)} of {count} records came"
            for message in messages:
                assert message.error() is None
                found.append(
                    Read(
                        message.partition() or 0,
                        message.key(),
                        message.value(),
                        message.timestamp()[1],
                        tuple(message.headers() or ()),  # type: ignore[arg-type]
                    )
                )
    finally:
        consumer.close()
    return sorted(found, key=lambda read: read.partition)


def _beginnings(consumer, topic: str):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    from confluent_kafka import OFFSET_BEGINNING
    from confluent_kafka import TopicPartition as Assigned

    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    return [Assigned(topic, partition, OFFSET_BEGINNING) for partition in partitions]


# -- what may be written


HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    "columns",
    [
        schema(value=StringType()),
        schema(key=StringType(), value=BinaryType(), headers=HEADERS),
        schema(key=BinaryType(), value=BinaryType(), topic=StringType(), partition=IntegerType()),
        schema(offset=LongType(), value=BinaryType(), timestamp=TimestampType(), timestampType=IntegerType()),
    ],
)
def test_rows_with_the_columns_of_a_record_can_be_written(columns: StructType) -> None:
    check_columns(columns, OPTIONS)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (schema(key=StringType()), "no column 'value', which every record needs; rename"),
        (schema(values=StringType()), "no column 'value', which every record needs; did you mean column 'values'"),
        (schema(value=LongType()), "Column 'value' is bigint, but must be binary or string"),
        (schema(key=LongType(), value=StringType()), "Column 'key' is bigint, but must be binary or"),
        (schema(value=StringType(), partition=LongType()), "Column 'partition' is bigint, but must be int"),
        (schema(value=StringType(), timestamp=LongType()), "Column 'timestamp' is bigint, but must be timestamp"),
        (
            schema(value=StringType(), headers=MapType(StringType(), BinaryType())),
            "Column 'headers' is map<string,binary>, but must be array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_a_column_that_cannot_be_written_is_named(columns: StructType, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        check_columns(columns, OPTIONS)


def test_without_a_topic_there_is_nowhere_to_write_to() -> None:
    nowhere = WriteOptions("localhost:9092")
    check_columns(schema(topic=StringType(), value=StringType()), nowhere)
    with pytest.raises(OptionError, match="no topic to write to: set the option 'topic'"):
        check_columns(schema(value=StringType()), nowhere)


def test_a_topic_cannot_be_overwritten() -> None:
    source = DefaultSource({"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"})
    with pytest.raises(OptionError, match=r"use mode\('append'\)"):
        source.writer(schema(value=StringType()), overwrite=True)
    assert isinstance(source.writer(schema(value=StringType()), overwrite=False), BatchWriter)


def test_writers_and_what_they_report_can_be_sent_to_and_from_tasks() -> None:
    writer = pickle.loads(pickle.dumps(BatchWriter(OPTIONS, schema(value=StringType()))))
    message = pickle.loads(pickle.dumps(Written({TopicPartition("orders", 3): 7})))
    assert message == Written({TopicPartition("orders", 3): 7})
    writer.commit([message, None])


# -- writing to a broker, without Spark


def options_for(broker: TidelogProcess, topic: str | None, **client: object) -> WriteOptions:
    return WriteOptions(broker.bootstrap, topic, client=ClientSettings(**client))  # type: ignore[arg-type]


def keyed_rows(start: int, end: int) -> pa.RecordBatch:
    keys = [b"key-%d" % (number % 1000) for number in range(start, end)]
    return pa.record_batch(
        [pa.array(keys, pa.binary()), pa.array([b"%d" % n for n in range(start, end)])], schema=KEYED
    )


def producers_of(broker: TidelogProcess, topic: str) -> list[int]:
    """The ids of those that the broker remembers in partition 0."""

    async def ask() -> list[int]:
        cluster = client_thread.cluster_for(broker.bootstrap, ClientSettings())
        request = DescribeProducersRequest([DescribeProducersTopic(topic, [0])])
        response = await cluster.ask_any(request, DescribeProducersResponse)
        return [found.producer_id for found in response.topics[0].partitions[0].active_producers]

    return client_thread.run(ask())


@pytest.mark.parametrize("codec", Codec)
def test_rows_reach_the_partitions_of_their_keys_in_order(
    running_broker: TidelogProcess, new_topic: TopicMaker, codec: Codec
) -> None:
    topic = new_topic(partitions=5, suffix=codec.name)
    groups = [keyed_rows(start, start + 4000) for start in range(0, 20_000, 4000)]
    options = options_for(running_broker, topic, compression=codec, batch_bytes=20_000)
    written = write_rows(iter(groups), options)
    found = read_all(running_broker.bootstrap, topic, 20_000)
    assert sorted(int(read.value or b"") for read in found) == list(range(20_000))
    assert all(read.partition == partition_of_key(read.key or b"", 5) for read in found)
    for partition in range(5):
        numbers = [int(read.value or b"") for read in found if read.partition == partition]
        assert numbers == sorted(numbers)
        assert written.record_counts[TopicPartition(topic, partition)] == len(numbers)


def test_keys_land_where_other_clients_put_them(running_broker: TidelogProcess, new_topic: TopicMaker) -> None:
    from confluent_kafka import Producer

    ours, theirs = new_topic(partitions=7), new_topic(partitions=7)
    producer = Producer({"bootstrap.servers": running_broker.bootstrap, "partitioner": "murmur2_random"})
    keys = [bytes(range(length, 2 * length)) for length in range(1, 80)]
    for key in keys:
        producer.produce(theirs, b"", key)
    assert producer.flush(30) == 0
    rows = pa.record_batch([pa.array(keys, pa.binary()), pa.array([b""] * len(keys))], schema=KEYED)
    write_rows(iter([rows]), options_for(running_broker, ours))
    places = [
        {(read.key, read.partition) for read in read_all(running_broker.bootstrap, topic, len(keys))}
        for topic in (ours, theirs)
    ]
    assert places[0] == places[1]


def test_a_record_larger_than_its_topic_allows_is_refused_by_name(
    running_broker: TidelogProcess, new_topic: TopicMaker
) -> None:
    topic = new_topic(max_message_bytes="10000")
    rows = pa.record_batch({"value": pa.array([b"small", bytes(50_000), b"small"])})
    with pytest.raises(NotWritten, match=rf"50\d\d\d bytes for {topic}-0 .*\. Increase max\.message\.bytes"):
        write_rows(iter([rows]), options_for(running_broker, topic))


def test_batches_larger_than_the_topic_allows_are_divided(
    running_broker: TidelogProcess, new_topic: TopicMaker
) -> None:
    topic = new_topic(max_message_bytes="10000")
    options = options_for(running_broker, topic)
    write_rows(iter([keyed_rows(0, 5000)]), options)
    found = read_all(running_broker.bootstrap, topic, 5000)
    assert [int(read.value or b"") for read in found] == list(range(5000))


def test_a_topic_that_does_not_exist_is_made_by_the_broker(
    running_broker: TidelogProcess, new_topic: TopicMaker
) -> None:
    topic = new_topic() + ".made-by-writing"
    rows = pa.record_batch({"topic": pa.array([topic]), "value": pa.array(["1"])})
    write_rows(iter([rows]), options_for(running_broker, None))
    assert [read.value for read in read_all(running_broker.bootstrap, topic, 1)] == [b"1"]


def test_a_topic_that_cannot_exist_is_refused_by_name(running_broker: TidelogProcess) -> None:
    rows = pa.record_batch({"value": pa.array(["1"])})
    with pytest.raises(UnknownTopic, match="Topic 'no/such' cannot be written to"):
        write_rows(iter([rows]), options_for(running_broker, "no/such"))


def too_few_brokers(monkeypatch: pytest.MonkeyPatch, topic: str, responses: int) -> None:
    """As if a broker were dead for so many answers, and the topic needed a replica on it."""
    ask_topics = Cluster.ask_topics
    left = iter(range(responses))

    async def ask(self: Cluster, topics: Iterable[str] | None, *, may_create: bool = False) -> ClusterMetadata:
        found = await ask_topics(self, topics, may_create=may_create)
        if next(left, None) is None:
            return found
        return found._replace(topics={}, errors={topic: InvalidReplicationFactor()})

    monkeypatch.setattr(Cluster, "ask_topics", ask)


def test_a_topic_is_made_when_the_brokers_for_its_replicas_are_back(
    running_broker: TidelogProcess, new_topic: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    too_few_brokers(monkeypatch, topic, responses=3)
    rows = pa.record_batch({"value": pa.array(["1"])})
    write_rows(iter([rows]), options_for(running_broker, topic))
    assert [read.value for read in read_all(running_broker.bootstrap, topic, 1)] == [b"1"]


def test_too_few_brokers_for_a_new_topic_are_named(
    running_broker: TidelogProcess, new_topic: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    too_few_brokers(monkeypatch, topic, responses=1000)
    options = WriteOptions(running_broker.bootstrap, topic, client=ClientSettings(timeout_s=0.3))
    with pytest.raises(UnknownTopic, match="too few brokers for its replicas: start the missing brokers"):
        write_rows(iter([pa.record_batch({"value": pa.array(["1"])})]), options)


def test_brokers_that_are_away_are_named() -> None:
    options = WriteOptions("127.0.0.1:1", "orders", client=ClientSettings(timeout_s=0.1))
    with pytest.raises(BrokersUnavailable, match=r"brokers at 127\.0\.0\.1:1 did not answer"):
        write_rows(iter([pa.record_batch({"value": pa.array(["1"])})]), options)


def test_tasks_one_after_another_are_one_producer_to_the_broker(
    running_broker: TidelogProcess, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    for _ in range(3):
        write_rows(iter([keyed_rows(0, 10)]), options_for(running_broker, topic))
    assert len(producers_of(running_broker, topic)) == 1
    assert [read.value for read in read_all(running_broker.bootstrap, topic, 30)] == [b"%d" % n for n in range(10)] * 3


def test_rows_that_break_off_leave_the_next_write_as_it_was(
    running_broker: TidelogProcess, new_topic: TopicMaker
) -> None:
    def breaking() -> Iterator[pa.RecordBatch]:
        yield keyed_rows(0, 10)
        raise RuntimeError("the rows broke off")

    topic = new_topic()
    with pytest.raises(RuntimeError, match="broke off"):
        write_rows(breaking(), options_for(running_broker, topic))
    write_rows(iter([keyed_rows(10, 20)]), options_for(running_broker, topic))
    assert [read.value for read in read_all(running_broker.bootstrap, topic, 10)] == [b"%d" % n for n in range(10, 20)]


# -- through Spark


@pytest.mark.spark
def test_a_batch_is_written_with_all_that_a_record_has(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker
) -> None:
    topics = [new_topic(partitions=3), new_topic(partitions=2)]
    time = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    rows = [
        (topics[0], "k1", b"v1", 2, time, [("trace", b"1"), ("empty", None)]),
        (topics[0], "k2", None, None, None, None),
        (topics[1], None, b"", 1, time, []),
    ]
    columns = (
        "topic string, key string, value binary, partition int, timestamp timestamp,"
        " headers array<struct<key:string,value:binary>>"
    )
    frame = spark.createDataFrame(rows, columns)
    frame.write.format("tidelog").option("kafka.bootstrap.servers", running_broker.bootstrap).mode("append").save()
    time_ms = int(time.timestamp() * 1000)
    first = {read.key: read for read in read_all(running_broker.bootstrap, topics[0], 2)}
    assert first[b"k1"] == Read(2, b"k1", b"v1", time_ms, (("trace", b"1"), ("empty", None)))
    assert first[b"k2"]._replace(timestamp_ms=0) == Read(partition_of_key(b"k2", 3), b"k2", None, 0, ())
    assert read_all(running_broker.bootstrap, topics[1], 1) == [Read(1, None, b"", time_ms, ())]


@pytest.mark.spark
def test_a_stream_is_written_from_topic_to_topic(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    source, sink = new_topic(partitions=2), new_topic(partitions=4)
    messages = [Message(b"%d" % number, b"key-%d" % (number % 50)) for number in range(2000)]
    produce(running_broker.bootstrap, source, messages)
    address = {"kafka.bootstrap.servers": running_broker.bootstrap}
    rows = spark.readStream.format("tidelog").options(
        **address, subscribe=source, startingOffsets="earliest", **limit(700)
    )
    query = (
        rows.load()
        .select("key", "value")
        .writeStream.format("tidelog")
        .options(**address, topic=sink, checkpointLocation=str(tmp_path), **{"kafka.compression.type": "zstd"})
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    found = read_all(running_broker.bootstrap, sink, 2000)
    assert Counter((read.key, read.value) for read in found) == Counter((m.key, m.value) for m in messages)
    assert all(read.partition == partition_of_key(read.key or b"", 4) for read in found)

"""Topic to topic in a real Spark session: each record once; and how far a query is, for others to see."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.broker import TidelogProcess
from tests.spark.pyspark_version import needs_limits
from tests.spark.queries import Collected, Reader, numbered, running
from tests.spark.test_exactly_once import committed
from tests.spark_session import Message, TopicMaker, produce
from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.spark import client_thread
from tidelog.spark.options.client_settings import ClientSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def bootstrap(running_broker: TidelogProcess) -> str:
    return running_broker.bootstrap


def numbers(start: int, end: int) -> list[Message]:
    return [Message(b"%d" % number, b"%d" % number) for number in range(start, end)]


def copy(frame: "DataFrame", bootstrap: str, topic: str, checkpoint: Path, **options: Any) -> None:
    writer = frame.select("key", "value").writeStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.options(**{"topic": topic, **options}).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(300)


def group_offsets(bootstrap: str, group_id: str) -> dict[int, int]:
    async def ask() -> dict[int, int]:
        cluster = client_thread.cluster_for(bootstrap, ClientSettings())
        offsets = await GroupAdmin(cluster).offsets(group_id)
        return {key.partition: found.offset for key, found in offsets.items()}

    return client_thread.run(ask())


@needs_limits
def test_a_batch_that_spark_has_forgotten_to_note_is_not_written_again(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    source, target, checkpoint = new_topic(2), new_topic(2), tmp_path / "checkpoint"
    produce(bootstrap, source, numbers(0, 3000))
    stream = Reader(spark, bootstrap, source).stream(maxOffsetsPerTrigger=1000, driverReadRows=0)
    copy(stream, bootstrap, target, checkpoint)
    commits = sorted(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal())
    assert len(commits) >= 3
    (checkpoint / "commits" / str(commits[-1])).unlink()  # as if the driver had died between the two
    (checkpoint / "commits" / f".{commits[-1]}.crc").unlink(missing_ok=True)
    produce(bootstrap, source, numbers(3000, 3500))
    copy(stream, bootstrap, target, checkpoint)
    assert committed(bootstrap, target) == list(range(3500))


def test_a_job_that_fails_leaves_nothing_and_one_that_does_not_all(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic(2)
    rows = spark.range(2000, numPartitions=2).selectExpr("string(id) AS value", "id")
    failing = rows.selectExpr("value", "if(id = 1999, raise_error('as asked'), 'key') AS key")
    with pytest.raises(Exception, match="as asked"):
        write(failing, bootstrap, topic)
    assert committed(bootstrap, topic) == []
    write(rows.select("value"), bootstrap, topic)
    assert committed(bootstrap, topic) == list(range(2000))


def write(frame: "DataFrame", bootstrap: str, topic: str) -> None:
    writer = frame.write.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).mode("append").save()


def test_a_reader_of_committed_records_sees_nothing_else(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(10)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(10) == 0
        if number == 5:
            break
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(10)
    wanted = ["1"] * 3 + ["3"] * 3
    reader, level = Reader(spark, bootstrap, topic), {"kafka.isolation.level": "read_committed"}
    assert sorted(row.value.decode() for row in reader.batch(**level).collect()) == wanted
    assert reader.batch().count() == 18
    for rows in (0, 20_000):
        stream = reader.stream(**level, driverReadRows=rows)
        assert Collected(stream, tmp_path / f"checkpoint-{rows}").finish().values() == wanted
    with running(reader.stream(**level), tmp_path / "running") as collected:
        collected.wait_for(6)
        producer.commit_transaction(10)
        collected.wait_for(9)
        assert collected.values() == [*wanted, "5", "5", "5"]


def test_how_far_a_stream_is_can_be_seen_as_a_group(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, numbered(10, partition=0) + numbered(20, partition=1))
    group_id = f"progress-of-{topic}"
    frame = Reader(spark, bootstrap, topic).stream(**{"kafka.group.id": group_id})
    with running(frame, tmp_path / "checkpoint") as collected:
        collected.wait_for(30)
        wait_for_offsets(bootstrap, group_id, {0: 10, 1: 20})
        produce(bootstrap, topic, numbered(5, partition=0))
        collected.wait_for(35)
        wait_for_offsets(bootstrap, group_id, {0: 15, 1: 20})
    start = json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1])
    assert start[topic] == {"0": 10, "1": 20}


def wait_for_offsets(bootstrap: str, group_id: str, wanted: dict[int, int]) -> None:
    deadline = time.monotonic() + 120
    while (found := group_offsets(bootstrap, group_id)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_a_group_with_members_is_left_alone_and_the_query_goes_on(
    spark: "SparkSession", bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    from confluent_kafka import Consumer

    topic = new_topic(1)
    produce(bootstrap, topic, numbered(10))
    settings = {"group.id": f"members-of-{topic}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([topic])
    assert consumer.consume(10, 30)
    frame = Reader(spark, bootstrap, topic).stream(**{"kafka.group.id": settings["group.id"]})
    assert len(Collected(frame, tmp_path / "checkpoint").finish().values()) == 10
    consumer.close()
    assert group_offsets(bootstrap, str(settings["group.id"])) == {}

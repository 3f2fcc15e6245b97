"""Exactly once with brokers that have no transaction groups: Apache Kafka, one producer for all tasks of a batch."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.clients.broker import ApacheKafkaProcess, running
from tests.spark.test_exactly_once import Query, committed, job
from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.producer.transaction_group import TransactionGroup
from tidelog.spark import client_thread
from tidelog.spark.options.client_settings import ClientSettings
from tidelog.spark.sink.commits import QueryFenced
from tidelog.spark.sink.task_messages import NotExactlyOnce, SharedTransaction, Task, Written
from tidelog.spark.sink.writer import StreamWriter, write_rows

VERSION = os.environ.get("TIDELOG_TEST_APACHE_KAFKA", "")
PARTITIONS = 2


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not VERSION:
        pytest.skip("TIDELOG_TEST_APACHE_KAFKA names the version of Kafka to run, such as 4.3.1")
    process = ApacheKafkaProcess(VERSION, tmp_path_factory.mktemp("apache-kafka"))
    with running(process):
        yield process.bootstrap


@pytest.fixture(params=["Apache Kafka", "Tidelog that hides what Kafka lacks"])
def kafka(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "Apache Kafka":
        return str(request.getfixturevalue("apache_kafka"))

    async def is_supported(group: TransactionGroup) -> bool:
        return False

    monkeypatch.setattr(TransactionGroup, "is_supported", is_supported)
    return str(request.getfixturevalue("running_broker").bootstrap)


@pytest.fixture
def query(kafka: str, tmp_path: Path, request: pytest.FixtureRequest) -> Query:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    topic = re.sub("[^a-z_]", "-", request.node.name)[:200]
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    return Query(kafka, topic, tmp_path / "checkpoint", topic)


def task(query: Query, writer: StreamWriter, batch_id: int, partition: int, *numbers: int, attempt: int = 0) -> Written:
    """Writes to the partition of its own number."""
    values = pa.array([b"%d" % number for number in numbers], pa.binary())
    rows = pa.record_batch([values, pa.array([partition] * len(numbers), pa.int32())], names=["value", "partition"])
    return write_rows(iter([rows]), query.options, writer._transaction, Task(partition, attempt, 0, batch_id))


def seen(query: Query) -> list[int]:
    return committed(query.options.bootstrap, query.options.topic or "")


def test_rows_of_all_tasks_count_together_and_the_batch_with_them(query: Query) -> None:
    for batch_id in range(3):
        writer = query.started()
        assert isinstance(writer._transaction, SharedTransaction)
        assert writer._transaction.last_batch_id == batch_id - 1
        messages = [task(query, writer, batch_id, partition, 10 * batch_id + partition) for partition in range(2)]
        query.ending().commit(messages, batch_id)
    assert seen(query) == [0, 1, 10, 11, 20, 21]
    again = task(query, query.started(), 2, 0, 20)
    assert again.record_counts == {}
    query.ending().commit([again], 2)
    query.ending().commit([], 3)
    assert seen(query) == [0, 1, 10, 11, 20, 21]


def test_a_batch_that_was_broken_off_leaves_nothing(query: Query) -> None:
    message = task(query, query.started(), 0, 0, 1)
    query.ending().abort([message, None], 0)
    query.ending().commit([task(query, query.started(), 0, 0, 2)], 0)
    assert seen(query) == [2]


def test_an_older_driver_and_its_tasks_are_shut_out(query: Query) -> None:
    older = query.started()
    message = task(query, older, 0, 0, 1)
    newer = query.started()
    with pytest.raises(QueryFenced, match="another run of it has taken over"):
        task(query, older, 0, 1, 2)
    with pytest.raises(QueryFenced, match="another run of it has taken over"):
        query.ending().commit([message], 0)
    query.ending().commit([task(query, newer, 0, 0, 3)], 0)
    assert seen(query) == [3]


def test_two_tasks_at_one_partition_are_refused_and_leave_nothing(query: Query) -> None:
    writer = query.started()
    first = task(query, writer, 0, 0, 1)
    with pytest.raises(NotExactlyOnce, match="Two tasks wrote to partition"):
        task(query, writer, 0, 0, 1)
    second = Written(first.record_counts, first.transaction)
    with pytest.raises(NotExactlyOnce, match=r"Two tasks wrote to partition .*'delivery' to 'at-least-once'"):
        query.ending().commit([first, second], 0)
    query.ending().commit([task(query, query.started(), 0, 0, 2)], 0)
    assert seen(query) == [2]


def test_a_second_attempt_is_refused(query: Query) -> None:
    with pytest.raises(NotExactlyOnce, match="Task 0 was attempted before"):
        task(query, query.started(), 0, 0, 1, attempt=1)


def test_jobs_are_written_at_least_once_unless_more_is_asked_for(query: Query) -> None:
    topic = query.options.topic or ""
    rows = pa.record_batch([pa.array([b"1"])], names=["value"])
    plain = job(query.options.bootstrap, topic)
    assert plain.write(iter([rows])).transaction is None
    assert seen(query) == [1]
    asked = job(query.options.bootstrap, topic, delivery="exactly-once")
    message = asked.write(iter([rows]))
    assert seen(query) == [1]
    asked.commit([message])
    assert seen(query) == [1, 1]


def test_the_progress_is_where_kafkas_tools_find_it(query: Query) -> None:
    query.ending().commit([task(query, query.started(), 0, 0, 1)], 0)

    async def ask() -> list[int]:
        cluster = client_thread.cluster_for(query.options.bootstrap, ClientSettings())
        offsets = await GroupAdmin(cluster).offsets(f"spark-{query.query_id}")
        return [found.offset for found in offsets.values()]

    assert client_thread.run(ask()) == [1]

"""Rows written in transactions, without Spark: a driver, tasks, and a driver that knows only what they bring back."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.clients.broker import TidelogProcess
from tests.spark_session import TopicMaker
from tidelog.spark.errors import BrokersUnavailable
from tidelog.spark.options.query import OptionError, WriteOptions, write_options
from tidelog.spark.session_directory import ARTIFACTS
from tidelog.spark.sink.commits import QueryFenced
from tidelog.spark.sink.task_messages import (
    NotExactlyOnce,
    SharedTransaction,
    Task,
    Written,
    check_may_share,
    check_one_task_each,
    is_written_already,
)
from tidelog.spark.sink.transaction_names import stream_name
from tidelog.spark.sink.writer import BatchWriter, StreamWriter, write_rows
from tidelog.types import TopicPartition

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def rows(*numbers: int) -> Iterator[pa.RecordBatch]:
    values = [b"%d" % number for number in numbers]
    yield pa.record_batch([pa.array(values, pa.binary())] * 2, names=["key", "value"])


class Query:
    """A streaming query as the sink meets it: Spark's calls, in Spark's order."""

    def __init__(self, bootstrap: str, topic: str, checkpoint: Path, query_id: str = "q", **others: str) -> None:
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": query_id}))
        self.query_id = query_id
        given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "checkpointLocation": str(checkpoint)}
        self.options = write_options(given | others, is_stream=True)
        self._attempts = 0

    def started(self) -> StreamWriter:
        """What is sent to the tasks of a micro-batch."""
        writer = StreamWriter(self.options, SCHEMA)
        sent, again = pickle.dumps(writer), pickle.dumps(writer)
        assert sent == again
        found = pickle.loads(sent)
        assert isinstance(found, StreamWriter)
        return found

    def task(self, writer: StreamWriter, batch_id: int, *numbers: int, partition: int = 0) -> Written:
        self._attempts += 1
        task = Task(partition, 0, self._attempts, batch_id, self.query_id)
        found = write_rows(rows(*numbers), self.options, writer._transaction, task)
        message = pickle.loads(pickle.dumps(found))
        assert isinstance(message, Written)
        return message

    def ending(self) -> StreamWriter:
        return StreamWriter(self.options, SCHEMA)


def committed(bootstrap: str, topic: str) -> list[int]:
    """What a reader of committed records finds, by librdkafka."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Assigned

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "x", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    consumer.assign([Assigned(topic, number, 0) for number in partitions])
    found, ends = [], 0
    while ends < len(partitions):
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            ends += 1
        else:
            found.append(int(message.value() or b""))
    consumer.close()
    return sorted(found)


@pytest.fixture
def query(
    running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path, request: pytest.FixtureRequest
) -> Query:
    topic = new_topic(partitions=2)
    return Query(running_broker.bootstrap, topic, tmp_path / "checkpoint", f"{request.node.name}")


def seen(query: Query) -> list[int]:
    assert query.options.topic is not None
    return committed(query.options.bootstrap, query.options.topic)


def test_rows_of_all_tasks_count_together(query: Query) -> None:
    writer = query.started()
    messages = [query.task(writer, 0, 1, 2, 3), query.task(writer, 0, 4, 5, partition=1)]
    assert seen(query) == []
    query.ending().commit(messages, 0)
    assert seen(query) == [1, 2, 3, 4, 5]


def test_only_the_attempt_that_spark_counts_is_seen(query: Query) -> None:
    writer = query.started()
    query.task(writer, 0, 1, 2)
    winner = query.task(writer, 0, 1, 2)
    query.ending().commit([winner], 0)
    assert seen(query) == [1, 2]


def test_a_batch_that_is_run_again_after_its_commit_is_written_once(query: Query) -> None:
    query.ending().commit([query.task(query.started(), 0, 1)], 0)
    again = query.started()
    message = query.task(again, 0, 1)
    assert (message.record_counts, message.member_id) == ({}, None)
    query.ending().commit([message], 0)
    query.ending().commit([query.task(query.started(), 1, 2)], 1)
    assert seen(query) == [1, 2]


def test_a_commit_that_is_asked_for_twice_counts_once(query: Query) -> None:
    message = query.task(query.started(), 0, 1)
    for _ in range(2):
        query.ending().commit([message], 0)
    assert seen(query) == [1]


def test_a_batch_that_was_broken_off_leaves_nothing(query: Query) -> None:
    message = query.task(query.started(), 0, 1)
    query.ending().abort([None, message], 0)
    query.ending().abort([None, None], 0)
    query.ending().commit([query.task(query.started(), 0, 2)], 0)
    assert seen(query) == [2]


def test_an_older_driver_and_its_tasks_are_shut_out(query: Query) -> None:
    older = query.started()
    message = query.task(older, 0, 1)
    newer = query.started()
    with pytest.raises(QueryFenced, match=r"^This query cannot write any more: another run of it has taken over"):
        query.task(older, 0, 2)
    with pytest.raises(QueryFenced, match="has taken over"):
        query.ending().commit([message], 0)
    query.ending().abort([message], 0)
    query.ending().commit([query.task(newer, 0, 3)], 0)
    assert seen(query) == [3]


def test_batches_without_rows_or_without_tasks_are_committed_too(query: Query) -> None:
    query.ending().commit([query.task(query.started(), 0)], 0)
    query.started()
    query.ending().commit([], 1)
    assert query.task(query.started(), 1, 5).member_id is None
    query.ending().commit([query.task(query.started(), 2, 6)], 2)
    assert seen(query) == [6]


def test_a_checkpoint_that_went_back_is_reported(query: Query) -> None:
    for number in range(2):
        query.ending().commit([query.task(query.started(), number, number)], number)
    with pytest.raises(NotExactlyOnce, match="Batch 0 cannot be written exactly once: batch 1 was already written"):
        query.task(query.started(), 0, 0)


def test_queries_do_not_know_of_each_other(
    running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic()
    for name in ("one", "other"):
        query = Query(running_broker.bootstrap, topic, tmp_path / name, f"{topic}-{name}")
        query.ending().commit([query.task(query.started(), 0, 1)], 0)
    assert committed(running_broker.bootstrap, topic) == [1, 1]


def test_at_least_once_is_as_it_always_was(
    running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic()
    query = Query(running_broker.bootstrap, topic, tmp_path / "checkpoint", delivery="at-least-once")
    message = query.task(query.started(), 0, 1)
    assert message.transaction is None
    assert committed(running_broker.bootstrap, topic) == [1]
    query.ending().commit([message], 0)
    query.ending().abort([message], 0)


def test_a_query_that_cannot_be_named_is_written_at_least_once_if_that_is_good_enough(
    running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic()
    query = Query(running_broker.bootstrap, topic, tmp_path / "checkpoint", delivery="auto")
    (tmp_path / "checkpoint" / "metadata").unlink()
    message = query.task(query.started(), 0, 1)
    assert message.transaction is None
    query.ending().commit([message], 0)
    assert committed(running_broker.bootstrap, topic) == [1]


def test_why_a_batch_cannot_begin_is_reported_by_its_tasks(tmp_path: Path) -> None:
    query = Query("127.0.0.1:1", "orders", tmp_path / "checkpoint", **{"kafka.max.block.ms": "200"})
    with pytest.raises(BrokersUnavailable, match=r"The brokers at 127.0.0.1:1 could not open the transaction"):
        query.task(query.started(), 0, 1)


def test_a_timeout_that_brokers_do_not_allow_is_named(
    running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    long = {"kafka.transaction.timeout.ms": "999999999"}
    query = Query(running_broker.bootstrap, new_topic(), tmp_path / "checkpoint", **long)
    with pytest.raises(NotExactlyOnce, match=r"'kafka.transaction.timeout.ms' is 999999999, more than the brokers"):
        query.task(query.started(), 0, 1)


# -- batches that are no stream


def job(bootstrap: str, topic: str, **others: str) -> BatchWriter:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic} | others
    writer = pickle.loads(pickle.dumps(BatchWriter(write_options(given, is_stream=False), SCHEMA)))
    assert isinstance(writer, BatchWriter)
    return writer


def test_a_job_counts_as_a_whole_or_leaves_nothing(running_broker: TidelogProcess, new_topic: TopicMaker) -> None:
    topic = new_topic()
    failed, good = job(running_broker.bootstrap, topic), job(running_broker.bootstrap, topic)
    lost, kept = failed.write(rows(1, 2)), good.write(rows(3))
    failed.abort([lost, None])
    assert committed(running_broker.bootstrap, topic) == []
    good.commit([kept])
    assert committed(running_broker.bootstrap, topic) == [3]


def test_a_numbered_batch_is_written_once(running_broker: TidelogProcess, new_topic: TopicMaker) -> None:
    topic = new_topic()
    for number, value in ((0, 1), (0, 2), (1, 3)):
        named = {"kafka.transactional.id": topic, "batchId": str(number)}
        writer = job(running_broker.bootstrap, topic, **named)
        writer.commit([writer.write(rows(value))])
    assert committed(running_broker.bootstrap, topic) == [1, 3]


# -- names


def named(**options: str) -> str:
    return stream_name(write_options({"kafka.bootstrap.servers": "x:1", "topic": "t"} | options, is_stream=True)).name


def test_a_query_is_named_after_the_id_in_its_checkpoint(tmp_path: Path) -> None:
    directory = tmp_path / "with space"
    directory.mkdir()
    (directory / "metadata").write_text('{"id":"c277d6b1"}')
    assert named(checkpointLocation=str(directory)) == "spark-c277d6b1"
    assert named(checkpointLocation=f"file:{str(directory).replace(' ', '%20')}") == "spark-c277d6b1"
    assert named(checkpointLocation=directory.as_uri()) == "spark-c277d6b1"
    assert named(checkpointLocation=str(directory), **{"kafka.transactional.id": "mine"}) == "mine"


def test_a_relative_checkpoint_is_refused_in_a_directory_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"c277d6b1"}')
    monkeypatch.chdir(tmp_path)
    assert named(checkpointLocation="checkpoint") == "spark-c277d6b1"
    monkeypatch.setenv(ARTIFACTS, "0f0ce7ea")
    assert named(checkpointLocation=str(tmp_path / "checkpoint")) == "spark-c277d6b1"
    with pytest.raises(OptionError, match="checkpointLocation = 'checkpoint' is a relative path"):
        named(checkpointLocation="checkpoint")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "'checkpointLocation' is missing.*set it for the query itself.*'kafka.transactional.id'.*'at-least-once'"),
        (
            {"checkpointLocation": "/does/not/exist"},
            "The sink cannot read the checkpoint at '/does/not/exist' .*transactional.id",
        ),
        (
            {"checkpointLocation": "nowhere://x/y"},
            "The sink cannot read the checkpoint at 'nowhere://x/y' .*transactional.id",
        ),
    ],
)
def test_the_error_for_a_query_without_a_name_says_what_to_do(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        named(**options)


# -- one producer for all tasks


def shared(last_batch_id: int = -1) -> SharedTransaction:
    return SharedTransaction("x", 1, 0, last_batch_id)


def test_a_batch_that_is_written_already_is_recognised_by_its_number() -> None:
    assert not is_written_already(shared(), Task(batch_id=0))
    assert is_written_already(shared(4), Task(batch_id=4))
    assert not is_written_already(shared(4), Task(batch_id=5))
    assert not is_written_already(shared(4), Task())


def test_a_task_of_another_query_is_refused() -> None:
    transaction = SharedTransaction("x", 1, 0, query_id="one")
    with pytest.raises(NotExactlyOnce, match="belongs to query one, but this is query other"):
        is_written_already(transaction, Task(batch_id=0, query_id="other"))


def test_tasks_that_share_a_producer_have_one_attempt_and_no_copies() -> None:
    check_may_share(Task())
    with pytest.raises(NotExactlyOnce, match="Task 3 was attempted before"):
        check_may_share(Task(partition=3, attempt=1))
    with pytest.raises(NotExactlyOnce, match=r"spark.speculation"):
        check_may_share(Task(is_speculative=True))


def test_tasks_that_share_a_producer_have_partitions_of_their_own() -> None:
    check_one_task_each([Written({FIRST: 1}), Written({SECOND: 1}), Written({})])
    with pytest.raises(NotExactlyOnce, match=r"Two tasks wrote to partition orders-1.*'delivery' to 'at-least-once'"):
        check_one_task_each([Written({FIRST: 1, SECOND: 1}), Written({SECOND: 1})])


def test_options_of_a_sink_that_was_made_by_hand_write_at_least_once() -> None:
    assert not WriteOptions("x:1").uses_transactions

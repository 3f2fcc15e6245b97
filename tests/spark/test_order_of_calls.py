"""Order of Spark's calls that exactly-once writing relies on: which method of a sink, in which process, and when.

None of it is promised by PySpark. If a test fails here, look at it before anything that writes exactly once.
"""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

ROWS_PER_BATCH = 10
TASKS = 2
TIME_LIMIT_S = 180.0


def probe() -> "type[DataSource]":  # noqa: C901 - one class after the other
    """A sink that notes how it is called. Made here, so that it travels with its code to processes without tests."""
    import os

    from pyspark import TaskContext
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceStreamArrowWriter,
        WriterCommitMessage,
    )

    def note(options: Any, call: str, **facts: Any) -> None:
        with open(options["notes"], "a") as file:
            file.write(json.dumps({"call": call, "process": os.getpid(), **facts}) + "\n")

    class Message(WriterCommitMessage):
        pass

    class Probing:
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options
            self.sent = 0

        def __getstate__(self) -> dict[str, Any]:
            self.sent += 1
            note(self.options, "send", sent=self.sent)
            return self.__dict__.copy()

        def write(self, iterator: Any) -> WriterCommitMessage:
            rows = sum(batch.num_rows for batch in iterator)
            context = TaskContext.get()
            assert context is not None
            facts = {
                "batch_id": context.getLocalProperty("streaming.sql.batchId"),
                "query_id": context.getLocalProperty("sql.streaming.queryId"),
                "speculation": context.getLocalProperty("spark.speculation"),
                "attempt": context.attemptNumber(),
                "task": context.taskAttemptId(),
            }
            note(self.options, "write", rows=rows, partition=context.partitionId(), **facts)
            if os.path.exists(self.options.get("failing", "")) and context.partitionId() == 0:
                raise ValueError("as asked")
            return Message()

    class StreamWriter(Probing, DataSourceStreamArrowWriter):
        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            note(self.options, "commit", batch_id=batchId, messages=len(messages), sent=self.sent)

        def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803
            note(self.options, "abort", batch_id=batchId, messages=[message is not None for message in messages])

    class BatchWriter(Probing, DataSourceArrowWriter):
        def commit(self, messages: Any) -> None:
            note(self.options, "commit", messages=len(messages), sent=self.sent)

        def abort(self, messages: Any) -> None:
            note(self.options, "abort")

    class Probe(DataSource):
        @classmethod
        def name(cls) -> str:
            return "probe"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            with open(os.path.join(self.options["checkpointLocation"], "metadata")) as file:
                note(self.options, "make", query_id=json.load(file)["id"])
            return StreamWriter(dict(self.options))

        def writer(self, schema: Any, overwrite: bool) -> Any:
            note(self.options, "make")
            return BatchWriter(dict(self.options))

    return Probe


class Notes:
    def __init__(self, directory: Path) -> None:
        self.file = directory / "notes"
        self.failing = directory / "failing"
        self._options = {"notes": str(self.file), "failing": str(self.failing)}

    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def start(self, spark: "SparkSession", checkpoint: Path) -> "StreamingQuery":
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        stream = source.option("numPartitions", TASKS).load()
        writer = stream.writeStream.format("probe").options(**self._options)
        return writer.option("checkpointLocation", str(checkpoint)).start()

    def write(self, spark: "SparkSession") -> None:
        rows = spark.range(ROWS_PER_BATCH, numPartitions=TASKS)
        rows.write.format("probe").options(**self._options).mode("append").save()

    def wait_for(self, call: str, count: int) -> list[dict[str, Any]]:
        deadline = time.monotonic() + TIME_LIMIT_S
        while len(found := [note for note in self.all() if note["call"] == call]) < count:
            assert time.monotonic() < deadline, self.all()
            time.sleep(0.05)
        return found[:count]


@pytest.fixture
def notes(spark: "SparkSession", tmp_path: Path) -> Notes:
    spark.dataSource.register(probe())
    return Notes(tmp_path)


def micro_batch(found: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """The calls up to its commit, after the one before it."""
    ends = [-1, *(index for index, note in enumerate(found) if note["call"] == "commit")]
    return found[ends[number] + 1 : ends[number + 1] + 1]


def test_a_micro_batch_is_sent_before_its_tasks_and_committed_by_a_writer_that_never_was(
    spark: "SparkSession", notes: Notes, tmp_path: Path
) -> None:
    query = notes.start(spark, tmp_path / "checkpoint")
    notes.wait_for("commit", 3)
    query.stop()
    for number in range(3):
        calls = micro_batch(notes.all(), number)
        names = [note["call"] for note in calls]
        assert names[0] == "make"
        assert names[-2:] == ["make", "commit"]
        first_write = names.index("write")
        assert set(names[1:first_write]) == {"send"}
        assert names[first_write:-2] == ["write"] * TASKS
        assert {note["query_id"] for note in calls if note["call"] in ("make", "write")} == {query.id}
        assert {note["batch_id"] for note in calls if note["call"] == "write"} == {str(number)}
        sender, ender = calls[0]["process"], calls[-1]["process"]
        assert {note["process"] for note in calls[:first_write]} == {sender} != {ender}
        assert (calls[-1]["batch_id"], calls[-1]["messages"], calls[-1]["sent"]) == (number, TASKS, 0)


def test_a_failed_micro_batch_is_aborted_with_what_there_is_and_run_again_under_its_number(
    spark: "SparkSession", notes: Notes, tmp_path: Path
) -> None:
    query = notes.start(spark, tmp_path / "checkpoint")
    notes.wait_for("commit", 1)
    notes.failing.touch()
    (aborted,) = notes.wait_for("abort", 1)
    with pytest.raises(Exception, match="as asked"):
        query.awaitTermination(300)
    assert len(aborted["messages"]) == TASKS
    assert not aborted["messages"][0]
    notes.failing.unlink()
    before = len(notes.all())
    again = notes.start(spark, tmp_path / "checkpoint")
    notes.wait_for("commit", aborted["batch_id"] + 1)
    again.stop()
    assert again.id == query.id
    first = next(note for note in notes.all()[before:] if note["call"] == "write")
    assert (first["batch_id"], first["query_id"]) == (str(aborted["batch_id"]), query.id)


def test_a_batch_is_committed_by_the_writer_that_was_sent(spark: "SparkSession", notes: Notes) -> None:
    notes.write(spark)
    names = [note["call"] for note in notes.all()]
    assert names[0] == "make"
    assert set(names[1 : names.index("write")]) == {"send"}
    assert names[names.index("write") :] == ["write"] * TASKS + ["commit"]
    assert notes.all()[-1]["sent"] > 0
    assert len({note["task"] for note in notes.all() if note["call"] == "write"}) == TASKS

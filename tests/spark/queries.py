"""Common parts of tests of queries: records to read, readers, and streams whose rows are kept."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark_session import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NOON_MS = 1_700_000_000_000


def numbered(count: int, first: int = 0, partition: int | None = None) -> list[Message]:
    return [
        Message(b"value-%d" % number, b"key-%d" % number, partition, NOON_MS + number)
        for number in range(first, first + count)
    ]


def values(frame: "DataFrame") -> list[str]:
    return sorted(row.value.decode() for row in frame.select("value").collect())


class Reader:
    """What the tests of one topic have in common."""

    def __init__(self, spark: "SparkSession", bootstrap: str, topic: str) -> None:
        self.spark, self.bootstrap, self.topic = spark, bootstrap, topic

    def batch(self, schema: str | None = None, **options: Any) -> "DataFrame":
        reader = self.spark.read.format("tidelog").option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.options(**{"subscribe": self.topic, **options})
        return (reader.schema(schema) if schema else reader).load()

    def stream(self, **options: Any) -> "DataFrame":
        reader = self.spark.readStream.format("tidelog").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**{"subscribe": self.topic, "startingOffsets": "earliest", **options}).load()


class Collected:
    """A query whose rows are kept, batch by batch."""

    def __init__(
        self, frame: "DataFrame", checkpoint: Path, *, is_finite: bool = True, fail_in_batch: int | None = None
    ) -> None:
        self.batches: dict[int, list[Any]] = {}
        self._fail_in_batch = fail_in_batch
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(checkpoint))
        self.query: StreamingQuery = (writer.trigger(availableNow=True) if is_finite else writer).start()

    def _take(self, frame: "DataFrame", batch_id: int) -> None:
        self.batches[batch_id] = frame.collect()
        if batch_id == self._fail_in_batch:
            raise RuntimeError(f"batch {batch_id} is refused")

    def rows(self) -> list[Any]:
        return [row for batch in self.batches.values() for row in batch]

    def values(self) -> list[str]:
        return sorted(row.value.decode() for row in self.rows())

    def finish(self) -> "Collected":
        assert self.query.awaitTermination(300)
        return self

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 300
        while len(self.rows()) < count:
            assert self.query.exception() is None, self.query.exception()
            assert time.monotonic() < deadline, f"{len(self.rows())} of {count} rows"
            time.sleep(0.02)


@contextmanager
def running(frame: "DataFrame", checkpoint: Path) -> Iterator[Collected]:
    collected = Collected(frame, checkpoint, is_finite=False)
    try:
        yield collected
    finally:
        collected.query.stop()

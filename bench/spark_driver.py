"""A Spark driver: a process of its own that takes commands as lines of JSON on its standard input, and answers so.

Nothing here depends on the format but its name, and the way to read few columns: see `read`.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.processes import tree_cpu_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TIDELOG = "tidelog"
FEW_COLUMNS = {"value": "binary", "offset": "bigint"}
STREAM_LIMIT_S = 300
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}

TUNED = {
    "kafka.max.poll.records": "10000",
    "kafka.fetch.max.bytes": "8388608",
    "kafka.max.partition.fetch.bytes": "8388608",
}
"""What makes Spark's own connector faster; `tidelog` reads that much by itself."""

Question = Mapping[str, Any]
Answer = dict[str, Any]


class Driver:
    def __init__(self, spark: "SparkSession", source: str, bootstrap: str, directory: Path) -> None:
        self._spark = spark
        self._source = source
        self._bootstrap = bootstrap
        self._directory = directory
        self._made = 0

    def new_path(self, name: str) -> str:
        self._made += 1
        return str(self._directory / f"{name}-{self._made}")

    # -- batches

    def read(self, question: Question) -> "DataFrame":
        reader = self._spark.read.format(self._source).option("kafka.bootstrap.servers", self._bootstrap)
        reader = reader.option("subscribe", question["topic"]).option("startingOffsets", question["start"])
        reader = reader.option("endingOffsets", question["end"]).options(**self._tuning(question))
        if question["columns"] == "all":
            return reader.load()
        if self._source == TIDELOG:
            return reader.schema(", ".join(f"{name} {kind}" for name, kind in FEW_COLUMNS.items())).load()
        return reader.load().select(*FEW_COLUMNS)

    def _tuning(self, question: Question) -> Mapping[str, str]:
        return TUNED if question.get("is_tuned") and self._source != TIDELOG else {}

    def first_row(self, question: Question) -> Answer:
        return {"rows": len(self.read(question).limit(1).collect())}

    def count(self, question: Question) -> Answer:
        rows = self.read(question)
        if "where" in question:
            rows = rows.where(question["where"])
        return timed(lambda: {"rows": rows.count()})

    def to_noop(self, question: Question) -> Answer:
        return timed(lambda: self.read(question).write.format("noop").mode("overwrite").save())

    def to_parquet(self, question: Question) -> Answer:
        path = question.get("path") or self.new_path("parquet")
        response = timed(lambda: self.read(question).write.mode("overwrite").parquet(path))
        if "path" not in question:
            shutil.rmtree(path)
        return response

    def to_topic(self, question: Question) -> Answer:
        rows = self._spark.read.parquet(question["path"]).select("key", "value")
        writer = rows.write.format(self._source).option("kafka.bootstrap.servers", self._bootstrap)
        writer = writer.option("topic", question["topic"]).option("kafka.acks", "all")
        if self._source == TIDELOG:  # Spark's own sink knows one way
            writer = writer.option("delivery", question["delivery"])
        return timed(lambda: writer.mode("append").save())

    # -- streams

    def read_stream(self, question: Question) -> "DataFrame":
        reader = self._spark.readStream.format(self._source).option("kafka.bootstrap.servers", self._bootstrap)
        reader = reader.option("subscribe", question["topic"]).option("startingOffsets", question["start"])
        if "rows_per_trigger" in question:
            reader = reader.option("maxOffsetsPerTrigger", question["rows_per_trigger"])
        return reader.options(**self._tuning(question)).load()

    def stream(self, question: Question) -> Answer:
        """All that is there, in as many micro-batches as it takes."""
        checkpoint, path = self.new_path("checkpoint"), self.new_path("stream")
        writer = self.read_stream(question).writeStream.option("checkpointLocation", checkpoint)
        writer = writer.format(question["sink"]).trigger(availableNow=True)
        if question["sink"] == "parquet":
            writer = writer.option("path", path)
        progress: list[Answer] = []

        def run() -> None:
            query = writer.start()
            if not query.awaitTermination(STREAM_LIMIT_S):
                query.stop()
            progress.extend(micro_batches(query))

        response = timed(run)
        for directory in (checkpoint, path):
            shutil.rmtree(directory, ignore_errors=True)
        return response | {"micro_batches": progress}

    def two_sinks(self, question: Question) -> Answer:
        """All that is there, to two sinks: by a query each, or by one that both share."""

        def write_twice(rows: "DataFrame", _batch_id: int) -> None:
            for _ in range(2):
                rows.write.format("noop").mode("overwrite").save()

        def run() -> None:
            writers = [self.read_stream(question).writeStream for _ in range(1 if question["is_shared"] else 2)]
            writers = [writer.option("checkpointLocation", self.new_path("checkpoint")) for writer in writers]
            if question["is_shared"]:
                writers = [writer.foreachBatch(write_twice) for writer in writers]
            else:
                writers = [writer.format("noop") for writer in writers]
            for query in [writer.trigger(availableNow=True).start() for writer in writers]:
                query.awaitTermination(STREAM_LIMIT_S)

        return timed(run)

    def follow(self, question: Question) -> Answer:
        """What arrives from now on for some seconds, as fast as micro-batches can follow each other."""
        batches: list[list[int]] = []

        def collect(rows: "DataFrame", _batch_id: int) -> None:
            found = rows.select("value").collect()
            now_ns = time.time_ns()
            batches.append([now_ns - int(bytes(row["value"])) for row in found])

        writer = self.read_stream(question).writeStream.option("checkpointLocation", self.new_path("checkpoint"))
        writer = writer.foreachBatch(collect) if question["sink"] == "collect" else writer.format(question["sink"])
        query = start_continuously(writer)
        time.sleep(question["seconds"])
        query.stop()
        return {"micro_batches": micro_batches(query), "latencies_ns": batches}


def start_continuously(writer: "DataStreamWriter") -> "StreamingQuery":
    return writer.trigger(processingTime="0 seconds").start()


def micro_batches(query: "StreamingQuery") -> list[Answer]:
    """Those that had rows, as Spark itself reports them."""
    if (error := query.exception()) is not None:
        raise error
    progress = [json.loads(found.json) for found in query.recentProgress]
    return [
        {"rows": found["numInputRows"], "ms": found["durationMs"]["triggerExecution"]}
        for found in progress
        if found["numInputRows"]
    ]


def timed(work: Callable[[], Answer | None]) -> Answer:
    """CPU seconds: of this process, of Java and of all Python processes."""
    cpu_before = tree_cpu_seconds(os.getpid())
    started = time.monotonic()
    response = work()
    seconds = time.monotonic() - started
    return {"seconds": seconds, "cpu_seconds": tree_cpu_seconds(os.getpid()) - cpu_before} | (response or {})


def settings_for(source: str, directory: Path) -> dict[str, str]:
    """The same for both. Spark's own connector needs its jars besides, and no Python process that waits for work."""
    from tools import spark_kafka_connector

    places = {"spark.local.dir": str(directory), "spark.sql.warehouse.dir": str(directory / "warehouse")}
    if source == TIDELOG:
        return SETTINGS | places
    return (
        SETTINGS | places | spark_kafka_connector.session_settings() | {"spark.tidelog.accelerate.warm_python": "false"}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("source", "master", "bootstrap"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument(
        "--answers", type=int, required=True, help="a file descriptor, as Java uses the standard output"
    )
    options = parser.parse_args()
    from tidelog.spark import session

    spark = session("bench", options.master, settings_for(options.source, options.directory))
    driver = Driver(spark, options.source, options.bootstrap, options.directory)
    with os.fdopen(options.answers, "w", buffering=1) as responses:
        print(json.dumps({"version": spark.version}), file=responses)
        for line in sys.stdin:
            question = json.loads(line)
            try:
                response = getattr(driver, question["do"])(question)
            except Exception as error:  # noqa: BLE001 - the answer has it
                response = {"error": str(error).strip() or repr(error)}
            print(json.dumps(response), file=responses)
    spark.stop()


if __name__ == "__main__":
    main()

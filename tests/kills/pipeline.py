"""The pipeline that is killed: one topic, to another topic and to a Delta table; and how far each of them is."""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.kills.verdict import Record
from tests.spark.pipeline_process import PipelineProcess

NAME = "killed"
SINKS = ("copy", "table")
DEFINITION = """
[pipeline]
name = "{name}"
bootstrap = "{bootstrap}"

[spark]
spark.ui.enabled = false
spark.driver.memory = "1g"
spark.driver.extraJavaOptions = "-XX:TieredStopAtLevel=1"
spark.executor.memory = "512m"
spark.executor.extraJavaOptions = "-XX:TieredStopAtLevel=1"
spark.sql.shuffle.partitions = 2

[sources.events]
topic = "{source}"
format = "json"
schema = "key string, number bigint"
options = {{ driverReadRows = 1000, maxOffsetsPerTrigger = 20000 }}

[sinks.copy]
from = "events"
topic = "{copy}"
key = "key"
format = "json"

[sinks.table]
from = "events"
delta = "table"
"""


def killed_pipeline(directory: Path, bootstrap: str, source: str, copy: str, master: str) -> PipelineProcess:
    file = directory / f"{NAME}.toml"
    file.write_text(DEFINITION.format(name=NAME, bootstrap=bootstrap, source=source, copy=copy))
    return PipelineProcess(file, NAME, "--master", master)


def committed_batches(pipeline: PipelineProcess) -> dict[str, int]:
    """The last batch that Spark has written down as done, for each sink; -1: none."""
    return {sink: last_number(pipeline.state.checkpoint / sink / "commits") for sink in SINKS}


def read_records(pipeline: PipelineProcess) -> dict[str, int]:
    """How many records of the source each sink is done with."""
    return {sink: _offsets_sum(pipeline, sink, batch) for sink, batch in committed_batches(pipeline).items()}


def least_read(pipeline: PipelineProcess) -> int:
    return min(read_records(pipeline).values())


def last_number(directory: Path) -> int:
    if not directory.is_dir():
        return -1
    return max((int(file.name) for file in directory.iterdir() if file.name.isdecimal()), default=-1)


def _offsets_sum(pipeline: PipelineProcess, sink: str, batch: int) -> int:
    if batch < 0:
        return 0
    line = (pipeline.state.checkpoint / sink / "offsets" / str(batch)).read_text().splitlines()[-1]
    topics = [offsets for name, offsets in json.loads(line).items() if not name.startswith("@")]
    return sum(offset for offsets in topics for offset in offsets.values())


def records_of_topic(bootstrap: str, topic: str, partitions: int) -> Iterator[Record]:
    """What is committed, one partition after the other, each in its order."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "isolation.level": "read_committed", **settings})
    for number in range(partitions):
        partition = TopicPartition(topic, number, 0)
        consumer.assign([partition])
        is_at_end = False
        while not is_at_end:
            for message in consumer.consume(10_000, timeout=1):
                error = message.error()
                is_at_end = error is not None
                assert error is None or error.code() == KafkaError._PARTITION_EOF, error
                if not is_at_end:
                    row = json.loads(message.value() or b"")
                    yield row["key"], row["number"]
    consumer.close()


def records_of_table(directory: Path) -> Iterator[Record]:
    from deltalake import DeltaTable

    rows = DeltaTable(directory / "table").to_pyarrow_table(columns=["key", "number"])
    yield from zip(rows["key"].to_pylist(), rows["number"].to_pylist(), strict=True)

"""The pipelines that are killed: one topic, to another topic and to Delta tables; and how far each of them is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.kills.verdict import Record
from tests.spark.pipeline_process import PipelineProcess

NAME = "killed"
SINKS = ("copy", "table")
STATEFUL_SINKS = (*SINKS, "windows")
HEAD = """
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
"""
EVENTS = """
[sources.events]
topic = "{source}"
format = "json"
schema = "key string, number bigint"
options = {{ driverReadRows = 1000, maxOffsetsPerTrigger = 20000 }}
"""
SINKS_OF = """
[sinks.copy]
from = "{of_copy}"
topic = "{{copy}}"
key = "key"
format = "json"

[sinks.table]
from = "{of_table}"
delta = "table"
"""
STATE = """
# The same records once more, at another pace: both steps find a record in what earlier batches left in the state.
[sources.again]
topic = "{source}"
format = "json"
schema = "key string, number bigint"
options = {{ driverReadRows = 1000, maxOffsetsPerTrigger = 5000 }}

[[steps]]
view = "twice"
sql = "SELECT key, number FROM events UNION ALL SELECT key, number FROM again"

[[steps]]
view = "deduplicated"
from = "twice"
deduplicate = ["key", "number"]

[[steps]]
view = "joined"
sql = "SELECT e.key, e.number FROM events e JOIN again a ON e.key = a.key AND e.number = a.number"

# The time of a record is its number in seconds. Keys take turns by lot: none is 20 minutes behind another.
[sources.timed]
topic = "{source}"
format = "json"
schema = "key string, number bigint, number_s timestamp"
watermark = {{ column = "number_s", delay = "20 minutes" }}
options = {{ driverReadRows = 1000, maxOffsetsPerTrigger = 20000 }}

[[steps]]
view = "windowed"
from = "timed"
window = {{ column = "number_s", size = "50 seconds" }}
group = ["key"]
aggregate = {{ numbers = "collect_list(number)" }}

[sinks.windows]
from = "windowed"
delta = "windows"
"""
ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
ROCKSDB = f"""
spark.sql.streaming.stateStore.providerClass = "{ROCKSDB_PROVIDER}"
"""
DEFINITION = HEAD + EVENTS + SINKS_OF.format(of_copy="events", of_table="events")
STATEFUL_DEFINITION = HEAD + ROCKSDB + EVENTS + STATE + SINKS_OF.format(of_copy="deduplicated", of_table="joined")


class Topics(NamedTuple):
    bootstrap: str
    source: str
    copy: str


class KilledPipeline(PipelineProcess):
    def __init__(self, directory: Path, topics: Topics, master: str, *, is_stateful: bool) -> None:
        self.sinks = STATEFUL_SINKS if is_stateful else SINKS
        definition = STATEFUL_DEFINITION if is_stateful else DEFINITION
        file = directory / f"{NAME}.toml"
        file.write_text(definition.format(name=NAME, **topics._asdict()))
        super().__init__(file, NAME, "--master", master)

    def committed_batches(self) -> dict[str, int]:
        """The last batch that Spark has written down as done, for each sink; -1: none."""
        return {sink: last_number(self.state.checkpoint / sink / "commits") for sink in self.sinks}

    def least_read(self) -> int:
        """How many records of the source the slowest sink is done with."""
        return min(_offsets_sum(self, sink, batch) for sink, batch in self.committed_batches().items())


def last_number(directory: Path) -> int:
    if not directory.is_dir():
        return -1
    return max((int(file.name) for file in directory.iterdir() if file.name.isdecimal()), default=-1)


def _offsets_sum(pipeline: PipelineProcess, sink: str, batch: int) -> int:
    if batch < 0:
        return 0
    _version, _metadata, *sources = (pipeline.state.checkpoint / sink / "offsets" / str(batch)).read_text().splitlines()
    return min(_sum_of_offsets(json.loads(source)) for source in sources)


def _sum_of_offsets(source: dict[str, dict[str, int]]) -> int:
    topics = [offsets for name, offsets in source.items() if not name.startswith("@")]
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


def records_of_windows(directory: Path) -> tuple[int, Iterator[Record]]:
    """The number at which the last complete window ends, for all keys, and the records of the windows."""
    from deltalake import DeltaTable

    rows = DeltaTable(directory / "windows").to_pyarrow_table(columns=["window_end", "key", "numbers"])
    end = max((int(at.timestamp()) for at in rows["window_end"].to_pylist()), default=0)
    windows = zip(rows["key"].to_pylist(), rows["numbers"].to_pylist(), strict=True)
    return end, ((key, number) for key, numbers in windows for number in sorted(numbers))

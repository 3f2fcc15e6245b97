"""A query from topic to topic that kills itself at a given step: `python -m tests.kills.step_driver`.

The sink is the product's, with a word said before and after what it does. An order is a file with the name of a step;
who takes the step first takes the file, and strikes.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.kills.process_tree import tree
from tests.kills.steps import Step, Victim
from tidelog.runtime.process_identity import ProcessIdentity, identity_of, send
from tidelog.spark.data_source import DefaultSource
from tidelog.spark.options.query import write_options
from tidelog.spark.sink.writer import StreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.05


class Orders(NamedTuple):
    directory: str

    def give(self, step: Step, victim: Victim) -> None:
        waiting = Path(self.directory, "next")
        waiting.write_text(victim)
        waiting.rename(Path(self.directory, step.name))

    def is_taken(self, step: Step) -> bool:
        return not Path(self.directory, step.name).exists()

    def name(self, victim: Victim, *pids: int) -> None:
        """Who that is at present; any of several is one."""
        Path(self.directory, f"{victim.name}.pids").write_text(" ".join(map(str, pids)))

    def obey(self, step: Step) -> None:
        taken = Path(self.directory, f"{step.name}.{os.getpid()}")
        try:
            Path(self.directory, step.name).rename(taken)
        except FileNotFoundError:
            return
        victim = Victim(taken.read_text())
        own = identity_of(os.getpid())
        assert own is not None
        struck = [own] if victim is Victim.WORKER else self._tree(victim, own)
        for process in sorted(struck, key=lambda process: process == own):
            send(process, signal.SIGKILL)

    def _tree(self, victim: Victim, own: ProcessIdentity) -> list[ProcessIdentity]:
        """From the top; of several that may be meant, rather the one that this process is part of."""
        pids = map(int, Path(self.directory, f"{victim.name}.pids").read_text().split())
        return max((tree(pid) for pid in pids), key=lambda processes: own in processes)


class StruckWriter(StreamWriter):
    def __init__(self, orders: Orders, *given: Any) -> None:
        super().__init__(*given)
        self._orders = orders

    def __getstate__(self) -> dict[str, object]:
        self._orders.obey(Step.BEFORE_OPENING)
        state = super().__getstate__()
        self._orders.obey(Step.AFTER_OPENING)
        return state

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Any:
        written = super().write(iterator)
        if written.record_counts:
            self._orders.obey(Step.IN_WRITE)
        return written

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        self._orders.obey(Step.BEFORE_COMMIT)
        super().commit(messages, batchId)
        self._orders.obey(Step.AFTER_COMMIT)


class StruckSource(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "struck"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        options = dict(self.options)
        orders = Orders(options.pop("orders"))
        return StruckWriter(orders, write_options(options, is_stream=True), schema)


def main() -> None:
    """Until the file `stop` is there; a query that fails is started again."""
    settings = json.loads(sys.argv[1])
    orders = Orders(settings["orders"])
    orders.name(Victim.DRIVER, os.getpid())
    from tidelog.spark import session

    small = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = session("struck", settings["master"], small)
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(StruckSource)
    query = _start(spark, settings)
    while not os.path.exists(os.path.join(settings["orders"], "stop")):
        if not query.isActive:
            print("the query ended:", str(query.exception())[:300].replace("\n", " "), flush=True)
            query = _start(spark, settings)
        time.sleep(POLL_S)
    query.stop()
    spark.stop()


def _start(spark: Any, settings: dict[str, str]) -> "StreamingQuery":
    bootstrap = {"kafka.bootstrap.servers": settings["bootstrap"]}
    stream = spark.readStream.format("tidelog").options(**bootstrap).option("subscribe", settings["source"])
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 20_000)
    writer = stream.load().select("key", "value").writeStream.format("struck").options(**bootstrap)
    writer = writer.option("topic", settings["copy"]).option("orders", settings["orders"])
    started: StreamingQuery = writer.option("checkpointLocation", settings["checkpoint"]).start()
    return started


if __name__ == "__main__":
    main()

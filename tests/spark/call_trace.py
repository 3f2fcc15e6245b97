"""Call trace of a Spark micro-batch: `python -m tests.spark.call_trace`.

Without Spark itself: its calls of a stream reader are made here, in the order in which it makes them. Reads on the
driver are off, so that the walk is that of a task.
"""

import asyncio
import sys
import threading
from collections import Counter
from itertools import pairwise
from types import FrameType
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidelog.client import Admin, Producer
from tidelog.spark.options.query import read_options
from tidelog.spark.source.stream_reader import StreamReader
from tidelog.testing import Cluster

TOPIC = "orders"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
OUTSIDE = {"runtime"}


class ProcessTrace:
    """The product's functions that were called in threads started after it, in order, as (package, name)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.all_calls = 0

    def on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        self.all_calls += 1
        parts = frame.f_globals.get("__name__", "").split(".")
        name = frame.f_code.co_qualname
        if parts[0] == "tidelog" and parts[1] not in OUTSIDE and not name.endswith("comp>"):
            self.calls.append((parts[1], name))

    def clear(self) -> None:
        self.calls.clear()
        self.all_calls = 0

    @property
    def package_switches(self) -> int:
        return sum(before[0] != after[0] for before, after in pairwise(self.calls))


async def _produce(bootstrap_servers: str, *, creates: bool) -> None:
    if creates:
        async with Admin(bootstrap_servers) as admin:
            await admin.create_topic(TOPIC, partitions=1)
    async with Producer(bootstrap_servers) as producer:
        await producer.send(TOPIC, b"x")


def _run_batch(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    end = reader.latestOffset(start, ReadAllAvailable())
    rows = sum(len(batch) for task in reader.partitions(start, end) for batch in reader.read(task))
    assert rows == 1, rows
    return end


def trace_micro_batch() -> ProcessTrace:
    """The second batch of a query, of one record."""
    trace = ProcessTrace()
    with Cluster() as cluster:
        asyncio.run(_produce(cluster.bootstrap_servers, creates=True))
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "driverReadRows": "0",
        }
        threading.setprofile(trace.on_event)
        sys.setprofile(trace.on_event)
        try:
            reader = StreamReader(read_options(options, is_stream=True), COLUMNS)
            end = _run_batch(reader, reader.initialOffset())
            sys.setprofile(None)
            asyncio.run(_produce(cluster.bootstrap_servers, creates=False))
            trace.clear()
            sys.setprofile(trace.on_event)
            _run_batch(reader, end)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        reader.stop()
    return trace


def main() -> None:
    trace = trace_micro_batch()
    calls, every = len(trace.calls), trace.all_calls
    print(f"one micro-batch of one record: {calls} calls ({every} of all Python functions),", end=" ")
    print(f"{trace.package_switches} package switches")
    for name, count in Counter(name for _, name in trace.calls).most_common():
        if count > 1:
            print(f"  {count:4} {name}")


if __name__ == "__main__":
    main()

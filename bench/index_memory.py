"""Memory of a broker's logs as they grow: partitions whose active segments get index entries, but no data.

`python -m bench.index_memory --partitions 1000 --gigabytes 100`. The log manager and the index files are the broker's
own; batches are accounted for and not written. Every batch has an index entry, which is the worst case. The goal is
that 100 GB in 1,000 active partitions cost at most 1.3 times the memory of the same broker when it is empty.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from pathlib import Path

import tidelog.server.broker  # a broker's modules are part of its memory
from tidelog.config.broker import BrokerSettings
from tidelog.config.topic import TopicSettings
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.workers import InlineWorkers
from tidelog.storage.log_directory import Identity
from tidelog.storage.log_manager import LogManager
from tidelog.types import TopicPartition

BATCH_BYTES = 4097
"""The smallest batch for which the default index interval adds an entry each time."""

GOAL = 1.3


def memory_mb() -> float:
    gc.collect()
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return resident_pages * 4096 / 1e6


async def empty_logs(directory: str, partitions: int) -> LogManager:
    manager = await LogManager.open(
        BrokerSettings(log_dirs=(directory,)),
        lambda topic: TopicSettings(),
        SystemDisk(),
        SystemClock(),
        InlineWorkers(),
        Identity("cluster", 1),
    )
    for number in range(partitions):
        manager.create(TopicPartition("grown", number), None, TopicSettings())
    return manager


def grow(manager: LogManager, bytes_each: int) -> None:
    """Append to all partitions in turn, as producers would."""
    appends = [log.active_segment.append for log in manager.logs.values()]
    for offset in range(bytes_each // BATCH_BYTES):
        for append in appends:
            append(b"", BATCH_BYTES, offset, 1_700_000_000_000 + offset, 4096)


async def measure(partitions: int, gigabytes: float) -> float:
    with tempfile.TemporaryDirectory(prefix="index-memory-") as directory:
        manager = await empty_logs(directory, partitions)
        empty_mb, began = memory_mb(), time.process_time()
        print(f"{partitions:,} partitions, empty: {empty_mb:.1f} MB")
        grown_mb = empty_mb
        for step in range(1, 5):
            grow(manager, int(gigabytes * 1e9 / partitions / 4))
            grown_mb = memory_mb()
            print(f"{gigabytes * step / 4:g} GB: {grown_mb:.1f} MB, {grown_mb / empty_mb:.2f} x", flush=True)
        entries = int(gigabytes * 1e9 / BATCH_BYTES)
        print(f"CPU per index entry: {(time.process_time() - began) / entries * 1e6:.2f} us")
        return grown_mb / empty_mb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--gigabytes", type=float, default=100)
    options = parser.parse_args()
    ratio = asyncio.run(measure(options.partitions, options.gigabytes))
    print(f"goal {GOAL} x: {'met' if ratio <= GOAL else 'missed'}")
    sys.exit(0 if ratio <= GOAL else 1)


if __name__ == "__main__":
    assert tidelog.server.broker
    main()

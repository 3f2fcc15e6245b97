"""CPU time of loading committed offsets when a broker becomes the coordinator of their groups.

`python -m bench.group_loading --offsets 100000`. The loader, the log and the state machines are the broker's own, in
one process and without sockets. A second task measures the longest time that the loader keeps others from running.
`--offsets 10000 --times 10`: each offset was committed ten times since the log was compacted.
"""

import argparse
import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

from tidelog.cluster.image import ClusterImage
from tidelog.config.topic import TopicSettings
from tidelog.groups.group import GroupSettings
from tidelog.groups.machine import GroupMachine
from tidelog.groups.offset_records import CommittedOffset, encode_key, encode_value
from tidelog.replicated.entries import batch_of
from tidelog.replicated.loading import Loader
from tidelog.replicated.machine import Effects
from tidelog.replicated.shard import ShardState
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.workers import InlineWorkers
from tidelog.storage.loader import create_log
from tidelog.storage.log import Log
from tidelog.storage.log_directory import LogDirectory, StorageContext
from tidelog.storage.validation import AppendOrigin
from tidelog.types import TopicPartition

OFFSETS_PER_COMMIT = 10
OFFSETS_PER_GROUP = 100


class LoadedShard:
    """The part of a shard that the loader uses."""

    def __init__(self, log: Log) -> None:
        self.partition = SimpleNamespace(log=log, topic_partition=log.topic_partition)
        self.machine = GroupMachine(
            settings=GroupSettings, image=lambda: ClusterImage("cluster"), randomness=SeededRandomness(1)
        )
        self.state = ShardState.LOADING
        self.records_loaded = 0
        self.loaded = asyncio.Event()

    def activate(self, loaded_end: int) -> None:
        self.state = ShardState.ACTIVE
        self.machine.on_loaded(Effects(0))
        self.loaded.set()

    def mark_failed(self) -> None:
        raise AssertionError("the offsets cannot be loaded")


def log_of(partition: int, offsets: int, times: int) -> Log:
    """A partition of the internal topic, with commits of ten offsets each."""
    disk = MemoryDisk()
    disk.make_directory("/data")
    directory = LogDirectory("/data", StorageContext(disk, SystemClock(), InlineWorkers(), SeededRandomness(1)))
    topic_partition = TopicPartition("__consumer_offsets", partition)
    log = create_log(directory, f"/data/{topic_partition}", topic_partition, None, TopicSettings())
    for first in list(range(0, offsets, OFFSETS_PER_COMMIT)) * times:
        effects = Effects(1_700_000_000_000)
        for number in range(first, first + OFFSETS_PER_COMMIT):
            group = f"group-{number // OFFSETS_PER_GROUP:05}"
            committed = CommittedOffset(number, committed_at_ms=effects.now_ms, topic_id=b"i" * 16)
            effects.write(encode_key(group, "orders", number % OFFSETS_PER_GROUP), encode_value(committed))
        log.append_as_leader(batch_of(effects), 0, AppendOrigin.COORDINATOR)
    return log


async def measure(log: Log, offsets: int) -> tuple[float, float]:
    """CPU seconds in all, and of the longest step that another task had to wait for."""
    shard, longest_s = LoadedShard(log), 0.0
    loader = Loader("__consumer_offsets", SystemClock(), InlineWorkers())
    began = last = time.process_time()
    loader.add(cast("Any", shard))
    while not shard.loaded.is_set():
        await asyncio.sleep(0)
        now = time.process_time()
        longest_s, last = max(longest_s, now - last), now
    assert shard.machine.offsets.committed.count == offsets, shard.machine.offsets.committed.count
    await loader.close()
    return last - began, longest_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offsets", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=1, help="that each offset was committed")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    log = log_of(0, options.offsets, options.times)
    found = [asyncio.run(measure(log, options.offsets)) for _ in range(options.rounds)]
    cpu_s, longest_s = min(cpu for cpu, _ in found), min(longest for _, longest in found)
    records = options.offsets * options.times
    print(f"{records:,} commits of offsets: {cpu_s:.3f} s of CPU, {cpu_s / records * 1e6:.2f} us each", end="")
    print(f"; longest step {longest_s * 1000:.1f} ms of CPU")


if __name__ == "__main__":
    main()

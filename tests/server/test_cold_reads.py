"""A consumer of old data: what is not in the page cache is read by a worker, never by the event loop."""

import asyncio
import errno
from collections import defaultdict
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tests.server.harness import FETCH_VERSION, Harness, fetch_request
from tidelog.runtime.clock import Clock
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.virtual_time import run_virtually
from tidelog.runtime.workers import InlineWorkers

P = ParamSpec("P")
T = TypeVar("T")


class WatchedWorkers(InlineWorkers):
    """Knows whether work is under way in a worker."""

    def __init__(self) -> None:
        self.is_working = False

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.is_working = True
        try:
            return work(*args, **kwargs)
        finally:
            self.is_working = False


class WatchedDisk(MemoryDisk):
    """Notes of every read of a file whether a worker did it."""

    def __init__(self, clock: Clock, workers: WatchedWorkers) -> None:
        super().__init__(clock)
        self.workers = workers
        self.reads_in_worker: defaultdict[str, list[bool]] = defaultdict(list)

    def check(self, operation: str, path: str) -> None:
        super().check(operation, path)
        if operation == "read":
            self.reads_in_worker[path].append(self.workers.is_working)


def test_cold_data_is_read_by_a_worker() -> None:
    async def scenario() -> None:
        harness = Harness()
        harness.workers = workers = WatchedWorkers()
        harness.disk = disk = WatchedDisk(harness.clock, workers)
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("t", segment_bytes="1048576")
            for index in range(30):
                await client.produce("t", b"%d" % index + b"x" * 100_000)
            old_segment = "/logs/t-0/00000000000000000000.log"
            harness.disk.uncached_paths.add(old_segment)
            disk.reads_in_worker.clear()
            data = await client.fetch("t", 3)
            assert data.error_code == 0
            assert data.records
            # The last read is the sending itself, by then from the page cache; over sockets it is a sendfile.
            assert len(disk.reads_in_worker[old_segment]) > 1
            assert all(disk.reads_in_worker[old_segment][:-1])

    run_virtually(scenario())


def test_a_waiting_fetch_whose_records_cannot_be_read_ends_with_its_connection() -> None:
    """Nobody must wait for ever for an answer, nor for those behind it."""

    async def scenario() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("t")
            waiting = await harness.connect()
            fetched = waiting.start(fetch_request("t", 0, max_wait_ms=1000), FETCH_VERSION)
            segment = "/logs/t-0/00000000000000000000.log"
            harness.disk.uncached_paths.add(segment)
            harness.disk.inject(errno.EIO, segment, ["read"])
            await client.produce("t", b"x")
            await asyncio.sleep(2)
            assert not fetched.done()
            assert waiting.closed_because is not None

    run_virtually(scenario())

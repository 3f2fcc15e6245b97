"""Leader epochs on their way to the disk: what a clean start believes without looking at the log."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tests.storage.logs import NOW_MS, append_many, new_log
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.randomness import SeededRandomness
from tidelog.storage.checkpoints import write_epochs
from tidelog.storage.log import Log
from tidelog.storage.log_directory import LogDirectory, StorageContext
from tidelog.storage.partition_metadata import read_topic_id

P = ParamSpec("P")
T = TypeVar("T")
EPOCHS = "/data/orders-0/leader-epoch-checkpoint"


class SlowEpochs:
    """The first write of epochs takes until somebody lets it pass; nothing else does."""

    def __init__(self) -> None:
        self.may_pass: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.writes = 0

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if work is write_epochs:
            self.writes += 1
            if self.writes == 1:
                await self.may_pass
        return work(*args, **kwargs)

    def close(self) -> None: ...


def log_with(workers: SlowEpochs, disk: MemoryDisk) -> Log:
    disk.make_directory("/data")
    return new_log(
        directory=LogDirectory("/data", StorageContext(disk, ManualClock(NOW_MS), workers, SeededRandomness(1)))
    )


def test_an_older_list_of_epochs_does_not_overtake_a_newer_one() -> None:
    async def scenario() -> None:
        disk, workers = MemoryDisk(), SlowEpochs()
        log = log_with(workers, disk)
        append_many(log, 1)
        first = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        log.leader_epochs.assign(7, 1)
        second = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert log.recovery_point == 0, "what is not on the disk with its epochs must be read again"
        workers.may_pass.set_result(None)
        await asyncio.gather(first, second)
        assert disk.read_file(EPOCHS) == b"0\n2\n5 0\n7 1\n"
        assert log.recovery_point == 1

    asyncio.run(scenario())


def test_epochs_are_written_also_if_a_flush_was_given_up_meanwhile() -> None:
    async def scenario() -> None:
        disk, workers = MemoryDisk(), SlowEpochs()
        log = log_with(workers, disk)
        append_many(log, 1)
        given_up = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        given_up.cancel()
        closing = asyncio.ensure_future(log.close())
        await asyncio.sleep(0)
        workers.may_pass.set_result(None)
        await closing
        assert disk.read_file(EPOCHS) == b"0\n1\n5 0\n"

    asyncio.run(scenario())


def test_names_are_synced_also_if_a_flush_was_given_up_meanwhile() -> None:
    class NeverFree(SlowEpochs):
        async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
            await self.may_pass
            raise AssertionError

    async def scenario() -> None:
        log = log_with(NeverFree(), MemoryDisk())
        append_many(log, 1)
        given_up = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert log.unsynced_directories == {"/data", "/data/orders-0"}

    asyncio.run(scenario())


def test_what_has_reached_the_disk_names_its_topic_there() -> None:
    async def scenario() -> None:
        disk, workers = MemoryDisk(), SlowEpochs()
        workers.may_pass.set_result(None)
        log = log_with(workers, disk)
        log.assign_topic_id(bytes(range(16)))
        append_many(log, 1)
        await log.flush()
        disk.crash()
        assert read_topic_id(disk, "/data/orders-0") == bytes(range(16))

    asyncio.run(scenario())


class SlowSync:
    """The first sync of segments takes until somebody lets it pass."""

    def __init__(self) -> None:
        self.may_pass: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result = work(*args, **kwargs)
        await self.may_pass
        return result

    def close(self) -> None: ...


def test_a_flush_across_a_truncation_does_not_vouch_for_what_was_written_after_it() -> None:
    async def scenario() -> None:
        disk, workers = MemoryDisk(), SlowSync()
        disk.make_directory("/data")
        log = new_log(
            directory=LogDirectory("/data", StorageContext(disk, ManualClock(NOW_MS), workers, SeededRandomness(1)))
        )
        append_many(log, 10)
        flushing = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        log.truncate_to(5)
        append_many(log, 5)
        workers.may_pass.set_result(None)
        await flushing
        assert log.recovery_point <= 5
        await log.flush()
        assert log.recovery_point == 10

    asyncio.run(scenario())

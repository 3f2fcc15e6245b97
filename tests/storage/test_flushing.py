"""Leader epochs on their way to the disk: what a clean start believes without reading the log."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

from tests.storage.logs import NOW_MS, ORDERS, append_many, new_log
from tidelog.config.broker import BrokerSettings
from tidelog.config.topic import TopicSettings
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.workers import InlineWorkers, Workers
from tidelog.storage.checkpoints import HIGH_WATERMARKS
from tidelog.storage.log import Log
from tidelog.storage.log_directory import Identity, LogDirectory, StorageContext
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_metadata import read_topic_id

P = ParamSpec("P")
T = TypeVar("T")
SETTINGS = TopicSettings()
EPOCHS = "/data/orders-0/leader-epoch-checkpoint"


class SlowEpochs:
    """The first write of epochs takes until somebody lets it pass; nothing else does."""

    def __init__(self) -> None:
        self.may_pass: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.writes = 0

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if getattr(work, "__name__", "") == "write_epochs":
            self.writes += 1
            if self.writes == 1:
                await self.may_pass
        return work(*args, **kwargs)

    def close(self) -> None: ...


class SlowWork(InlineWorkers):
    """The work of this name takes until somebody lets it pass; nothing else does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.may_pass: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if work.__name__ == self.name:
            await self.may_pass
        return work(*args, **kwargs)


def log_with(workers: Workers, disk: MemoryDisk) -> Log:
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
        assert log.flusher.unsynced_directories == {"/data", "/data/orders-0"}

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


class CountedSync(InlineWorkers):
    """Each sync of segments takes until somebody lets it pass; `fails` makes the next one fail."""

    def __init__(self) -> None:
        self.syncs = 0
        self.may_pass = asyncio.Semaphore(0)
        self.fails = False

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if work.__name__ == "_sync":
            self.syncs += 1
            await self.may_pass.acquire()
            if self.fails:
                self.fails = False
                raise OSError("the disk is full")
        return work(*args, **kwargs)


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_who_comes_during_a_flush_shares_the_next_one() -> None:
    async def scenario() -> None:
        workers = CountedSync()
        log = log_with(workers, MemoryDisk())
        append_many(log, 1)
        first = asyncio.ensure_future(log.flush())
        await _turns()
        append_many(log, 1)
        later = [asyncio.ensure_future(log.flush()) for _ in range(1000)]
        await _turns()
        assert workers.syncs == 1, "one flush at a time"
        workers.may_pass.release()
        await _turns()
        assert first.done()
        assert not any(each.done() for each in later), "what they wrote is not on the disk yet"
        workers.may_pass.release()
        await asyncio.gather(*later)
        assert (workers.syncs, log.recovery_point) == (2, 2)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_failure", [True, False])
def test_a_flush_that_fails_or_is_given_up_leaves_nobody_waiting(is_failure: bool) -> None:
    async def scenario() -> None:
        workers = CountedSync()
        log = log_with(workers, MemoryDisk())
        append_many(log, 1)
        first = asyncio.ensure_future(log.flusher.flush())
        await _turns()
        given_up, *others = [asyncio.ensure_future(log.flusher.flush()) for _ in range(5)]
        await _turns()
        given_up.cancel()
        if is_failure:
            workers.fails = True
            workers.may_pass.release()
        else:
            first.cancel()
        await _turns()
        assert first.done()
        workers.may_pass.release()
        await asyncio.gather(*others)
        assert (workers.syncs, log.recovery_point) == (2, 1)

    asyncio.run(scenario())


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


@pytest.mark.parametrize("slow", ["_sync", "write_epochs"])
def test_a_flush_does_not_give_its_epochs_to_the_next_log_of_the_name(slow: str) -> None:
    """The topic is deleted and made again while the disk is slow."""

    async def scenario() -> None:
        disk, workers = MemoryDisk(), SlowWork(slow)
        clock = ManualClock(NOW_MS)
        manager = await LogManager.open(
            BrokerSettings(log_dirs=("/data",)), lambda _: SETTINGS, disk, clock, workers, Identity("c", 1)
        )
        append_many(manager.create(ORDERS, b"1" * 16, SETTINGS), 1)
        flush = asyncio.ensure_future(manager.logs[ORDERS].flush())
        for _ in range(5):
            await asyncio.sleep(0)
        manager.delete(ORDERS)
        manager.create(ORDERS, b"2" * 16, SETTINGS)
        workers.may_pass.set_result(None)
        await asyncio.gather(flush, return_exceptions=True)
        assert not disk.exists(EPOCHS)
        assert manager.directories[0].is_online

    asyncio.run(scenario())


def test_retention_of_a_deleted_log_leaves_alone_the_next_one_of_its_name() -> None:
    """The topic is deleted and made again while a worker looks at the timestamps of its old log."""

    async def scenario() -> None:
        disk, workers, clock = MemoryDisk(), SlowWork("load_timestamps"), ManualClock(NOW_MS)
        settings = TopicSettings(retention_ms=1000)
        manager = await LogManager.open(
            BrokerSettings(log_dirs=("/data",)), lambda _: settings, disk, clock, workers, Identity("c", 1)
        )
        old = manager.create(ORDERS, b"1" * 16, settings)
        append_many(old, 1)
        old.raise_high_watermark(1)
        clock.advance(10_000)
        retention = asyncio.ensure_future(manager.jobs.enforce_retention())
        for _ in range(5):
            await asyncio.sleep(0)
        manager.delete(ORDERS)
        log = manager.create(ORDERS, b"2" * 16, TopicSettings())
        append_many(log, 1)
        before = sorted(disk.list_directory("/data/orders-0"))
        workers.may_pass.set_result(None)
        await retention
        assert sorted(disk.list_directory("/data/orders-0")) == before

    asyncio.run(scenario())


def test_a_late_checkpoint_says_nothing_of_a_log_that_was_made_since() -> None:
    async def scenario() -> None:
        disk, workers, clock = MemoryDisk(), SlowWork("write_checkpoint"), ManualClock(NOW_MS)
        manager = await LogManager.open(
            BrokerSettings(log_dirs=("/data",)), lambda _: SETTINGS, disk, clock, workers, Identity("c", 1)
        )
        old = manager.create(ORDERS, b"1" * 16, SETTINGS)
        append_many(old, 3)
        old.raise_high_watermark(3)
        checkpoint = asyncio.ensure_future(manager.checkpoints.write(HIGH_WATERMARKS))
        await asyncio.sleep(0)
        manager.delete(ORDERS)
        manager.create(ORDERS, b"2" * 16, SETTINGS)
        workers.may_pass.set_result(None)
        await checkpoint
        assert disk.read_file("/data/replication-offset-checkpoint") == b"0\n0\n"

    asyncio.run(scenario())

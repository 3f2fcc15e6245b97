"""Segments that somebody removed after a clean stop are noticed, and nothing else is taken for that (R6)."""

import asyncio
from collections.abc import Callable

import pytest

from tests.storage.logs import ORDERS, append_many, manager_on
from tidelog.config.topic import TopicSettings
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.log import Log

PATH = "/data/orders-0"
BROKER_EPOCH = 7
SETTINGS = TopicSettings(segment_bytes=300)


async def stopped(
    disk: MemoryDisk, change: Callable[[Log], None] = lambda log: None, broker_epoch: int = BROKER_EPOCH
) -> list[str]:
    """Names of the log files of a log in several segments, after a clean stop."""
    manager = await manager_on(disk)
    log = manager.create(ORDERS, None, SETTINGS)
    append_many(log, 20)
    log.raise_high_watermark(20)
    change(log)
    await manager.close(broker_epoch)
    return log_files(disk)


def log_files(disk: MemoryDisk) -> list[str]:
    return sorted(entry.name for entry in disk.list_directory(PATH) if entry.name.endswith(".log"))


async def started(disk: MemoryDisk) -> Log:
    return (await manager_on(disk)).logs[ORDERS]


@pytest.mark.parametrize("number", [0, 2])
def test_missing_segments_are_noticed_until_they_are_accepted(number: int) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        names = await stopped(disk)
        assert len(names) > 4
        disk.remove(f"{PATH}/{names[number]}")
        manager = await manager_on(disk)
        log = manager.logs[ORDERS]
        assert log.has_missing_segments
        assert log.log_end_offset == 20
        assert log.last_record_epoch == -1, "it would win an election against whole logs"
        assert manager.previous_broker_epoch == -1, "the stop counts as clean"
        disk.crash()
        log = await started(disk)
        assert log.has_missing_segments, "a second start has forgotten it"
        log.accept_missing_segments()
        disk.crash()
        assert not (await started(disk)).has_missing_segments

    asyncio.run(run())


@pytest.mark.parametrize("broker_epoch", [-1, BROKER_EPOCH])
def test_a_log_without_its_last_segments_is_shorter_even_if_all_have_the_same_size(broker_epoch: int) -> None:
    """It would begin with offsets that others have, or lead without acknowledged records. -1: there are no lists."""

    async def run() -> None:
        disk = MemoryDisk()
        names = await stopped(disk, broker_epoch=broker_epoch)
        sizes = {entry.name: entry.size for entry in disk.list_directory(PATH)}
        assert sizes[names[-1]] == sizes[names[-3]]
        for name in names[-2:]:
            disk.remove(f"{PATH}/{name}")
        log = await started(disk)
        assert not log.has_missing_segments
        assert log.log_end_offset == int(names[-2].split(".")[0])

    asyncio.run(run())


def test_what_retention_deleted_is_not_missing() -> None:
    def delete_some(log: Log) -> None:
        log.advance_log_start_offset(10)
        assert log.delete_old_segments(0)

    async def run() -> None:
        disk = MemoryDisk()
        await stopped(disk, delete_some)
        manager = await manager_on(disk)
        log = manager.logs[ORDERS]
        assert not log.has_missing_segments
        assert manager.previous_broker_epoch == BROKER_EPOCH
        log.raise_high_watermark(20)
        log.advance_log_start_offset(15)
        assert log.delete_old_segments(0)
        disk.crash()
        assert not (await started(disk)).has_missing_segments, "the lists outlived their shutdown"

    asyncio.run(run())


@pytest.mark.parametrize("marker", [b"", b'{"version":0,"brokerEpoch":8}'])
def test_the_lists_do_not_count_after_a_stop_that_did_not_write_them(marker: bytes) -> None:
    """Apache Kafka, or an earlier version, has used the directory meanwhile, and its retention has deleted segments."""

    async def run() -> None:
        disk = MemoryDisk()
        names = await stopped(disk)
        disk.remove(f"{PATH}/{names[0]}")
        disk.write_file_atomically("/data/.kafka_cleanshutdown", marker)
        assert not (await started(disk)).has_missing_segments

    asyncio.run(run())


@pytest.mark.parametrize(
    "lists", [b"", b"0\n1\norders 0 7\n", b"0\n1\norders 0 7 zero\n", b"0\n2\norders 0 7 0\n", None]
)
def test_damaged_or_lost_lists_are_ignored(lists: bytes | None) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        await stopped(disk)
        if lists is None:
            disk.remove("/data/segment-list-checkpoint")
        else:
            disk.write_file_atomically("/data/segment-list-checkpoint", lists)
        log = await started(disk)
        assert not log.has_missing_segments
        assert log.log_end_offset == 20

    asyncio.run(run())

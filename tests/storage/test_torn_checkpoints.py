"""Torn checkpoints, producer snapshots and indexes: the log, its offsets and its epochs come out right."""

import asyncio

import pytest

from tests.storage.logs import ORDERS, all_records, append, batch_of, manager_on, offsets_of
from tidelog.config.topic import TopicSettings
from tidelog.protocol.records import Record
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from tidelog.storage.leader_epochs import EpochEntry
from tidelog.storage.log import Log

SETTINGS = TopicSettings(segment_bytes=300, index_interval_bytes=100)
RECORDS = 12
PRODUCER_ID = 7
LOG_START, HIGH_WATERMARK, FLUSHED_END = 2, 10, 8
EPOCHS = (EpochEntry(3, 0), EpochEntry(5, 4), EpochEntry(6, 9))


async def written(disk: MemoryDisk) -> Log:
    """Several segments and epochs: some are flushed, some are not. The process is killed, and the page cache stays."""
    manager = await manager_on(disk, topic_settings=lambda _: SETTINGS)
    log = manager.create(ORDERS, b"1" * 16, SETTINGS)
    for number in range(RECORDS):
        epoch = next(epoch for epoch, start in reversed(EPOCHS) if start <= number)
        batch = batch_of(b"%d" % number + b"." * 50, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=number)
        log.append_as_leader(batch, epoch)
        if number + 1 == FLUSHED_END:
            await log.flush()
    log.raise_high_watermark(HIGH_WATERMARK)
    log.advance_log_start_offset(LOG_START)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS):
        await manager.checkpoints.write(name)
    disk.locked_paths.clear()
    return log


async def check(disk: MemoryDisk, expected: list[Record], *, log_start: int = LOG_START) -> Log:
    """All records are there: a process crash loses none, whatever else is damaged."""
    manager = await manager_on(disk, topic_settings=lambda _: SETTINGS)
    log = manager.logs[ORDERS]
    assert log.log_start_offset == log_start
    assert log.log_start_offset <= log.high_watermark <= log.log_end_offset == RECORDS
    assert [record for record in all_records(log) if record.offset >= LOG_START] == expected
    assert log.leader_epochs.starts[-2:] == EPOCHS[-2:]
    assert [offsets_of(_read_from(log, offset))[0] for offset in range(LOG_START, RECORDS)] == list(
        range(LOG_START, RECORDS)
    )
    entry = log.producers.by_id[PRODUCER_ID]
    assert entry.last_sequence == RECORDS - 1
    append(log, b"next", leader_epoch=6)
    return log


def _read_from(log: Log, offset: int) -> list[Record]:
    return [record for record in all_records(log) if record.offset >= offset]


def files_of(disk: MemoryDisk, *suffixes: str) -> list[str]:
    names = [entry.name for entry in disk.list_directory("/data/orders-0") if not entry.is_directory]
    return [f"/data/orders-0/{name}" for name in names if name.endswith(suffixes)]


def tear(disk: MemoryDisk, path: str, size: int) -> None:
    contents = disk.read_file(path)
    disk.open(path, "create").append(contents[:size])


@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS])
def test_a_torn_checkpoint_of_offsets_is_rebuilt(name: str) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        log = await written(disk)
        expected = all_records(log)
        size = len(disk.read_file(f"/data/{name}"))
        for kept_bytes in range(size):
            disk = MemoryDisk()
            await written(disk)
            tear(disk, f"/data/{name}", kept_bytes)
            await check(disk, expected, log_start=0 if name == LOG_START_OFFSETS else LOG_START)

    asyncio.run(scenario())


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_a_torn_index_or_snapshot_behind_the_recovery_point_is_rebuilt(suffix: str) -> None:
    """What a flush has not synced. Segments before the recovery point were synced with their indexes."""

    async def scenario() -> None:
        disk = MemoryDisk()
        log = await written(disk)
        expected = all_records(log)
        flushed = {segment.base_offset for segment in log.segments if segment.base_offset <= FLUSHED_END}
        first_unsynced = max(flushed)
        paths = [
            path for path in files_of(disk, suffix) if int(path[-20 - len(suffix) : -len(suffix)]) >= first_unsynced
        ]
        assert paths
        for path in paths:
            for kept_bytes in range(0, len(disk.read_file(path)) + 1, 3):
                other = MemoryDisk()
                await written(other)
                tear(other, path, kept_bytes)
                await check(other, expected)

    asyncio.run(scenario())


def test_all_of_them_may_be_gone_at_once() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        expected = all_records(await written(disk))
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS):
            tear(disk, f"/data/{name}", 3)
        for path in files_of(disk, ".index", ".timeindex", ".snapshot"):
            disk.remove(path)
        await check(disk, expected, log_start=0)

    asyncio.run(scenario())

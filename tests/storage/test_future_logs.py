"""Future logs: copy, swap and restart, with a crash before every change of the disk (R30)."""

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.storage.logs import (
    EPOCH,
    ORDERS,
    all_records,
    append,
    append_many,
    batch_of,
    end_transaction,
    manager_on,
)
from tidelog.config.topic import TopicSettings
from tidelog.errors import InvalidTopic, KafkaStorageError
from tidelog.protocol.records import ControlType
from tidelog.runtime.memory_disk import CrashDamage, MemoryDisk
from tidelog.runtime.randomness import SeededRandomness
from tidelog.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from tidelog.storage.disk_errors import ResourceShortage
from tidelog.storage.log import Log
from tidelog.storage.log_directory import DuplicateLog
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_names import future_name, parse_future_name
from tidelog.storage.replaced_logs import MARKER
from tidelog.types import TopicPartition, Uuid

TOPIC_ID: Uuid = b"t" * 16
SMALL = TopicSettings(segment_bytes=1200)
PRODUCER = 7


class Crash(BaseException):
    """The process ends before a change of the disk."""


async def two_dirs(disk: MemoryDisk) -> LogManager:
    return await manager_on(disk, "/one", "/two", topic_settings=lambda topic: SMALL)


def fill(manager: LogManager) -> Log:
    """A log in /one with two epochs, an idempotent producer, deleted records, and some that are not committed."""
    log = manager.create(ORDERS, TOPIC_ID, SMALL)
    assert log.directory.path == "/one"
    append_many(log, 20)
    for sequence in range(3):
        log.append_as_leader(
            batch_of(b"idempotent", producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence), EPOCH
        )
    append(log, b"next epoch", leader_epoch=EPOCH + 3)
    append_many(log, 10)
    log.raise_high_watermark(30)
    log.advance_log_start_offset(4)
    return log


def copy(current: Log, future: Log) -> None:
    if future.log_end_offset < current.log_start_offset:
        future.truncate_fully_and_start_at(current.log_start_offset)
    while future.log_end_offset < current.log_end_offset:
        found = current.read(future.log_end_offset, 700, current.log_end_offset).slice
        assert found is not None
        future.append_as_follower(found.read())
    future.raise_high_watermark(current.high_watermark)
    if future.log_start_offset < current.log_start_offset:
        future.advance_log_start_offset(current.log_start_offset)


async def move(manager: LogManager, target: int = 1) -> Log:
    current = manager.logs[ORDERS]
    future = manager.future.get(ORDERS) or manager.future.create(current, manager.directories[target])
    copy(current, future)
    if await manager.future.prepare_swap(future):
        await manager.future.finish_swap(manager.future.swap(ORDERS))
    return manager.logs[ORDERS]


def facts(log: Log) -> tuple[object, ...]:
    return (
        [(record.offset, record.value) for record in all_records(log)],
        log.log_start_offset,
        log.log_end_offset,
        log.leader_epochs.starts,
        sorted(log.producers.by_id),
    )


def names(disk: MemoryDisk, directory: str) -> set[str]:
    return {entry.name for entry in disk.list_directory(directory) if entry.is_directory}


def test_a_future_log_has_kafkas_name() -> None:
    assert future_name(ORDERS, "ab" * 16) == f"orders-0.{'ab' * 16}-future"
    assert parse_future_name(f"orders-0.{'ab' * 16}-future") == ORDERS
    assert parse_future_name("with.dots-12.ab-future") == TopicPartition("with.dots", 12)
    assert parse_future_name("orders-0.ab-delete") is None


def test_a_long_topic_name_is_never_shortened() -> None:
    name = future_name(TopicPartition("x" * 240, 3), "ab" * 16)
    assert name is not None
    assert len(name) == 255
    assert parse_future_name(name) == TopicPartition("x" * 240, 3)
    assert future_name(TopicPartition("x" * 249, 3), "ab" * 16) is None


def test_a_swap_keeps_records_watermark_epochs_and_producers() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        log = fill(manager)
        log.leader_epochs.assign(EPOCH + 5, log.log_end_offset)  # a leader that has not appended yet (R3)
        before = facts(log)
        moved = await move(manager)
        assert moved.path == "/two/orders-0"
        assert facts(moved) == before
        assert moved.high_watermark == 30
        assert not moved.is_future
        assert names(disk, "/one") == {name for name in names(disk, "/one") if name.endswith("-delete")}
        assert not disk.exists(f"/two/orders-0/{MARKER}")
        append(moved, b"after the move")
        await manager.close()
        again = await two_dirs(disk)
        assert again.logs[ORDERS].log_end_offset == moved.log_end_offset
        assert again.logs[ORDERS].high_watermark == 30
        assert sorted(again.logs[ORDERS].producers.by_id) == [PRODUCER]
        assert not again.future.logs

    asyncio.run(run())


def test_an_open_transaction_is_still_open_after_the_swap() -> None:
    async def run() -> None:
        manager = await two_dirs(MemoryDisk())
        log = manager.create(ORDERS, TOPIC_ID, SMALL)
        append(log, b"before")
        transactional = batch_of(b"x", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.append_as_leader(transactional, EPOCH)
        log.raise_high_watermark(2)
        moved = await move(manager)
        assert (moved.last_stable_offset, moved.high_watermark) == (1, 2)
        end_transaction(moved, PRODUCER, ControlType.ABORT)
        moved.raise_high_watermark(3)
        assert moved.last_stable_offset == 3
        assert [entry.first_offset for entry in moved.aborted_transactions(0, 3)] == [1]

    asyncio.run(run())


def test_a_read_that_found_its_slice_before_the_swap_still_gets_it() -> None:
    async def run() -> None:
        manager = await two_dirs(MemoryDisk())
        log = fill(manager)
        found = log.read(5, 100, log.log_end_offset).slice
        expected = found.read() if found is not None else b""
        await move(manager)
        assert found is not None
        assert found.read() == expected
        again = log.read(5, 100, log.log_end_offset).slice  # a worker that has the replaced log still
        assert again is not None
        assert again.read() == expected
        assert log.aborted_transactions(4, 10) == []

    asyncio.run(run())


def test_a_flush_of_the_replaced_log_flushes_the_new_one() -> None:
    async def run() -> None:
        manager = await two_dirs(MemoryDisk())
        log = fill(manager)
        moved = await move(manager)
        append(moved, b"acknowledged after a flush")
        await log.flush()
        assert moved.recovery_point == moved.log_end_offset

    asyncio.run(run())


def test_a_marker_that_cannot_be_read_for_want_of_descriptors_is_a_shortage() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        log = fill(manager)
        future = manager.future.create(log, manager.directories[1])
        copy(log, future)
        fault = disk.inject(errno.EMFILE, f"{log.path}/{MARKER}")
        with pytest.raises(ResourceShortage):
            await manager.future.prepare_swap(future)
        disk.faults.remove(fault)
        assert await manager.future.prepare_swap(future)

    asyncio.run(run())


def test_a_swap_that_fails_for_a_moment_shares_nothing_and_can_be_repeated() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        log = fill(manager)
        future = manager.future.create(log, manager.directories[1])
        copy(log, future)
        assert await manager.future.prepare_swap(future)
        for operation in ("open", "rename"):
            fault = disk.inject(errno.ENOMEM, "/two", (operation,))
            with pytest.raises(ResourceShortage):
                manager.future.swap(ORDERS)
            disk.faults.remove(fault)
            assert manager.logs[ORDERS] is log
            assert future.producers is not log.producers
            assert future.leader_epochs is not log.leader_epochs
        assert facts(await move(manager))[:3] == facts(log)[:3]

    asyncio.run(run())


# ---- crashes


async def first_run(disk: MemoryDisk, crash_before: int | None) -> tuple[tuple[object, ...], int]:
    """Returns what the log held, and how many changes the move made."""
    manager = await two_dirs(disk)
    log = fill(manager)
    await log.flush()
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_START_OFFSETS):
        await manager.checkpoints.write(name)
    for path in ("/", "/one", "/two"):
        disk.sync_directory(path)
    before, changes = facts(log), 0

    def count(what: str, path: str, data: object) -> None:
        nonlocal changes
        if changes == crash_before:
            raise Crash
        changes += 1

    disk.on_changed.append(count)
    try:
        await move(manager)
    except Crash:
        pass
    finally:
        disk.on_changed.clear()
    return before, changes


def killed(disk: MemoryDisk, seed: int) -> None:
    disk.locked_paths.clear()


def power_cut(disk: MemoryDisk, seed: int) -> None:
    disk.crash_badly(SeededRandomness(seed), CrashDamage(tears_writes=True, loses_names=True))


@pytest.mark.parametrize("crash", [killed, MemoryDisk.crash, power_cut])
def test_a_crash_before_any_change_of_the_disk_loses_nothing(crash: Callable[..., None]) -> None:
    async def run() -> None:
        _, total = await first_run(MemoryDisk(), None)
        assert total > 20
        for step in range(total + 1):
            for seed in range(2 if crash is power_cut else 1):
                disk = MemoryDisk()
                before, _ = await first_run(disk, step)
                if crash is MemoryDisk.crash:
                    disk.crash()
                else:
                    crash(disk, seed)
                manager = await two_dirs(disk)
                log = manager.logs[ORDERS]
                assert facts(log)[:3] == before[:3], (step, seed)
                assert log.high_watermark == 30, (step, seed)
                moved = await move(manager) if log.directory.path == "/one" else log
                assert facts(moved)[:4] == before[:4], (step, seed)
                assert moved.path == "/two/orders-0"
                await manager.close()
                again = await two_dirs(disk)
                assert (again.logs[ORDERS].path, again.future.logs) == ("/two/orders-0", {}), (step, seed)
                assert not disk.exists(f"/two/orders-0/{MARKER}")

    asyncio.run(run())


@pytest.mark.parametrize("operation", ["rename", "sync_directory", "append", "write_file_atomically", "sync", "open"])
@pytest.mark.parametrize("directory", ["/one", "/two"])
def test_a_disk_that_fails_during_a_move_loses_nothing(operation: str, directory: str) -> None:
    async def run() -> None:
        for calls_before in range(12):
            disk = MemoryDisk()
            manager = await two_dirs(disk)
            log = fill(manager)
            await manager.checkpoints.write(LOG_START_OFFSETS)
            before = facts(log)
            fault = disk.inject(errno.EIO, directory, (operation,), calls_before)
            with suppress(KafkaStorageError):
                await move(manager)
            await asyncio.sleep(0)  # directory failures are reported on the loop
            disk.faults.remove(fault)
            current = manager.logs[ORDERS]
            if directory == "/two" and not current.directory.is_online and current is log:
                raise AssertionError("a failed target takes only the future log with it")
            if current.directory.is_online:
                assert facts(current) == before
            disk.locked_paths.clear()
            again = await two_dirs(disk)
            assert facts(again.logs[ORDERS])[:3] == before[:3], calls_before

    asyncio.run(run())


def test_only_the_future_log_is_dropped_when_its_disk_fails() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        offline: list[object] = []
        manager.on_directory_offline.append(lambda directory, partitions: offline.append(set(partitions)))
        log = fill(manager)
        future = manager.future.create(log, manager.directories[1])
        manager.directories[1].fail(OSError(errno.EIO, "broken"))
        await asyncio.sleep(0)
        assert offline == [set()]
        assert future.is_deleted
        assert not manager.future.logs
        append(log, b"goes on")
        disk.locked_paths.clear()
        again = await two_dirs(disk)
        assert again.future.logs[ORDERS].log_end_offset == 0  # taken up again when the disk is back

    asyncio.run(run())


def test_a_restart_takes_up_a_future_log_with_its_records() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        log = fill(manager)
        future = manager.future.create(log, manager.directories[1])
        copy(log, future)
        await manager.close()
        again = await two_dirs(disk)
        assert again.logs[ORDERS].path == "/one/orders-0"
        assert again.future.logs[ORDERS].log_end_offset == log.log_end_offset
        assert (await move(again)).path == "/two/orders-0"

    asyncio.run(run())


def test_truncation_of_the_current_log_truncates_the_future_log() -> None:
    async def run() -> None:
        manager = await two_dirs(MemoryDisk())
        log = fill(manager)
        future = manager.future.create(log, manager.directories[1])
        copy(log, future)
        log.truncate_to(25)
        assert future.log_end_offset == 25
        for offset in (100, 2):
            log.truncate_fully_and_start_at(offset)
            append(log, b"a", leader_epoch=EPOCH + 9 + log.log_end_offset)
            copy(log, future)
            assert (future.log_start_offset, future.log_end_offset) == (offset, offset + 1)

    asyncio.run(run())


def test_a_future_log_that_cannot_be_truncated_is_dropped_and_the_current_one_stays() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        log = fill(manager)
        future = manager.future.create(log, manager.directories[1])
        copy(log, future)
        disk.inject(errno.EMFILE, "/two", ("open", "write_file_atomically"))
        log.truncate_to(25)
        assert (log.log_end_offset, manager.future.logs, future.is_deleted) == (25, {}, True)
        assert manager.directories[1].is_online

    asyncio.run(run())


def test_deletion_of_the_partition_deletes_both_logs() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        copy(fill(manager), manager.future.create(manager.logs[ORDERS], manager.directories[1]))
        manager.delete(ORDERS)
        assert not manager.future.logs
        assert all(name.endswith("-delete") for each in ("/one", "/two") for name in names(disk, each))

    asyncio.run(run())


def test_a_cancelled_move_can_begin_again() -> None:
    async def run() -> None:
        manager = await two_dirs(MemoryDisk())
        log = fill(manager)
        copy(log, manager.future.create(log, manager.directories[1]))
        manager.future.remove(ORDERS)
        log.truncate_to(25)
        append(log, b"other", leader_epoch=EPOCH + 7)
        before = facts(log)
        assert facts(await move(manager)) == before

    asyncio.run(run())


def test_there_and_back_again() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        before = facts(fill(manager))
        await move(manager)
        assert facts(await move(manager, target=0)) == before
        await manager.close()
        assert (await two_dirs(disk)).logs[ORDERS].path == "/one/orders-0"

    asyncio.run(run())


def test_two_logs_without_a_marker_are_still_refused() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        append(manager.create(ORDERS, TOPIC_ID, SMALL), b"x")
        await manager.close()
        disk.make_directory("/two/orders-0")
        disk.open("/two/orders-0/00000000000000000000.log", "create").append(batch_of(b"y"))
        with pytest.raises(DuplicateLog):
            await two_dirs(disk)

    asyncio.run(run())


def test_the_replaced_log_of_a_disk_that_was_away_does_not_come_back() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        before = facts(fill(manager))
        future = manager.future.create(manager.logs[ORDERS], manager.directories[1])
        copy(manager.logs[ORDERS], future)
        assert await manager.future.prepare_swap(future)
        replaced = manager.future.swap(ORDERS)
        fault = disk.inject(errno.EIO, "/one")
        await manager.future.finish_swap(replaced)
        await manager.close()
        only_two = await two_dirs(disk)
        assert only_two.logs[ORDERS].path == "/two/orders-0"
        append(only_two.logs[ORDERS], b"while the disk is away")
        await only_two.close()
        disk.faults.remove(fault)
        both = await two_dirs(disk)
        assert both.logs[ORDERS].path == "/two/orders-0"
        assert both.logs[ORDERS].log_end_offset == before[2] + 1  # type: ignore[operator]
        assert not disk.exists(f"/two/orders-0/{MARKER}")

    asyncio.run(run())


def test_a_future_log_of_a_lost_current_log_is_set_aside_not_deleted() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        copy(fill(manager), manager.future.create(manager.logs[ORDERS], manager.directories[1]))
        await manager.close()
        disk.remove_tree("/one/orders-0")
        again = await two_dirs(disk)
        assert ORDERS in again.future.logs
        again.create(ORDERS, TOPIC_ID, SMALL)
        assert not again.future.logs
        assert len(again.stray_paths) == 1
        assert again.stray_paths[0].startswith("/two/orders-0.")

    asyncio.run(run())


def test_a_future_log_beside_its_own_log_is_deleted() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        append(manager.create(ORDERS, TOPIC_ID, SMALL), b"x")
        await manager.close()
        disk.make_directory("/one/orders-0.ab-future")
        again = await two_dirs(disk)
        assert again.logs[ORDERS].log_end_offset == 1
        assert not again.future.logs

    asyncio.run(run())


def test_a_name_that_is_too_long_is_refused() -> None:
    async def run() -> None:
        manager = await two_dirs(MemoryDisk())
        log = manager.create(TopicPartition("x" * 249, 0), TOPIC_ID, SMALL)
        with pytest.raises(InvalidTopic):
            manager.future.create(log, manager.directories[1])

    asyncio.run(run())


def test_a_chosen_log_dir_gets_the_next_log() -> None:
    async def run() -> None:
        manager = await two_dirs(MemoryDisk())
        manager.prefer_directory(ORDERS, manager.directories[1])
        assert manager.create(ORDERS, TOPIC_ID, SMALL).directory.path == "/two"

    asyncio.run(run())


def test_cleaning_pauses_while_a_log_is_copied() -> None:
    async def run() -> None:
        compact = TopicSettings(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, segment_bytes=1200)
        manager = await manager_on(MemoryDisk(), "/one", "/two", topic_settings=lambda topic: compact)
        log = manager.create(ORDERS, TOPIC_ID, compact)
        append_many(log, 40)
        log.raise_high_watermark(log.log_end_offset)
        future = manager.future.create(log, manager.directories[1])
        assert not await manager.cleaner.clean_once()
        copy(log, future)
        assert await manager.future.prepare_swap(future)
        await manager.future.finish_swap(manager.future.swap(ORDERS))
        assert await manager.cleaner.clean_once()

    asyncio.run(run())


@pytest.mark.parametrize("fails_at_start", [False, True])
def test_a_topic_that_was_created_again_while_a_disk_was_away_is_the_one_that_counts(fails_at_start: bool) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await two_dirs(disk)
        append(manager.create(ORDERS, TOPIC_ID, SMALL), b"of the deleted topic")
        if fails_at_start:
            await manager.close()
        fault = disk.inject(errno.EIO, "/one")
        if fails_at_start:
            manager = await two_dirs(disk)
        else:
            manager.directories[0].fail(OSError(errno.EIO, "broken"))
            manager.delete(ORDERS)
        append(manager.create(ORDERS, b"u" * 16, SMALL), b"new", b"new")
        await manager.close()
        disk.faults.remove(fault)
        disk.locked_paths.clear()
        again = await two_dirs(disk)
        assert (again.logs[ORDERS].path, again.logs[ORDERS].log_end_offset) == ("/two/orders-0", 2)
        (stray,) = again.stray_paths
        assert stray.startswith("/one/orders-0.")
        assert not disk.exists(f"/two/orders-0/{MARKER}")

    asyncio.run(run())


def test_a_power_cut_brings_no_deleted_log_back_beside_a_new_one() -> None:
    async def run() -> None:
        for seed in range(8):
            disk = MemoryDisk()
            manager = await two_dirs(disk)
            append(manager.create(ORDERS, TOPIC_ID, SMALL), b"of the deleted topic")
            await manager.logs[ORDERS].flush()
            for path in ("/", "/one", "/two"):
                disk.sync_directory(path)
            manager.delete(ORDERS)
            manager.prefer_directory(ORDERS, manager.directories[1])
            append(manager.create(ORDERS, b"u" * 16, SMALL), b"new")
            await manager.logs[ORDERS].flush()
            power_cut(disk, seed)
            assert (await two_dirs(disk)).logs[ORDERS].path == "/two/orders-0"

    asyncio.run(run())

"""Shortages of descriptors in the middle of anything: it is done, or nothing has changed and it can be repeated."""

import asyncio
import copy
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.storage.logs import (
    EPOCH,
    NOW_MS,
    ORDERS,
    all_records,
    append,
    append_many,
    batch_of,
    context_on,
    end_transaction,
    loaded,
    manager_on,
    new_log,
    offsets_of,
)
from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaStorageError
from tidelog.protocol.records import ControlType
from tidelog.runtime.disk import OpenMode, SystemDisk, SystemFile
from tidelog.runtime.memory_disk import Fault, MemoryDisk
from tidelog.storage.checkpoints import RECOVERY_POINTS
from tidelog.storage.descriptor_reclaiming_disk import DescriptorReclaimingDisk
from tidelog.storage.disk_errors import ResourceShortage, append_whole, is_transient
from tidelog.storage.loader import Checkpointed, load_log
from tidelog.storage.log import Log
from tidelog.storage.log_directory import CLEAN_SHUTDOWN_MARKER, LogDirectory, StorageSetupError
from tidelog.storage.segment_cache import SegmentCache

TAKES_A_DESCRIPTOR = ("open", "read_file", "write_file_atomically", "list_directory", "sync_directory", "lock")
SMALL = TopicSettings(segment_bytes=1000, index_interval_bytes=150)
PRODUCER = 7


class Shortage(Fault):
    """Counts how often it struck."""

    struck = 0

    def strikes(self, operation: str, path: str) -> bool:
        strikes = super().strikes(operation, path)
        Shortage.struck += strikes
        return strikes


def run_short(disk: MemoryDisk, calls_before: int, operations: tuple[str, ...] = TAKES_A_DESCRIPTOR) -> None:
    """From now on there are no descriptors, after so many more calls."""
    Shortage.struck = 0
    disk.faults.append(Shortage(errno.EMFILE, "/", operations, calls_before))


def filled() -> Log:
    """Several segments, epochs, an open and an aborted transaction, and a part that was flushed; nothing is cached."""
    log = new_log(settings=SMALL)
    log.directory.logs[ORDERS] = log
    for sequence in range(4):
        send(log, sequence)
    end_transaction(log, PRODUCER, ControlType.ABORT)
    append_many(log, 20)
    asyncio.run(log.flush())
    append(log, b"later", leader_epoch=EPOCH + 1)
    for sequence in range(4, 8):
        send(log, sequence)
    append_many(log, 12)
    log.raise_high_watermark(30)
    log.release_resources()
    return log


def reopened() -> Log:
    """Nothing is known but what stands in the files, and the next batch gets an entry in the indexes."""
    closed = filled()
    closed.roll()
    append_many(closed, 3)
    asyncio.run(closed.close())
    log = loaded(closed, is_clean=True, recovery_point=closed.log_end_offset, high_watermark=30)
    log.directory.logs[ORDERS] = log
    append_many(log, 2)
    log.release_resources()
    return log


def send(log: Log, sequence: int) -> None:
    batch = batch_of(b"value", producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    log.append_as_leader(batch, log.leader_epochs.latest_epoch if log.log_end_offset else EPOCH)


def state_of(log: Log) -> tuple[object, ...]:
    """The whole state of a log, from memory and files."""
    return (
        log.log_start_offset,
        log.log_end_offset,
        [(record.offset, record.value) for record in all_records(log)] if log.log_end_offset else [],
        log.leader_epochs.starts,
        [(each.producer_id, each.epoch, each.last_sequence) for each in log.producers.by_id.values()],
        log.aborted_transactions(log.log_start_offset, log.log_end_offset),
        [segment.base_offset for segment in log.segments if segment.size_bytes],  # one may have been rolled for nothing
    )


def as_the_next_start_finds_it(log: Log) -> Log:
    """After a kill -9, on a copy of the disk."""
    disk = copy.deepcopy(log.directory.context.disk)
    assert isinstance(disk, MemoryDisk)
    disk.faults.clear()
    directory = LogDirectory("/data", context_on(disk))
    checkpointed = Checkpointed(False, log.recovery_point, log.high_watermark, log.log_start_offset)
    return load_log(directory, log.path, ORDERS, SMALL, checkpointed)


def roll_by_appending(log: Log) -> None:
    append(log, b"x" * 900)


def append_an_index_entry(log: Log) -> None:
    append(log, b"x" * 100)


def abort(log: Log) -> None:
    end_transaction(log, PRODUCER, ControlType.ABORT)


def cut_a_little(log: Log) -> None:
    log.truncate_to(log.log_end_offset - 2)


def cut_into_an_earlier_segment(log: Log) -> None:
    log.truncate_to(7)


def cut_away_an_aborted_transaction(log: Log) -> None:
    log.truncate_to(3)


def start_over(log: Log) -> None:
    log.truncate_fully_and_start_at(100)


def start_over_where_a_segment_starts(log: Log) -> None:
    log.truncate_fully_and_start_at(0)


def roll(log: Log) -> None:
    log.roll()


def flush(log: Log) -> None:
    asyncio.run(log.flush())


def apply_retention(log: Log) -> None:
    log.settings = TopicSettings(segment_bytes=1000, retention_ms=1)
    log.raise_high_watermark(log.log_end_offset)
    log.delete_old_segments(NOW_MS + 100_000)


def close(log: Log) -> None:
    asyncio.run(log.close())


OPERATIONS = [
    roll_by_appending,
    append_an_index_entry,
    abort,
    cut_a_little,
    cut_into_an_earlier_segment,
    cut_away_an_aborted_transaction,
    start_over,
    start_over_where_a_segment_starts,
    roll,
    flush,
    apply_retention,
    close,
]


@pytest.mark.parametrize("start", [filled, reopened], ids=lambda start: start.__name__)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_whatever_descriptor_is_missing_nothing_has_changed_and_the_next_attempt_does_it(
    operation: Callable[[Log], None], start: Callable[[], Log]
) -> None:
    expected = start()
    operation(expected)
    for calls_before in range(100):
        log = start()
        disk = log.directory.context.disk
        assert isinstance(disk, MemoryDisk)
        before, recovery_point = state_of(log), log.recovery_point
        log.release_resources()
        run_short(disk, calls_before)
        try:
            operation(log)
        except ResourceShortage:
            assert log.directory.is_online
        else:
            assert not Shortage.struck, "the shortage was swallowed"
            break
        finally:
            disk.faults.clear()
        assert state_of(log) == before
        assert log.recovery_point == recovery_point
        assert state_of(as_the_next_start_finds_it(log))[:3] == before[:3], "the files agree with memory"
        operation(log)
        assert state_of(log) == state_of(expected)
        assert state_of(as_the_next_start_finds_it(log))[:3] == state_of(expected)[:3]
    assert calls_before > 0, "it takes no descriptor"


CUTS = (
    cut_a_little,
    cut_into_an_earlier_segment,
    cut_away_an_aborted_transaction,
    start_over,
    start_over_where_a_segment_starts,
    apply_retention,
)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_whatever_fails_for_good_takes_the_directory_offline_and_the_next_start_finds_whole_records(
    operation: Callable[[Log], None], number: int
) -> None:
    """Also in the middle of a change: what is cut or deleted may be there or not, nothing else is missing or twice."""
    expected = filled()
    operation(expected)
    for calls_before in range(200):
        log = filled()
        disk = log.directory.context.disk
        assert isinstance(disk, MemoryDisk)
        before = state_of(log)
        log.release_resources()
        disk.inject(number, "/data", (*TAKES_A_DESCRIPTOR, "append", "truncate", "rename", "sync"), calls_before)
        try:
            operation(log)
        except KafkaStorageError:
            assert not log.directory.is_online
            with pytest.raises(KafkaStorageError, match="offline"):
                append(log, b"x")
        else:
            break
        found = state_of(as_the_next_start_finds_it(log))[:3]
        if operation not in CUTS:
            assert found in (before[:3], state_of(expected)[:3])
        start, end, records = found
        assert [offset for offset, _ in records] == list(range(start, end))  # type: ignore[attr-defined,call-overload]
        assert set(records) <= {*before[2], *state_of(expected)[2]}  # type: ignore[call-overload,misc]
    assert calls_before > 0


@pytest.mark.parametrize("operations", [("open",), ("append",), ("truncate",)])
def test_a_half_written_batch_is_taken_back_or_the_directory_is_offline(operations: tuple[str, ...]) -> None:
    """Short of memory in the middle of a write: what stands in the file already must not stay there."""
    log = filled()
    disk = log.directory.context.disk
    assert isinstance(disk, MemoryDisk)
    file = disk.open(log.active_segment.path(".log"), "update")
    size_bytes, write = file.size(), file.append

    class Torn:
        path = file.path

        def append(self, data: bytes) -> None:
            write(memoryview(data)[:10])
            raise OSError(errno.ENOMEM, "Cannot allocate memory")

        def truncate(self, size: int) -> None:
            file.truncate(size)

    disk.inject(errno.ENOMEM, "/data", operations)
    is_undone = "truncate" not in operations
    with pytest.raises(OSError, match="Cannot allocate memory") as raised:
        append_whole(Torn(), b"x" * 50, size_bytes)  # type: ignore[arg-type]
    assert is_transient(raised.value) is is_undone
    disk.faults.clear()
    assert (file.size() == size_bytes) is is_undone


def test_errors_that_pass_are_distinguished_from_those_of_a_disk() -> None:
    passing = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN)
    lasting = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOENT, errno.EBADF)
    assert all(is_transient(OSError(number, "")) for number in passing)
    assert not any(is_transient(OSError(number, "")) for number in lasting)
    assert [is_transient(error) for error in (ResourceShortage(), KafkaStorageError(), ValueError())] == [
        True,
        False,
        False,
    ]


def test_a_shortage_of_descriptors_first_costs_a_file_that_a_log_keeps_open_for_nothing(tmp_path: Path) -> None:
    cache = SegmentCache()
    disk, failures = SystemDisk(), [2]

    class Short(SystemDisk):
        def open(self, path: str, mode: OpenMode) -> SystemFile:
            if failures[0]:
                failures[0] -= 1
                raise OSError(errno.EMFILE, "Too many open files", path)
            return disk.open(path, mode)

    class Holder:
        is_recently_used, is_released = True, False

        def release_file(self) -> None:
            self.is_released = True

    holders = [Holder(), Holder(), Holder()]
    for holder in holders:
        cache.opened(holder)
    thrifty = DescriptorReclaimingDisk(Short(), cache)
    with pytest.raises(OSError, match="Too many"):
        thrifty.open(str(tmp_path / "a"), "append")
    assert not any(holder.is_released for holder in holders), "all were used since the last look"
    holders[0].is_recently_used, failures[0] = True, 1
    thrifty.open(str(tmp_path / "a"), "append").close()
    assert [holder.is_released for holder in holders] == [False, True, False]


# ---- closing and opening


def run(scenario: Callable[[MemoryDisk], Awaitable[None]]) -> None:
    asyncio.run(scenario(MemoryDisk()))  # type: ignore[arg-type]


PAYMENTS = ORDERS._replace(topic="payments")


def test_a_log_that_could_not_be_closed_leaves_its_directory_unmarked_and_the_others_marked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(disk: MemoryDisk) -> None:
        manager = await manager_on(disk, "/a", "/b")
        logs = [manager.create(each, None, TopicSettings()) for each in (ORDERS, PAYMENTS)]
        for log in logs:
            append_many(log, 5)
            await log.flush()
            append_many(log, 5)
        disk.inject(errno.EMFILE, logs[0].path, ("open",))
        await manager.close()
        disk.faults.clear()
        assert not disk.exists(f"{logs[0].directory.path}/{CLEAN_SHUTDOWN_MARKER}")
        assert disk.exists(f"{logs[1].directory.path}/{CLEAN_SHUTDOWN_MARKER}")
        assert "log not closed cleanly" in caplog.text
        assert "Too many open files" in caplog.text
        again = await manager_on(disk, "/a", "/b")
        assert [again.logs[each].log_end_offset for each in (ORDERS, PAYMENTS)] == [10, 10]
        assert append(again.logs[ORDERS], b"x").first_offset == 10

    run(scenario)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "segment-size-checkpoint", CLEAN_SHUTDOWN_MARKER])
def test_a_checkpoint_that_could_not_be_written_leaves_no_marker(name: str) -> None:
    async def scenario(disk: MemoryDisk) -> None:
        manager = await manager_on(disk)
        append_many(manager.create(ORDERS, None, TopicSettings()), 5)
        disk.inject(errno.EMFILE, f"/data/{name}")
        await manager.close()
        disk.faults.clear()
        assert not disk.exists(f"/data/{CLEAN_SHUTDOWN_MARKER}")
        assert (await manager_on(disk)).logs[ORDERS].log_end_offset == 5

    run(scenario)


def test_a_log_that_fails_unexpectedly_while_it_is_closed_leaves_no_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(disk: MemoryDisk) -> None:
        manager = await manager_on(disk)
        for topic_partition in (ORDERS, PAYMENTS):
            append_many(manager.create(topic_partition, None, TopicSettings()), 5)
        snapshots = manager.logs[ORDERS].snapshots
        monkeypatch.setattr(type(snapshots), "take_snapshot_at_close", lambda self, *_: 1 // (self is not snapshots))
        await manager.close()
        assert not disk.exists(f"/data/{CLEAN_SHUTDOWN_MARKER}")
        assert manager.logs[PAYMENTS].is_closed

    run(scenario)


def test_a_log_that_was_closed_at_the_second_attempt_is_clean() -> None:
    """The descriptors of the logs that were closed before are free then."""

    async def scenario(disk: MemoryDisk) -> None:
        manager = await manager_on(disk)
        log = manager.create(ORDERS, None, TopicSettings())
        append_many(log, 5)
        disk.inject(errno.EMFILE, log.path, ("open",))
        close_ = Log.close

        async def close_once(closed: Log) -> None:
            try:
                await close_(closed)
            finally:
                disk.faults.clear()

        with patch.object(Log, "close", close_once):
            await manager.close()
        assert disk.exists(f"/data/{CLEAN_SHUTDOWN_MARKER}")

    run(scenario)


def test_a_marker_is_not_believed_where_the_file_is_longer_than_the_recovery_point_says() -> None:
    async def scenario(disk: MemoryDisk) -> None:
        manager = await manager_on(disk)
        log = manager.create(ORDERS, None, TopicSettings())
        append_many(log, 5)
        await log.flush()
        await manager.checkpoints.write(RECOVERY_POINTS)
        append_many(log, 5)
        log.directory.write_clean_shutdown_marker()
        log.directory.release()
        again = (await manager_on(disk)).logs[ORDERS]
        assert again.log_end_offset == 10
        append(again, b"x")
        assert offsets_of(all_records(again)) == list(range(11))

    run(scenario)


def test_a_marker_is_not_believed_where_half_a_batch_stands_at_the_end() -> None:
    async def scenario(disk: MemoryDisk) -> None:
        manager = await manager_on(disk)
        log = manager.create(ORDERS, None, TopicSettings())
        append_many(log, 5)
        await manager.close()
        disk.remove("/data/segment-size-checkpoint")
        disk.open(log.active_segment.path(".log"), "append").append(bytes(log.active_segment.file.read(0, 20)))
        again = (await manager_on(disk)).logs[ORDERS]
        append(again, b"x")
        assert offsets_of(all_records(again)) == list(range(6))

    run(scenario)


@pytest.mark.parametrize("operation", TAKES_A_DESCRIPTOR)
def test_a_start_without_enough_descriptors_is_refused_and_loses_nothing(operation: str) -> None:
    """Logs that could not be opened would pass for logs that are not there, and new ones take their place."""

    async def scenario(disk: MemoryDisk) -> None:
        manager = await manager_on(disk, "/a", "/b")
        append_many(manager.create(ORDERS, bytes(15) + b"x", TopicSettings()), 5)
        await manager.close()
        for calls_before in range(100):
            run_short(disk, calls_before, (operation,))
            try:
                manager = await manager_on(disk, "/a", "/b")
            except StorageSetupError:
                assert Shortage.struck
            else:
                assert not Shortage.struck
                break
            finally:
                disk.faults.clear()
        assert manager.logs[ORDERS].log_end_offset == 5
        assert len(manager.logs) == 1

    run(scenario)


def test_what_could_not_be_deleted_for_a_shortage_is_deleted_later() -> None:
    async def scenario(disk: MemoryDisk) -> None:
        manager = await manager_on(disk)
        manager.create(ORDERS, None, TopicSettings(file_delete_delay_ms=0))
        manager.delete(ORDERS)
        manager._context.clock.advance(100_000)  # type: ignore[attr-defined]
        disk.inject(errno.EMFILE, "/data", ("remove_tree",))
        await manager.jobs.delete_due_files()
        disk.faults.clear()
        assert any(entry.is_directory for entry in disk.list_directory("/data"))
        await manager.jobs.delete_due_files()
        assert not any(entry.is_directory for entry in disk.list_directory("/data"))

    run(scenario)


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE])
def test_a_log_that_could_not_be_set_aside_is_still_there_and_is_set_aside_later(number: int) -> None:
    async def scenario(disk: MemoryDisk) -> None:
        manager = await manager_on(disk)
        log = manager.create(ORDERS, None, TopicSettings())
        append(log, b"kept")
        disk.inject(number, "/data", ("rename",))
        with pytest.raises(ResourceShortage):
            manager.set_aside(ORDERS)
        disk.faults.clear()
        assert manager.create(ORDERS, None, TopicSettings()) is log
        manager.set_aside(ORDERS)
        (path,) = manager.stray_paths
        assert disk.read_file(f"{path}/00000000000000000000.log")

    run(scenario)

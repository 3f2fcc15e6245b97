import asyncio
import errno
import logging
import shutil
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

import pytest

from tests.storage.logs import (
    EPOCH,
    NOW_MS,
    ORDERS,
    all_records,
    append,
    append_many,
    batch_of,
    manager_on,
    new_log,
    offsets_of,
)
from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaStorageError
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from tidelog.storage.disk_errors import ResourceShortage
from tidelog.storage.log import Log
from tidelog.storage.log_directory import (
    DuplicateLog,
    ForeignLogDirectory,
    LogDirectory,
    LogDirectoryInUse,
    StorageSetupError,
)
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_names import deletion_name, parse_partition_name
from tidelog.types import TopicPartition, uuid_text

TOPIC_ID = bytes(range(16))
SETTINGS = TopicSettings()
DAY_MS = 86_400_000


def orders(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def names(disk: MemoryDisk, path: str = "/data") -> set[str]:
    return {entry.name for entry in disk.list_directory(path)}


def kill(disk: MemoryDisk) -> None:
    """A process is killed: everything that was written is still there."""
    disk.crash(lambda path, unsynced_bytes: unsynced_bytes)


# ---- opening and closing


def test_a_new_log_dir_says_whose_it_is() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk, cluster_id="abc", broker_id=3)
        (directory_id,) = manager.directory_ids
        expected = f"version=0\ncluster.id=abc\nbroker.id=3\ndirectory.id={directory_id}\n"
        assert disk.read_file("/data/meta.properties") == expected.encode()
        assert manager.cluster_id == "abc"

    asyncio.run(run())


def test_a_log_dir_in_use_is_refused_by_name() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        with pytest.raises(LogDirectoryInUse, match="/data is in use by another process"):
            await manager_on(disk)
        await manager.close()
        await manager_on(disk)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("cluster_id", "broker_id", "complaint"),
    [("other", 1, "cluster.id=cluster"), ("cluster", 2, "broker.id=1")],
)
def test_a_log_dir_of_others_is_refused_and_left_as_it_is(cluster_id: str, broker_id: int, complaint: str) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        await (await manager_on(disk)).close()
        before = {name: disk.read_file(f"/data/{name}") for name in names(disk)}
        with pytest.raises(ForeignLogDirectory, match=complaint):
            await manager_on(disk, cluster_id=cluster_id, broker_id=broker_id)
        assert {name: disk.read_file(f"/data/{name}") for name in names(disk)} == before
        await manager_on(disk)

    asyncio.run(run())


def test_every_log_dir_has_an_id_of_its_own_and_keeps_it() -> None:
    """R42, KIP-858"""

    async def run() -> None:
        disk = MemoryDisk()
        first = await manager_on(disk, "/one", "/two")
        await first.close()
        assert len(set(first.directory_ids)) == 2
        assert (await manager_on(disk, "/one", "/two")).directory_ids == first.directory_ids

    asyncio.run(run())


@pytest.mark.parametrize(
    ("markers", "expected"),
    [
        ((b'{"version":0,"brokerEpoch":7}', b'{"version":0,"brokerEpoch":7}'), 7),
        ((b'{"version":0,"brokerEpoch":7}', b'{"version":0,"brokerEpoch":6}'), -1),
        ((b'{"version":0,"brokerEpoch":7}', None), -1),
        ((b"", b""), -1),
        ((b'{"brokerEpoch":"7"}', b"[]"), -1),
    ],
)
def test_a_clean_stop_is_reported_with_its_broker_epoch_where_all_log_dirs_agree(
    markers: tuple[bytes | None, bytes | None], expected: int
) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        for path, marker in zip(("/one", "/two"), markers, strict=True):
            disk.make_directory(path)
            disk.write_file_atomically(f"{path}/{RECOVERY_POINTS}", b"0\n0\n")
            if marker is not None:
                disk.write_file_atomically(f"{path}/.kafka_cleanshutdown", marker)
        manager = await manager_on(disk, "/one", "/two")
        assert manager.previous_broker_epoch == expected
        await manager.close()  # without having been registered: nothing has changed
        again = await manager_on(disk, "/one", "/two")
        assert again.previous_broker_epoch == expected
        await again.close(broker_epoch=9)
        assert (await manager_on(disk, "/one", "/two")).previous_broker_epoch == 9

    asyncio.run(run())


def test_a_stop_was_not_clean_for_who_comes_back_without_one_of_its_log_dirs() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        await (await manager_on(disk, "/one", "/two")).close(broker_epoch=7)
        fewer = await manager_on(disk, "/one")
        assert fewer.previous_broker_epoch == -1
        await fewer.close(broker_epoch=8)
        assert (await manager_on(disk, "/one")).previous_broker_epoch == 8

    asyncio.run(run())


def test_what_kafka_wrote_into_meta_properties_stays() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        disk.make_directory("/data")
        contents = b"#\n#Thu Jan 01\nversion=1\nnode.id=1\ndirectory.id=abcdefg\ncluster.id=cluster\n"
        disk.write_file_atomically("/data/meta.properties", contents)
        await manager_on(disk)
        assert disk.read_file("/data/meta.properties") == contents
        with pytest.raises(ForeignLogDirectory, match=r"node\.id=1"):
            await manager_on(disk.copy_for_another_machine(), broker_id=5)

    asyncio.run(run())


def test_log_dirs_of_different_clusters_are_refused() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        await (await manager_on(disk, "/one", cluster_id="a")).close()
        await (await manager_on(disk, "/two", cluster_id="b")).close()
        with pytest.raises(StorageSetupError, match="different clusters"):
            await manager_on(disk, "/one", "/two", cluster_id=None)

    asyncio.run(run())


def test_the_same_partition_in_two_log_dirs_is_refused() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        for path in ("/one", "/two"):
            manager = await manager_on(disk, path)
            append(manager.create(ORDERS, TOPIC_ID, SETTINGS), b"record")
            await manager.close()
        with pytest.raises(DuplicateLog, match="orders-0 is in two log dirs: /one/orders-0 and /two/orders-0"):
            await manager_on(disk, "/one", "/two")
        assert (await manager_on(disk, "/one")).directories[0].was_clean

    asyncio.run(run())


@pytest.mark.parametrize("written", ["/one", "/two", None])
def test_a_log_without_records_beside_another_one_does_not_keep_a_broker_from_starting(written: str | None) -> None:
    """A power cut undid the deletion of an earlier topic. Its successor has a log in the other log dir (seed 63)."""

    async def run() -> None:
        disk = MemoryDisk()
        await (await manager_on(disk, "/one", "/two")).close()
        for path in ("/one", "/two"):
            manager = await manager_on(disk, path)
            log = manager.create(ORDERS, TOPIC_ID, SETTINGS)
            if path == written:
                append(log, b"record")
            await manager.close()
        manager = await manager_on(disk, "/one", "/two")
        log = manager.logs[ORDERS]
        assert log.log_end_offset == (1 if written else 0)
        assert written in (None, log.directory.path)

    asyncio.run(run())


def test_a_log_whose_creation_failed_is_created_where_it_was_begun() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk, "/one", "/two")
        disk.inject(errno.EMFILE, operations=("open",))
        with pytest.raises(ResourceShortage):
            manager.create(ORDERS, TOPIC_ID, SETTINGS)
        disk.faults.clear()
        manager.create(orders(1), TOPIC_ID, SETTINGS)  # now the other log dir has fewer
        assert manager.create(ORDERS, TOPIC_ID, SETTINGS).path == "/one/orders-0"
        await manager.close()
        assert set((await manager_on(disk, "/one", "/two")).logs) == {ORDERS, orders(1)}

    asyncio.run(run())


@pytest.mark.parametrize(("broken", "other"), [("/one", "/two"), ("/two", "/one")])
def test_a_broker_starts_with_what_a_failed_creation_left_in_another_log_dir(broken: str, other: str) -> None:
    """Its disk went offline in the middle of it, and the log was created on another one."""

    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk, broken, other)
        disk.inject(errno.EIO, f"{broken}/orders-0", ("open",))
        with pytest.raises(KafkaStorageError):
            manager.create(ORDERS, TOPIC_ID, SETTINGS)
        append(manager.create(ORDERS, TOPIC_ID, SETTINGS), b"x")
        disk.faults.clear()
        await manager.close()
        manager = await manager_on(disk, "/one", "/two")
        assert [record.value for record in all_records(manager.logs[ORDERS])] == [b"x"]
        assert manager.logs[ORDERS].path == f"{other}/orders-0"
        assert "orders-0" not in names(disk, broken)

    asyncio.run(run())


def test_of_two_failed_creations_in_two_log_dirs_one_is_kept() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        disk.make_directory("/one/orders-0")
        disk.make_directory("/two/orders-0")
        manager = await manager_on(disk, "/one", "/two")
        assert manager.logs[ORDERS].path == "/one/orders-0"
        assert "orders-0" not in names(disk, "/two")

    asyncio.run(run())


def test_a_clean_stop_and_start_changes_nothing() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        log = manager.create(ORDERS, TOPIC_ID, SETTINGS)
        append_many(log, 10)
        log.raise_high_watermark(8)
        log.advance_log_start_offset(3)
        await manager.close()
        assert disk.read_file("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'
        assert disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 10\n"
        assert disk.read_file("/data/replication-offset-checkpoint") == b"0\n1\norders 0 8\n"
        assert disk.read_file("/data/log-start-offset-checkpoint") == b"0\n1\norders 0 3\n"
        expected = f"version: 0\ntopic_id: {uuid_text(TOPIC_ID)}".encode()
        assert disk.read_file("/data/orders-0/partition.metadata") == expected
        again = (await manager_on(disk)).logs[ORDERS]
        assert (again.log_start_offset, again.high_watermark, again.log_end_offset) == (3, 8, 10)
        assert again.topic_id == TOPIC_ID
        assert offsets_of(all_records(again)) == list(range(3, 10))

    asyncio.run(run())


@pytest.mark.parametrize("missing_bytes", [1, 5, 60, 61, 200])
def test_a_file_cut_after_a_clean_stop_is_noticed_however_small_the_cut(missing_bytes: int) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        append_many(manager.create(ORDERS, TOPIC_ID, SETTINGS), 10)
        await manager.close()
        file = disk.open("/data/orders-0/00000000000000000000.log", "update")
        file.truncate(file.size() - missing_bytes)
        again = (await manager_on(disk)).logs[ORDERS]
        assert 0 < again.log_end_offset < 10
        assert offsets_of(all_records(again)) == list(range(again.log_end_offset))

    asyncio.run(run())


@pytest.mark.parametrize("known_by", ["settings", "cleaner checkpoint", "marker", "recovery point"])
def test_gaps_that_compaction_left_are_no_damage_even_if_the_topic_is_no_longer_compacted(known_by: str) -> None:
    """A replica that copied a compacted log has a marker. Apache Kafka has none, but a cleaner checkpoint."""

    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        log = manager.create(ORDERS, TOPIC_ID, SETTINGS)
        for offset in (0, 3, 4, 9):
            log.append_as_follower(batch_of(b"%d" % offset, base_offset=offset, leader_epoch=EPOCH))
        if known_by == "recovery point":
            await manager.close()
            disk.remove("/data/.kafka_cleanshutdown")
        kill(disk)
        if known_by != "marker":
            disk.remove("/data/orders-0/offset-gaps")
        if known_by == "cleaner checkpoint":
            disk.write_file_atomically("/data/cleaner-offset-checkpoint", b"0\n1\norders 0 9\n")
        settings = TopicSettings(cleanup_policy=("compact",)) if known_by == "settings" else SETTINGS
        again = (await manager_on(disk, topic_settings=lambda topic: settings)).logs[ORDERS]
        assert offsets_of(all_records(again)) == [0, 3, 4, 9]

    asyncio.run(run())


def test_a_log_without_gaps_has_no_marker_of_them() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        log = manager.create(ORDERS, TOPIC_ID, SETTINGS)
        for offset in range(3):
            log.append_as_follower(batch_of(b"%d" % offset, base_offset=offset, leader_epoch=EPOCH))
        assert "offset-gaps" not in names(disk, "/data/orders-0")

    asyncio.run(run())


def test_everything_in_a_log_dir_that_is_no_partition_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        disk, clock = MemoryDisk(), ManualClock(NOW_MS)
        kept = {"__cluster_metadata-0", "orders-1.abc-future", "orders-2.abc-stray", "lost+found", "orders-01"}
        for name in (*kept, "orders-3.abc-delete", "orders-4"):
            disk.make_directory(f"/data/{name}")
        disk.write_file_atomically("/data/bootstrap.checkpoint", b"x")
        with caplog.at_level(logging.INFO):
            manager = await manager_on(disk, clock=clock)
        assert set(manager.logs) == {orders(4)}
        assert manager.stray_paths == ["/data/orders-2.abc-stray"]
        await manager.jobs.delete_due_files()
        assert "orders-3.abc-delete" in names(disk)  # a start does not shorten the time in which it can be rescued
        clock.advance(manager.settings.log_segment_delete_delay_ms)
        await manager.jobs.delete_due_files()
        assert kept | {"bootstrap.checkpoint", "orders-4"} <= names(disk)
        assert "orders-3.abc-delete" not in names(disk)
        assert "ignored directory path=/data/__cluster_metadata-0" in caplog.text

    asyncio.run(run())


def test_damaged_checkpoints_are_reported_and_rebuilt(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        append_many(manager.create(ORDERS, TOPIC_ID, SETTINGS), 10)
        await manager.close()
        checkpoints = [name for name in names(disk) if name.endswith("offset-checkpoint")]
        for name in checkpoints:
            disk.write_file_atomically(f"/data/{name}", b"0\n99\n")
        manager = await manager_on(disk)
        log = manager.logs[ORDERS]
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 0, 10)
        assert caplog.text.count("rebuilding corrupt checkpoint") >= 3
        await manager.close()
        assert disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 10\n"

    asyncio.run(run())


# ---- creating and deleting


def test_new_partitions_go_where_the_fewest_are() -> None:
    async def run() -> None:
        manager = await manager_on(MemoryDisk(), "/one", "/two")
        for partition in range(4):
            manager.create(orders(partition), TOPIC_ID, SETTINGS)
        assert [len(directory.logs) for directory in manager.directories] == [2, 2]
        assert manager.create(orders(0), TOPIC_ID, SETTINGS) is manager.get(orders(0))

    asyncio.run(run())


@pytest.mark.parametrize("calls_before", range(8))
def test_a_log_that_was_half_made_for_want_of_descriptors_is_made_in_the_same_place(calls_before: int) -> None:
    """Else the broker would not start again: the partition is in two log dirs."""

    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk, "/one", "/two")
        disk.inject(errno.EMFILE, "/one/orders-0", calls_before=calls_before)
        with suppress(KafkaStorageError):
            manager.create(ORDERS, TOPIC_ID, SETTINGS)
        disk.faults.clear()
        manager.create(orders(1), TOPIC_ID, SETTINGS)  # now the other log dir has fewer
        manager.create(ORDERS, TOPIC_ID, SETTINGS)
        assert [disk.exists(f"{path}/orders-0") for path in ("/one", "/two")].count(True) == 1

    asyncio.run(run())


def test_a_deleted_partition_is_gone_at_once_and_its_files_later() -> None:
    async def run() -> None:
        disk, clock = MemoryDisk(), ManualClock(NOW_MS)
        manager = await manager_on(disk, clock=clock)
        log = manager.create(ORDERS, TOPIC_ID, SETTINGS)
        append(log, b"old")
        manager.delete(ORDERS)
        manager.delete(ORDERS)
        assert manager.get(ORDERS) is None
        assert "orders-0" not in names(disk)
        append(manager.create(ORDERS, TOPIC_ID, SETTINGS), b"new")
        clock.advance(manager.settings.log_segment_delete_delay_ms - 1)
        await manager.jobs.delete_due_files()
        assert any(name.endswith("-delete") for name in names(disk))
        clock.advance(1)
        await manager.jobs.delete_due_files()
        assert not any(name.endswith("-delete") for name in names(disk))
        assert manager.logs[ORDERS].log_end_offset == 1

    asyncio.run(run())


def test_a_log_that_was_set_aside_is_kept_for_ever_and_found_again() -> None:
    async def run() -> None:
        disk, clock = MemoryDisk(), ManualClock(NOW_MS)
        manager = await manager_on(disk, clock=clock)
        append(manager.create(ORDERS, TOPIC_ID, SETTINGS), b"old")
        manager.set_aside(ORDERS)
        (path,) = manager.stray_paths
        assert path == f"/data/orders-0.{uuid_text(TOPIC_ID)}-stray"
        append(manager.create(ORDERS, TOPIC_ID, SETTINGS), b"again")
        manager.set_aside(ORDERS)
        clock.advance(100 * manager.settings.log_segment_delete_delay_ms)
        await manager.jobs.delete_due_files()
        await manager.close()
        assert len([name for name in names(disk) if name.endswith("-stray")]) == 2
        assert path in (await manager_on(disk, clock=clock)).stray_paths

    asyncio.run(run())


def test_a_deleted_partition_that_was_moved_away_in_time_is_kept() -> None:
    async def run() -> None:
        disk, clock = MemoryDisk(), ManualClock(NOW_MS)
        manager = await manager_on(disk, clock=clock)
        append(manager.create(ORDERS, TOPIC_ID, SETTINGS), b"old")
        manager.delete(ORDERS)
        (doomed,) = [name for name in names(disk) if name.endswith("-delete")]
        disk.rename(f"/data/{doomed}", "/data/rescued")
        clock.advance(manager.settings.log_segment_delete_delay_ms)
        await manager.jobs.delete_due_files()
        assert "rescued" in names(disk)
        assert manager.directories[0].is_online

    asyncio.run(run())


def test_who_still_holds_a_deleted_log_does_no_harm() -> None:
    async def run() -> None:
        manager = await manager_on(MemoryDisk())
        log = manager.create(ORDERS, TOPIC_ID, SETTINGS)
        append(log, b"old")
        manager.delete(ORDERS)
        with pytest.raises(KafkaStorageError, match="deleted"):
            append(log, b"late")
        with pytest.raises(KafkaStorageError, match="deleted"):
            await log.flush()
        assert manager.directories[0].is_online

    asyncio.run(run())


def test_names_of_deleted_partitions_fit_into_a_file_name() -> None:
    name = deletion_name(TopicPartition("t" * 249, 12345), "0" * 32)
    assert len(name) <= 255
    assert name.endswith(f"-12345.{'0' * 32}-delete")


def test_partition_names_are_distinguished_from_others() -> None:
    assert parse_partition_name("a-b-12") == TopicPartition("a-b", 12)
    assert [parse_partition_name(name) for name in ("", "a", "a-", "-1", "a-b", "a-²")] == [None] * 6


# ---- background work


def test_old_segments_and_idle_producers_go_in_the_background() -> None:
    async def run() -> None:
        disk, clock = MemoryDisk(), ManualClock(NOW_MS)
        manager = await manager_on(disk, clock=clock)
        log = manager.create(ORDERS, TOPIC_ID, TopicSettings(retention_ms=1000, file_delete_delay_ms=10))
        append_many(log, 5)
        log.raise_high_watermark(5)
        clock.advance(5000)
        await manager.jobs.enforce_retention()
        assert log.log_start_offset == 5
        clock.advance(11)
        await manager.jobs.delete_due_files()
        assert not any(name.endswith(".deleted") for name in names(disk, "/data/orders-0"))
        await manager.jobs.expire_producers()

    asyncio.run(run())


def test_logs_are_flushed_when_their_topic_asks_for_it() -> None:
    async def run() -> None:
        clock = ManualClock(NOW_MS)
        manager = await manager_on(MemoryDisk(), clock=clock)
        by_count = manager.create(orders(0), TOPIC_ID, TopicSettings(flush_messages=3))
        by_time = manager.create(orders(1), TOPIC_ID, TopicSettings(flush_ms=1000))
        append_many(by_count, 2)
        append_many(by_time, 1)
        await manager.jobs.flush_due_logs()
        assert (by_count.recovery_point, by_time.recovery_point) == (0, 0)
        append_many(by_count, 1)
        clock.advance(1000)
        await manager.jobs.flush_due_logs()
        assert (by_count.recovery_point, by_time.recovery_point) == (3, 1)

    asyncio.run(run())


def test_a_clock_that_is_set_neither_hastens_deletions_nor_holds_flushes_back() -> None:
    async def run() -> None:
        disk, clock = MemoryDisk(), ManualClock(NOW_MS)
        manager = await manager_on(disk, clock=clock)
        log = manager.create(orders(1), TOPIC_ID, TopicSettings(flush_ms=1000))
        append(manager.create(ORDERS, TOPIC_ID, SETTINGS), b"old")
        append(log, b"a")
        manager.delete(ORDERS)
        clock.set_wall_clock(NOW_MS + 100 * DAY_MS)
        await manager.jobs.delete_due_files()
        await manager.jobs.flush_due_logs()
        assert any(name.endswith("-delete") for name in names(disk)), "it can still be rescued"
        assert log.recovery_point == 0
        clock.set_wall_clock(NOW_MS - 100 * DAY_MS)
        clock.advance(manager.settings.log_segment_delete_delay_ms)
        await manager.jobs.delete_due_files()
        await manager.jobs.flush_due_logs()
        assert not any(name.endswith("-delete") for name in names(disk))
        assert log.recovery_point == 1

    asyncio.run(run())


def test_a_rolled_segment_is_flushed_soon() -> None:
    async def run() -> None:
        manager = await manager_on(MemoryDisk())
        log = manager.create(ORDERS, TOPIC_ID, SETTINGS)
        task = asyncio.create_task(manager.run())
        append_many(log, 3)
        await asyncio.sleep(0)
        log.roll()
        for _ in range(10):
            await asyncio.sleep(0)
        assert log.recovery_point == 3
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_an_unchanged_checkpoint_is_not_written_again() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        append_many(manager.create(ORDERS, TOPIC_ID, SETTINGS), 3)
        await manager.checkpoints.write(HIGH_WATERMARKS)
        disk.remove("/data/replication-offset-checkpoint")
        await manager.checkpoints.write(HIGH_WATERMARKS)
        assert "replication-offset-checkpoint" not in names(disk)
        manager.logs[ORDERS].raise_high_watermark(2)
        await manager.checkpoints.write(HIGH_WATERMARKS)
        assert disk.read_file("/data/replication-offset-checkpoint") == b"0\n1\norders 0 2\n"

    asyncio.run(run())


def test_a_truncation_lowers_the_checkpoint_of_the_high_watermark() -> None:
    """Else a crash would declare what is appended there afterwards committed (R4)."""

    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        log = manager.create(ORDERS, TOPIC_ID, SETTINGS)
        append_many(log, 10)
        log.raise_high_watermark(8)
        await manager.checkpoints.write(HIGH_WATERMARKS)
        log.truncate_to(5)
        append_many(log, 5)
        kill(disk)
        again = (await manager_on(disk)).logs[ORDERS]
        assert again.high_watermark <= 5

    asyncio.run(run())


def test_records_that_replace_lost_ones_do_not_count_as_committed_after_a_second_crash() -> None:
    """A power cut takes records below the checkpointed high watermark; other records come, and the broker crashes."""

    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        log = manager.create(ORDERS, TOPIC_ID, SETTINGS)
        append_many(log, 10)
        log.raise_high_watermark(8)
        await manager.checkpoints.write(HIGH_WATERMARKS)
        disk.crash()
        manager = await manager_on(disk)
        assert manager.logs[ORDERS].high_watermark == 0
        append_many(manager.logs[ORDERS], 10)
        kill(disk)
        assert (await manager_on(disk)).logs[ORDERS].high_watermark == 0

    asyncio.run(run())


# ---- failing directories


def every_operation(log: Log) -> list[Callable[[], object]]:
    return [
        lambda: append(log, b"x"),
        lambda: log.append_as_follower(b""),
        lambda: log.read(0, 100, 1),
        log.roll,
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully_and_start_at(7),
        lambda: log.advance_log_start_offset(0),
        lambda: log.delete_old_segments(NOW_MS),
        lambda: log.find_by_timestamp(0),
        log.find_max_timestamp,
        lambda: log.aborted_transactions(0, 1),
    ]


async def two_directories(
    disk: MemoryDisk,
) -> tuple[LogManager, Log, Log, list[tuple[str, AbstractSet[TopicPartition]]]]:
    manager = await manager_on(disk, "/bad", "/good")
    bad = manager.create(orders(0), TOPIC_ID, SETTINGS)
    good = manager.create(orders(1), TOPIC_ID, SETTINGS)
    assert (bad.directory.path, good.directory.path) == ("/bad", "/good")
    append(bad, b"before")
    append(good, b"before")
    reported: list[tuple[str, AbstractSet[TopicPartition]]] = []
    manager.on_directory_offline.append(lambda directory, partitions: reported.append((directory.path, partitions)))
    return manager, bad, good, reported


async def append_again(manager: LogManager, bad: Log) -> None:
    append(bad, b"x")


async def roll(manager: LogManager, bad: Log) -> None:
    bad.roll()


async def flush(manager: LogManager, bad: Log) -> None:
    await bad.flush()


async def checkpoint(manager: LogManager, bad: Log) -> None:
    bad.raise_high_watermark(1)
    await manager.checkpoints.write(HIGH_WATERMARKS)
    raise KafkaStorageError


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("operation", [append_again, roll, flush, checkpoint])
def test_an_io_error_takes_the_log_dir_offline_and_others_go_on(
    error_number: int, operation: Callable[[LogManager, Log], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager, bad, good, reported = await two_directories(disk)
        disk.inject(error_number, "/bad")
        with pytest.raises(KafkaStorageError):
            await operation(manager, bad)
        for attempt in every_operation(bad):
            with pytest.raises(KafkaStorageError, match="/bad is offline"):
                attempt()
        await asyncio.sleep(0)
        assert reported == [("/bad", {orders(0)})]
        assert caplog.text.count("log dir is offline path=/bad") == 1
        assert append(good, b"after").first_offset == 1
        assert manager.create(orders(2), TOPIC_ID, SETTINGS).directory.path == "/good"
        assert not manager.are_all_directories_offline
        await manager.close()
        disk.faults.clear()
        assert not disk.exists("/bad/.kafka_cleanshutdown")
        assert disk.exists("/good/.kafka_cleanshutdown")
        again = await manager_on(disk, "/bad", "/good")
        assert all_records(again.logs[orders(0)])[0].value == b"before"

    asyncio.run(run())


def test_a_full_disk_leaves_what_was_written_before() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        _, bad, _, _ = await two_directories(disk)
        disk.capacity_bytes = disk.used_bytes + 40
        with pytest.raises(KafkaStorageError, match="No space left"):
            append(bad, b"does not fit")
        disk.capacity_bytes *= 2
        disk.crash(lambda path, unsynced_bytes: unsynced_bytes)
        again = await manager_on(disk, "/bad", "/good")
        assert [record.value for record in all_records(again.logs[orders(0)])] == [b"before"]

    asyncio.run(run())


def test_a_vanished_directory_is_noticed_by_the_next_checkpoint() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager, bad, good, reported = await two_directories(disk)
        disk.vanish("/bad")
        await manager.checkpoints.write(HIGH_WATERMARKS)
        await asyncio.sleep(0)
        assert reported == [("/bad", {orders(0)})]
        assert not bad.directory.is_online
        assert append(good, b"after").first_offset == 1

    asyncio.run(run())


def test_a_vanished_directory_on_a_real_disk_is_noticed(tmp_path: Path) -> None:
    async def run() -> None:
        bad_path, good_path = str(tmp_path / "bad"), str(tmp_path / "good")
        manager = await manager_on(SystemDisk(), bad_path, good_path)
        bad = manager.create(orders(0), TOPIC_ID, SETTINGS)
        good = manager.create(orders(1), TOPIC_ID, SETTINGS)
        append(bad, b"before")
        shutil.rmtree(bad_path)
        with pytest.raises(KafkaStorageError):
            bad.roll()
        append(good, b"after")
        await manager.close()
        assert (tmp_path / "good" / ".kafka_cleanshutdown").exists()

    asyncio.run(run())


def test_when_the_last_log_dir_fails_the_broker_notices() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        log = manager.create(ORDERS, TOPIC_ID, SETTINGS)
        disk.inject(errno.EIO, "/data")
        with pytest.raises(KafkaStorageError):
            append(log, b"x")
        assert manager.are_all_directories_offline
        with pytest.raises(KafkaStorageError, match="all log dirs are offline"):
            manager.create(orders(9), TOPIC_ID, SETTINGS)

    asyncio.run(run())


def test_a_log_dir_that_cannot_be_read_at_the_start_is_offline_and_one_must_work() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        disk.inject(errno.EACCES, "/bad")
        manager = await manager_on(disk, "/bad", "/good")
        assert [directory.is_online for directory in manager.directories] == [False, True]
        with pytest.raises(StorageSetupError, match=r"no log dir can be used: /bad: .*Permission denied"):
            await manager_on(disk, "/bad")

    asyncio.run(run())


def test_running_out_of_descriptors_is_not_the_disks_fault() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    disk.inject(errno.EMFILE, operations=("open",))
    with pytest.raises(KafkaStorageError, match="short of descriptors"):
        append(log, b"x")
    assert log.directory.is_online
    disk.faults.clear()
    assert append(log, b"x").first_offset == 0
    assert log.leader_epochs.latest_epoch == EPOCH


def test_a_failure_is_announced_once() -> None:
    reported: list[LogDirectory] = []
    directory = LogDirectory("/data", new_log().directory.context, reported.append)
    directory.fail(OSError(errno.EIO, "broken"))
    directory.fail(OSError(errno.EIO, "broken"))
    assert reported == [directory]


def test_a_new_log_does_not_empty_a_directory_that_somebody_put_in_its_place() -> None:
    """An operator moved back what was set aside, under a broker that runs."""

    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        append(manager.create(ORDERS, TOPIC_ID, SETTINGS), b"old")
        manager.set_aside(ORDERS)
        disk.rename(manager.stray_paths.pop(), "/data/orders-0")
        assert manager.create(ORDERS, TOPIC_ID, SETTINGS).log_end_offset == 0
        (path,) = manager.stray_paths
        assert disk.read_file(f"{path}/00000000000000000000.log")

    asyncio.run(run())


def test_two_log_dirs_with_one_id_are_refused() -> None:
    """Somebody copied meta.properties: an empty disk would pass for the one that was there."""

    async def run() -> None:
        disk = MemoryDisk()
        await (await manager_on(disk, "/one")).close()
        disk.make_directory("/two")
        disk.write_file_atomically("/two/meta.properties", disk.read_file("/one/meta.properties"))
        with pytest.raises(StorageSetupError, match=r"the log dirs /one and /two have the same directory\.id"):
            await manager_on(disk, "/one", "/two")

    asyncio.run(run())


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("take_away", [LogManager.delete, LogManager.set_aside])
def test_a_new_log_does_not_inherit_the_checkpoints_of_an_earlier_one_of_its_name(
    take_away: Callable[[LogManager, TopicPartition], None], is_restarted: bool
) -> None:
    """All brokers are killed soon after the topic was made again. Its log start would be that of the earlier one."""

    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        old = manager.create(ORDERS, TOPIC_ID, SETTINGS)
        append_many(old, 10)
        await old.flush()
        old.raise_high_watermark(10)
        old.advance_log_start_offset(8)
        await manager.checkpoints.write(HIGH_WATERMARKS)
        await manager.checkpoints.write(RECOVERY_POINTS)
        await manager.checkpoints.write(LOG_START_OFFSETS)
        take_away(manager, ORDERS)
        if is_restarted:
            disk.crash(lambda path, unsynced_bytes: unsynced_bytes)
            manager = await manager_on(disk)
        append_many(manager.create(ORDERS, TOPIC_ID[::-1], SETTINGS), 5)
        disk.crash(lambda path, unsynced_bytes: unsynced_bytes)
        log = (await manager_on(disk)).logs[ORDERS]
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point) == (0, 5, 0, 0)

    asyncio.run(run())


def test_a_new_log_does_not_stand_in_for_a_disk_that_is_gone() -> None:
    """A directory made in its place would hide the failure (R5): the other logs go on in files without names."""

    async def scenario() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        disk.rename("/data", "/pulled-out")
        with pytest.raises(KafkaStorageError):
            manager.create(ORDERS, None, TopicSettings())
        assert not manager.directories[0].is_online
        assert not disk.exists("/data")

    asyncio.run(scenario())

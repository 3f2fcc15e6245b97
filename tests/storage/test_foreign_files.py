"""Foreign files and directories in a log dir: they stay, and keep neither the broker nor its logs from working."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.storage.logs import NOW_MS, ORDERS, all_records, append_many, manager_on
from tidelog.config.topic import TopicSettings
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.disk import SystemDisk
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_names import parse_partition_name
from tidelog.types import TopicPartition

SETTINGS = TopicSettings(file_delete_delay_ms=0)


async def five_records(manager: LogManager) -> None:
    append_many(manager.create(ORDERS, None, SETTINGS), 5)
    await manager.close()
    manager.log_dirs.release()


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


@pytest.mark.parametrize("name", ["Copy of orders-0", "orders\t-0", "\udcff-0", "ü-0", ".-0", "..-1", "t" * 250 + "-0"])
def test_a_directory_whose_topic_has_no_valid_name_is_no_partition(name: str) -> None:
    assert parse_partition_name(name) is None


def test_a_partition_number_fits_into_32_bits() -> None:
    assert parse_partition_name(f"orders-{2**31 - 1}") == TopicPartition("orders", 2**31 - 1)
    assert parse_partition_name(f"orders-{2**31}") is None


@pytest.mark.parametrize("name", ["Copy of orders-0", f"orders-{2**40}"])
def test_foreign_directories_do_not_spoil_the_checkpoints(name: str) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        log = manager.create(ORDERS, None, SETTINGS)
        append_many(log, 5)
        log.raise_high_watermark(5)
        log.advance_log_start_offset(3)
        disk.make_directory(f"/data/{name}")
        await manager.close()
        manager.log_dirs.release()
        for _ in range(2):  # the first start loads the directory, the second reads the checkpoints of the first
            manager = await manager_on(disk)
            await manager.close()
            manager.log_dirs.release()
        log = manager.logs[ORDERS]
        assert (log.log_start_offset, log.high_watermark) == (3, 5)
        assert set(manager.logs) == {ORDERS}

    asyncio.run(run())


@pytest.mark.parametrize("name", ["please-do-not-delete", "notes.1-delete", "orders-0-delete"])
def test_a_directory_is_deleted_only_if_it_has_the_name_of_a_deleted_partition(name: str) -> None:
    async def run() -> None:
        disk, clock = MemoryDisk(), ManualClock(NOW_MS)
        disk.make_directory(f"/data/{name}")
        manager = await manager_on(disk, clock=clock)
        clock.advance(manager.settings.log_segment_delete_delay_ms)
        await manager.jobs.delete_due_files()
        assert name in {entry.name for entry in disk.list_directory("/data")}

    asyncio.run(run())


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000-copy.log",
        "00000000000000000000_1.log",
        "00000000000000000000 (1).log",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log",
        "00000000000000000000-copy.snapshot",
        "notes.index",
        "notes.log",
        "notes.log.swap",
    ],
)
def test_foreign_files_of_a_partition_stay_and_do_no_harm(name: str) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        await five_records(await manager_on(disk))
        disk.write_file_atomically(f"/data/orders-0/{name}", b"foreign")
        manager = await manager_on(disk)
        assert len(all_records(manager.logs[ORDERS])) == 5
        assert disk.read_file(f"/data/orders-0/{name}") == b"foreign"

    asyncio.run(run())


def test_a_swap_is_completed_beside_foreign_log_files() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        await five_records(await manager_on(disk))
        disk.write_file_atomically("/data/orders-0/notes.log", b"foreign")
        path = f"/data/orders-0/{0:020d}.log"
        disk.rename(path, path + ".swap")
        manager = await manager_on(disk)
        assert len(all_records(manager.logs[ORDERS])) == 5

    asyncio.run(run())


def test_a_link_that_leads_nowhere_does_not_keep_a_broker_from_starting(tmp_path: Path) -> None:
    async def run() -> None:
        disk = SystemDisk()
        await five_records(await manager_on(disk, str(tmp_path)))
        (tmp_path / "backups").symlink_to(tmp_path / "nowhere")
        manager = await manager_on(disk, str(tmp_path))
        assert len(all_records(manager.logs[ORDERS])) == 5
        manager.log_dirs.release()

    asyncio.run(run())


def test_the_link_of_a_deleted_partition_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    async def run() -> None:
        data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
        disk, clock = SystemDisk(), ManualClock(NOW_MS)
        await five_records(await manager_on(disk, str(data)))
        os.rename(data / "orders-0", elsewhere)
        (data / "orders-0").symlink_to(elsewhere)
        manager = await manager_on(disk, str(data), clock=clock)
        assert len(all_records(manager.logs[ORDERS])) == 5
        manager.delete(ORDERS)
        clock.advance(manager.settings.log_segment_delete_delay_ms)
        await manager.jobs.delete_due_files()
        assert not manager.are_all_directories_offline
        assert not any(name.startswith("orders") for name in names(data))
        assert f"{0:020d}.log" in names(elsewhere)
        manager.log_dirs.release()

    asyncio.run(run())

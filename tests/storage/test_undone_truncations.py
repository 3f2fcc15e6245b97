"""Recovery after a power cut that undid a truncation which was not synced yet."""

import asyncio

import pytest

from tests.storage.logs import EPOCH, all_records, append, append_many, batch_of, loaded, new_log
from tidelog.config.topic import TopicSettings
from tidelog.runtime.memory_disk import CrashDamage, MemoryDisk
from tidelog.runtime.randomness import SeededRandomness
from tidelog.storage.log import Log

FIRST_SEGMENT = "/data/orders-0/00000000000000000000.log"
COMPACTED = TopicSettings(cleanup_policy=("compact",))


def log_that_rolled_where_it_was_truncated(disk: MemoryDisk, settings: TopicSettings) -> Log:
    """Six records were synced; four of them are left, and the next segment begins there. Nothing of it is synced."""
    log = new_log(disk, settings=settings)
    append_many(log, 6, step_ms=0)
    asyncio.run(log.flush())
    disk.sync_everything()
    log.truncate_to(4)
    log.roll()
    append(log, b"new", leader_epoch=9)
    append(log, b"newer", leader_epoch=9)
    assert log.recovery_point == 4
    return log


@pytest.mark.parametrize("settings", [TopicSettings(), COMPACTED], ids=["plain", "compacted"])
@pytest.mark.parametrize("seed", range(20))
def test_what_was_truncated_is_not_read_beside_the_segment_that_began_there(seed: int, settings: TopicSettings) -> None:
    disk = MemoryDisk()
    log = log_that_rolled_where_it_was_truncated(disk, settings)
    written = all_records(log)
    disk.crash_badly(SeededRandomness(seed), CrashDamage(tears_writes=True))
    again = loaded(log, recovery_point=4)
    assert again.segments[0].find_end() == (4, again.segments[0].size_bytes)
    assert again.log_end_offset >= 4
    assert all_records(again) == written[: again.log_end_offset]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_what_was_truncated_is_cut_where_an_index_is_lost_too(suffix: str) -> None:
    disk = MemoryDisk()
    log = log_that_rolled_where_it_was_truncated(disk, TopicSettings())
    written = all_records(log)
    for offset in (4, 5):
        disk.open(FIRST_SEGMENT, "update").append(bytes(batch_of(b"old", base_offset=offset, leader_epoch=EPOCH)))
    disk.remove(f"/data/orders-0/00000000000000000000.{suffix}")
    again = loaded(log, recovery_point=4)
    assert all_records(again) == written
    assert [segment.find_end_offset() for segment in again.segments] == [4, 6]


def test_bytes_behind_the_last_synced_batch_are_cut() -> None:
    """Half of what was truncated is back."""
    disk = MemoryDisk()
    log = log_that_rolled_where_it_was_truncated(disk, TopicSettings())
    written = all_records(log)
    for tail in (bytes(100), b"\xff" * 100, b"x"):
        disk.open(FIRST_SEGMENT, "update").append(tail)
        again = loaded(log, recovery_point=4)
        assert all_records(again) == written


def test_what_was_synced_is_never_cut() -> None:
    """A file of a segment that nobody wrote costs no record of the segment before it."""
    disk = MemoryDisk()
    log = new_log(disk)
    append_many(log, 6)
    asyncio.run(log.flush())
    size_bytes = disk.size(FIRST_SEGMENT)
    disk.open("/data/orders-0/00000000000000000004.log", "create").close()
    loaded(log, recovery_point=6)
    assert disk.size(FIRST_SEGMENT) == size_bytes

"""Whatever happens to the end of a log, the next start finds a prefix of what was written, and says what it cut."""

import asyncio
import logging

import pytest

from tests.storage.logs import (
    EPOCH,
    NOW_MS,
    ORDERS,
    all_records,
    append,
    append_many,
    batch_of,
    loaded,
    manager_on,
    new_log,
    offsets_of,
)
from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaStorageError
from tidelog.runtime.disk import Disk, File, OpenMode
from tidelog.runtime.memory_disk import CrashDamage, MemoryDisk
from tidelog.runtime.randomness import SeededRandomness
from tidelog.storage.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, write_epochs
from tidelog.storage.leader_epochs import EpochEntry
from tidelog.storage.log import Log

SMALL_INDEX = TopicSettings(index_interval_bytes=150)
LOG_FILE = "/data/orders-0/00000000000000000000.log"


def written_log(disk: MemoryDisk) -> Log:
    """Five batches with one to three records, some two hundred bytes apart, in two leader epochs."""
    log = new_log(disk, settings=SMALL_INDEX)
    append(log, b"a" * 30, b"b", timestamp=NOW_MS + 5)
    append(log, b"c" * 50)
    append(log, b"d", b"e", b"f" * 40, leader_epoch=EPOCH + 1)
    append(log, b"g" * 60, leader_epoch=EPOCH + 1, timestamp=NOW_MS + 9)
    append(log, b"h", leader_epoch=EPOCH + 1)
    return log


def replace(disk: MemoryDisk, path: str, contents: bytes) -> None:
    disk.open(path, "create").append(contents)


def check_indexes(log: Log) -> None:
    """What DumpLogSegments checks: every entry points to a batch, and says the truth about it."""
    for segment in log.segments:
        places = {place.position: place for place in segment.batch_places()}
        for number in range(segment.offset_index.count):
            entry = segment.offset_index.at(number)
            assert entry is not None
            assert places[entry[1]].last_offset == segment.base_offset + entry[0]
        latest = -1
        by_last_offset = {place.last_offset: place for place in places.values()}
        for number in range(segment.time_index.count):
            time_entry = segment.time_index.at(number)
            assert time_entry is not None
            timestamp, relative_offset = time_entry
            assert timestamp > latest
            latest = timestamp
            place = by_last_offset[segment.base_offset + relative_offset]
            assert segment.header_at(place.position).max_timestamp == timestamp


def boundaries(log: Log) -> list[tuple[int, int]]:
    """(bytes, end offset) after each batch."""
    return [(0, 0)] + [
        (place.position + place.size_bytes, place.last_offset + 1) for place in log.active_segment.batch_places()
    ]


def test_a_log_cut_at_any_byte_gives_all_whole_batches_before() -> None:
    disk = MemoryDisk()
    written = written_log(disk)
    contents, expected, ends = disk.read_file(LOG_FILE), all_records(written), boundaries(written)
    for size in range(len(contents) + 1):
        replace(disk, LOG_FILE, contents[:size])
        log = loaded(written)
        end_offset = max(end for position, end in ends if position <= size)
        assert log.log_end_offset == end_offset
        assert all_records(log) == [record for record in expected if record.offset < end_offset]
        check_indexes(log)
        assert disk.size(LOG_FILE) == max(position for position, _ in ends if position <= size)


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_log_flipped_at_any_byte_gives_all_batches_before_the_flip(mask: int) -> None:
    disk = MemoryDisk()
    written = written_log(disk)
    contents, expected, ends = disk.read_file(LOG_FILE), all_records(written), boundaries(written)
    for position in range(len(contents)):
        _, end_offset = max(boundary for boundary in ends if boundary[0] <= position)
        damaged = bytearray(contents)
        damaged[position] ^= mask
        replace(disk, LOG_FILE, bytes(damaged))
        log = loaded(written)
        check_indexes(log)
        assert log.log_end_offset == end_offset
        assert all_records(log) == [record for record in expected if record.offset < end_offset]


def test_a_flipped_leader_epoch_is_no_damage_where_everything_was_synced() -> None:
    """What was synced did not change on its way."""
    disk = MemoryDisk()
    written = written_log(disk)
    contents, expected = bytearray(disk.read_file(LOG_FILE)), all_records(written)
    contents[boundaries(written)[-2][0] + 15] ^= 0x40
    replace(disk, LOG_FILE, bytes(contents))
    assert all_records(loaded(written, recovery_point=written.log_end_offset)) == expected
    disk.remove("/data/orders-0/leader-epoch-checkpoint")
    assert all_records(loaded(written, recovery_point=written.log_end_offset)) == expected


def test_epochs_that_were_not_flushed_survive_the_process_with_their_records() -> None:
    """Also after a truncation: what the file said of the records that were cut must not cost the new ones."""
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, b"a", leader_epoch=4)
    append(log, b"b", leader_epoch=5)
    asyncio.run(log.flush())
    log.truncate_to(1)
    append(log, b"c", leader_epoch=4)
    append(log, b"d", leader_epoch=7)
    again = loaded(log)
    assert [record.value for record in all_records(again)] == [b"a", b"c", b"d"]
    assert again.leader_epochs.starts == (EpochEntry(4, 0), EpochEntry(7, 2))


def test_what_is_appended_after_a_recovery_is_found_after_the_next() -> None:
    disk = MemoryDisk()
    written = written_log(disk)
    replace(disk, LOG_FILE, disk.read_file(LOG_FILE)[:-1])
    log = loaded(written)
    assert log.log_end_offset == 7
    append(log, b"new", leader_epoch=EPOCH + 2)
    again = loaded(log)
    assert all_records(again)[-1].value == b"new"
    assert again.leader_epochs.starts == (
        EpochEntry(EPOCH, 0),
        EpochEntry(EPOCH + 1, 3),
        EpochEntry(EPOCH + 2, 7),
    )


def test_the_start_says_what_it_cut(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    written = written_log(disk)
    contents = bytearray(disk.read_file(LOG_FILE))
    contents[-1] ^= 1
    replace(disk, LOG_FILE, bytes(contents))
    with caplog.at_level(logging.WARNING):
        loaded(written)
    assert f"truncated corrupt segment path={LOG_FILE} position=" in caplog.text
    assert "end_offset=7 reason=the CRC does not match" in caplog.text


def test_segments_behind_a_damaged_one_are_removed() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    for _ in range(3):
        append_many(log, 4)
        log.roll()
    damaged = bytearray(disk.read_file("/data/orders-0/00000000000000000004.log"))
    damaged[-1] ^= 1
    replace(disk, "/data/orders-0/00000000000000000004.log", bytes(damaged))
    again = loaded(log)
    assert offsets_of(all_records(again)) == list(range(7))
    assert [segment.base_offset for segment in again.segments] == [0, 4]
    names = {entry.name for entry in disk.list_directory("/data/orders-0")}
    assert not any(name.startswith("00000000000000000008") for name in names)


def test_damage_below_the_recovery_point_is_not_looked_for() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append_many(log, 4)
    log.roll()
    append_many(log, 4)
    damaged = bytearray(disk.read_file(LOG_FILE))
    damaged[log.segments[0].header_at(0).size_bytes + 100] ^= 1
    replace(disk, LOG_FILE, bytes(damaged))
    assert loaded(log, recovery_point=5).log_end_offset == 8
    assert loaded(log, recovery_point=3).log_end_offset == 1


def test_an_index_that_points_past_its_file_misleads_nobody() -> None:
    disk = MemoryDisk()
    log = new_log(disk, settings=SMALL_INDEX)
    append_many(log, 20)
    log.roll()
    append_many(log, 1)
    asyncio.run(log.close())
    replace(disk, LOG_FILE, disk.read_file(LOG_FILE)[:500])
    again = loaded(log, is_clean=True, recovery_point=21)
    for offset in range(21):
        again.read(offset, 10_000, again.log_end_offset)
    assert again.directory.is_online
    assert again.read(20, 10_000, 21).slice is not None


def test_a_lost_index_is_rebuilt() -> None:
    disk = MemoryDisk()
    log = new_log(disk, settings=SMALL_INDEX)
    append_many(log, 20)
    log.roll()
    append_many(log, 3)
    asyncio.run(log.close())
    disk.remove("/data/orders-0/00000000000000000000.index")
    again = loaded(log, is_clean=True, recovery_point=23)
    assert again.segments[0].offset_index.count > 5
    check_indexes(again)
    assert offsets_of(all_records(again)) == list(range(23))


def test_index_files_that_kafka_preallocated_are_read_without_their_tails() -> None:
    disk = MemoryDisk()
    log = new_log(disk, settings=SMALL_INDEX)
    append_many(log, 20)
    log.active_segment.seal()
    for suffix in (".index", ".timeindex"):
        path = f"/data/orders-0/00000000000000000000{suffix}"
        disk.open(path, "append").append(bytes(12 * 1000))
    again = loaded(log, recovery_point=20)
    assert offsets_of(all_records(again)) == list(range(20))
    check_indexes(again)
    assert disk.size("/data/orders-0/00000000000000000000.index") == again.segments[0].offset_index.count * 8


def test_index_without_a_log_file_is_removed() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append_many(log, 3)
    disk.write_file_atomically("/data/orders-0/00000000000000000099.index", b"12345678")
    assert loaded(log).log_end_offset == 3
    assert not disk.exists("/data/orders-0/00000000000000000099.index")


def test_interrupted_deletions_and_compactions_are_tidied_up() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append_many(log, 3)
    for name in ("00000000000000000000.log.cleaned", "00000000000000000007.log.deleted", "leader-epoch-journal.tmp"):
        disk.write_file_atomically(f"/data/orders-0/{name}", b"rest")
    assert offsets_of(all_records(loaded(log))) == [0, 1, 2]
    assert {entry.name for entry in disk.list_directory("/data/orders-0")} <= {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "leader-epoch-journal",
    }


def test_a_whole_swap_file_takes_the_place_of_what_it_was_made_from() -> None:
    disk = MemoryDisk()
    log = new_log(disk, settings=TopicSettings(cleanup_policy=("compact",)))
    append_many(log, 3)
    log.roll()
    append_many(log, 3)
    log.roll()
    append_many(log, 2)
    compacted = bytes(batch_of(b"only survivor", base_offset=5, leader_epoch=EPOCH))
    disk.write_file_atomically(LOG_FILE + ".swap", compacted)
    again = loaded(log)
    assert offsets_of(all_records(again)) == [5, 6, 7]
    assert [segment.base_offset for segment in again.segments] == [0, 6]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_retention_has_emptied_still_knows_its_last_epoch(is_clean: bool) -> None:
    """R42: elections after unclean restarts compare (epoch, end); without the epoch a shorter log would win."""
    log = new_log(settings=TopicSettings(retention_ms=1000))
    append(log, b"a", b"b", leader_epoch=EPOCH + 1)
    log.raise_high_watermark(2)
    log.delete_old_segments(NOW_MS + 5000)
    asyncio.run(log.flush())
    assert (log.log_start_offset, log.log_end_offset, log.leader_epochs.latest_epoch) == (2, 2, EPOCH + 1)
    again = loaded(log, is_clean=is_clean, recovery_point=2, log_start_offset=2)
    assert (again.log_start_offset, again.log_end_offset) == (2, 2)
    assert again.leader_epochs.starts == (EpochEntry(EPOCH + 1, 2),)


def test_a_damaged_epoch_checkpoint_is_reported_and_rebuilt(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    log = written_log(disk)
    asyncio.run(log.close())
    starts = log.leader_epochs.starts
    for damaged in (b"", b"0\n5\n1 2\n", b"0\n1\nx y\n", b"\xff\xfe", b"7\n0\n", b"0\n1\n1 2 3\n"):
        disk.write_file_atomically("/data/orders-0/leader-epoch-checkpoint", damaged)
        caplog.clear()
        assert loaded(log, is_clean=True, recovery_point=8).leader_epochs.starts == starts
        assert "rebuilding corrupt checkpoint" in caplog.text


class WatchedDisk(MemoryDisk):
    """Notes which files are opened or read whole."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []

    def open(self, path: str, mode: OpenMode) -> File:  # type: ignore[override]
        self.touched.append(path)
        return super().open(path, mode)

    def read_file(self, path: str) -> bytes:
        self.touched.append(path)
        return super().read_file(path)


async def fill_and_close(disk: Disk) -> None:
    manager = await manager_on(disk)
    log = manager.create(ORDERS, bytes(15) + b"x", SMALL_INDEX)
    for number in range(30):
        batch = batch_of(b"v" * 100, producer_id=7, producer_epoch=0, base_sequence=number)
        log.append_as_leader(batch, EPOCH)
        if number % 10 == 9:
            log.roll()
    append_many(log, 3)
    log.raise_high_watermark(33)
    await manager.close(7)


def test_a_clean_start_reads_no_log_data() -> None:
    async def run() -> None:
        disk = WatchedDisk()
        await fill_and_close(disk)
        disk.touched.clear()
        manager = await manager_on(disk)
        log = manager.logs[ORDERS]
        assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (33, 33, 33)
        assert log.topic_id == bytes(15) + b"x"
        assert log.producers.by_id[7].last_sequence == 29
        touched = [path for path in disk.touched if path.endswith((".log", ".index", ".timeindex"))]
        assert touched == ["/data/orders-0/00000000000000000030.index"]  # its last entry, no data

    asyncio.run(run())


def test_without_a_recovery_point_a_clean_start_walks_to_the_end() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        await fill_and_close(disk)
        disk.write_file_atomically("/data/recovery-point-offset-checkpoint", b"damaged")
        manager = await manager_on(disk)
        assert manager.logs[ORDERS].log_end_offset == 33

    asyncio.run(run())


def test_a_file_cut_after_a_clean_stop_ends_where_its_batches_end() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        await fill_and_close(disk)
        replace(disk, "/data/orders-0/00000000000000000030.log", b"")
        manager = await manager_on(disk)
        assert manager.logs[ORDERS].log_end_offset == 30

    asyncio.run(run())


def test_a_file_cut_below_its_index_after_a_clean_stop_is_recovered() -> None:
    disk = MemoryDisk()
    log = new_log(disk, settings=SMALL_INDEX)
    append_many(log, 20)
    asyncio.run(log.close())
    replace(disk, LOG_FILE, disk.read_file(LOG_FILE)[:500])
    again = loaded(log, is_clean=True, recovery_point=20)
    assert offsets_of(all_records(again)) == list(range(again.log_end_offset))
    assert 2 < again.log_end_offset < 20
    check_indexes(again)


def test_a_file_cut_under_a_running_broker_is_a_storage_error() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append_many(log, 3)
    disk.open(LOG_FILE, "update").truncate(10)
    log.settings = TopicSettings(segment_bytes=1000)
    with pytest.raises(KafkaStorageError, match="shorter than what was written"):
        append(log, b"x")
    assert not log.directory.is_online


def test_a_crash_while_loading_counts_as_a_crash() -> None:
    """KAFKA-10471."""

    async def run() -> None:
        disk = MemoryDisk()
        await fill_and_close(disk)
        assert disk.exists("/data/.kafka_cleanshutdown")
        first = await manager_on(disk)
        assert first.directories[0].was_clean
        disk.crash()
        assert not (await manager_on(disk)).directories[0].was_clean

    asyncio.run(run())


@pytest.mark.parametrize("is_checkpointed_again", [False, True])
def test_what_is_written_where_flushed_records_were_cut_does_not_pass_for_flushed(is_checkpointed_again: bool) -> None:
    """Records 0 to 9 were flushed, all but two were cut, others took their places, and the machine stopped."""

    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        log = manager.create(ORDERS, None, TopicSettings())
        append_many(log, 10)
        await log.flush()
        await manager.checkpoints.write(RECOVERY_POINTS)
        log.truncate_to(2)
        append_many(log, 3)
        log.roll()
        append_many(log, 5)
        if is_checkpointed_again:
            await manager.checkpoints.write(RECOVERY_POINTS)
        disk.crash(lambda path, unsynced_bytes: unsynced_bytes if path.endswith("5.log") else 0)
        again = (await manager_on(disk)).logs[ORDERS]
        assert again.log_end_offset == 2, "the last segment survived; what stood before it did not"
        assert offsets_of(all_records(again)) == [0, 1]

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_after_a_clean_shutdown_takes_no_producers(seed: int) -> None:
    """Seed 111418: the only snapshot was not synced, and a repeated batch was taken for a new one."""
    disk = MemoryDisk()
    log = new_log(disk)
    log.append_as_leader(batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0), EPOCH)
    asyncio.run(log.flush())
    disk.sync_everything()
    asyncio.run(log.close())
    disk.crash_badly(SeededRandomness(seed), CrashDamage(loses_names=True))
    again = loaded(log, is_clean=True, recovery_point=1)
    assert list(again.producers.by_id) == [7]


@pytest.mark.parametrize("seed", range(8))
def test_what_was_truncated_does_not_come_back_behind_the_recovery_point(seed: int) -> None:
    """Seed 131428: a segment was truncated where the next one then began, and a flush synced only the next one."""
    disk = MemoryDisk()
    log = new_log(disk)
    append_many(log, 6, step_ms=0)  # with one timestamp, a roll adds nothing to the indexes
    asyncio.run(log.flush())
    asyncio.run(log.close())
    disk.sync_everything()
    log = loaded(log, is_clean=True, recovery_point=6)
    log.truncate_to(4)
    log.roll()
    append_many(log, 2, step_ms=0)
    asyncio.run(log.flush())
    disk.crash_badly(SeededRandomness(seed), CrashDamage(tears_writes=True))
    again = loaded(log, is_clean=False, recovery_point=log.recovery_point)
    assert [segment.find_end_offset() for segment in again.segments] == [4, 6]


@pytest.mark.parametrize("seed", range(8))
def test_a_segment_that_was_truncated_away_does_not_come_back_behind_the_recovery_point(seed: int) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append_many(log, 4)
    log.roll()
    append_many(log, 2)
    asyncio.run(log.flush())
    disk.sync_everything()
    log.truncate_to(2)
    append_many(log, 5)
    asyncio.run(log.flush())
    disk.crash_badly(SeededRandomness(seed), CrashDamage(loses_names=True))
    again = loaded(log, is_clean=False, recovery_point=log.recovery_point)
    assert [segment.base_offset for segment in again.segments] == [0]
    assert offsets_of(all_records(again)) == list(range(7))


@pytest.mark.parametrize("seed", range(8))
def test_a_segment_that_was_truncated_to_nothing_stays_empty(seed: int) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append_many(log, 4)
    asyncio.run(log.flush())
    disk.sync_everything()
    log.truncate_to(0)
    asyncio.run(log.flush())
    disk.crash_badly(SeededRandomness(seed), CrashDamage(tears_writes=True))
    assert loaded(log, is_clean=False, recovery_point=0).log_end_offset == 0


def test_a_log_that_starts_over_at_a_lower_offset_keeps_it_after_a_crash() -> None:
    """The log start of before lies behind its new end: by it everything would be dropped."""

    async def run() -> None:
        disk = MemoryDisk()
        manager = await manager_on(disk)
        log = manager.create(ORDERS, None, TopicSettings())
        append_many(log, 60)
        log.raise_high_watermark(60)
        log.advance_log_start_offset(50)
        await log.flush()
        await manager.checkpoints.write(LOG_START_OFFSETS)
        log.truncate_fully_and_start_at(10)
        append_many(log, 5)
        await log.flush()
        disk.crash()
        again = (await manager_on(disk)).logs[ORDERS]
        assert offsets_of(all_records(again)) == list(range(10, 15))

    asyncio.run(run())


def test_recovery_forgets_epochs_that_the_log_does_not_have() -> None:
    """Their truncation was lost on its way to the checkpoint, and other epochs took their place."""
    disk = MemoryDisk()
    log = new_log(disk)
    for _ in range(4):
        append(log, b"x", leader_epoch=5)
    append(log, b"x", leader_epoch=7)
    asyncio.run(log.flush())
    write_epochs(disk, "/data/orders-0/leader-epoch-checkpoint", [EpochEntry(5, 0), EpochEntry(6, 3), EpochEntry(8, 9)])
    assert loaded(log, recovery_point=5).leader_epochs.starts == (EpochEntry(5, 0), EpochEntry(7, 4))


@pytest.mark.parametrize(
    "flipped", [EpochEntry(3, 4), EpochEntry(7, 4), EpochEntry(4, 5), EpochEntry(4, 3), EpochEntry(4, 0)]
)
def test_flipped_epochs_of_the_checkpoint_are_not_taken_for_those_of_earlier_segments(flipped: EpochEntry) -> None:
    """The file has no CRC."""
    disk = MemoryDisk()
    log = new_log(disk, settings=TopicSettings(segment_bytes=200))
    for epoch in (2, 2, 2, 2, 4, 4, 4, 8, 8, 8):
        append(log, b"x" * 60, leader_epoch=epoch)
    asyncio.run(log.flush())
    starts, recovery_point = log.leader_epochs.starts, log.segments[-1].base_offset
    assert starts == (EpochEntry(2, 0), EpochEntry(4, 4), EpochEntry(8, 7))
    path = "/data/orders-0/leader-epoch-checkpoint"
    write_epochs(disk, path, [EpochEntry(2, 0), flipped, EpochEntry(8, 7)])
    again = loaded(log, recovery_point=recovery_point)
    assert again.leader_epochs.starts == starts
    assert len(all_records(again)) == 10


def test_a_clean_start_forgets_epochs_behind_the_end_of_the_log() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append_many(log, 5)
    asyncio.run(log.close())
    write_epochs(disk, "/data/orders-0/leader-epoch-checkpoint", [EpochEntry(5, 0), EpochEntry(6, 8)])
    assert loaded(log, is_clean=True, recovery_point=5).leader_epochs.starts == (EpochEntry(5, 0),)


def test_an_offset_that_a_segment_cannot_hold_is_damage_in_a_compacted_log_too() -> None:
    """Where gaps are legal, nothing else shows that a bit of the base offset was flipped."""
    disk = MemoryDisk()
    compacted = TopicSettings(cleanup_policy=("compact",))
    log = new_log(disk, settings=compacted)
    append_many(log, 3)
    contents = bytearray(disk.read_file(LOG_FILE))
    *_, place = log.segments[-1].batch_places()
    last = place.position
    contents[last + 3] ^= 1
    replace(disk, LOG_FILE, bytes(contents))
    assert loaded(log).log_end_offset == 2


def compacted_follower(disk: MemoryDisk) -> Log:
    """Three segments of a leader's compacted log, which has gaps: one inside a segment, one where the next begins."""
    log = new_log(disk, settings=TopicSettings(cleanup_policy=("compact",), segment_bytes=200))
    for offset in (0, 3, 5, 6, 9, 10):
        log.append_as_follower(batch_of(b"%d" % offset + b"." * 20, base_offset=offset, leader_epoch=EPOCH))
    assert len(log.segments) == 3
    return log


def test_a_compacted_log_with_gaps_survives_the_process() -> None:
    assert offsets_of(all_records(loaded(compacted_follower(MemoryDisk())))) == [0, 3, 5, 6, 9, 10]


@pytest.mark.parametrize("kept_batches", [0, 1])
def test_a_segment_that_lost_its_end_is_damage_in_a_compacted_log_too(kept_batches: int) -> None:
    """A power cut may lose what was not synced of a segment, and spare the next one (seed 20705)."""
    log = compacted_follower(MemoryDisk())
    places = list(log.segments[1].batch_places())
    log.segments[1].file.truncate(places[kept_batches].position)
    again = loaded(log)
    assert offsets_of(all_records(again)) == [0, 3, 5][: 2 + kept_batches]
    assert again.log_end_offset == [4, 6][kept_batches]


def test_gaps_between_segments_that_were_synced_are_no_damage() -> None:
    """Apache Kafka begins a segment at its first batch, and removes the last batch of a segment."""
    disk = MemoryDisk()
    log = compacted_follower(disk)
    places = list(log.segments[1].batch_places())
    log.segments[1].file.truncate(places[1].position)
    disk.remove("/data/orders-0/00000000000000000000.index")  # everything is read again
    assert offsets_of(all_records(loaded(log, recovery_point=11))) == [0, 3, 5, 9, 10]

import asyncio

import pytest

from tests.storage.logs import (
    EPOCH,
    NOW_MS,
    all_records,
    append,
    append_many,
    batch_of,
    directory_on,
    loaded,
    new_log,
    offsets_of,
    records_between,
)
from tidelog.config.topic import TopicSettings
from tidelog.errors import CorruptMessage, MessageTooLarge, OffsetOutOfRange, RecordListTooLarge
from tidelog.protocol.record_batch import split_batches
from tidelog.protocol.records import ControlType, build_end_marker
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.follower_checks import UnexpectedAppendOffset
from tidelog.storage.leader_epochs import EpochEntry
from tidelog.storage.log import AppendResult
from tidelog.storage.segment import NotCached
from tidelog.storage.segment_cache import SegmentCache

SMALL = TopicSettings(segment_bytes=500, index_interval_bytes=150)


# ---- appending


def test_batches_get_offsets_one_after_the_other_and_the_leaders_epoch() -> None:
    log = new_log()
    assert append(log, b"a", b"b") == AppendResult(0, 1, -1, 0)
    assert append(log, b"c") == AppendResult(2, 2, -1, 0)
    read = log.read(0, 10_000, 3)
    assert read.slice is not None
    headers = [header for header, _ in split_batches(read.slice.read())]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, EPOCH), (2, EPOCH)]
    assert log.high_watermark == 0


def test_log_append_time_is_reported() -> None:
    clock = ManualClock(NOW_MS + 77)
    log = new_log(clock=clock, settings=TopicSettings(message_timestamp_type="LogAppendTime"))
    assert append(log, b"a").log_append_time_ms == NOW_MS + 77
    assert all_records(log)[0].timestamp == NOW_MS + 77


def test_a_refused_batch_changes_nothing() -> None:
    log = new_log(settings=TopicSettings(max_message_bytes=200, segment_bytes=150))
    append(log, b"a")
    damaged = batch_of(b"b")
    damaged[-1] ^= 1
    for batch, error in (
        (batch_of(b"x" * 300), MessageTooLarge),
        (batch_of(b"x" * 100), RecordListTooLarge),
        (damaged, CorruptMessage),
    ):
        size_bytes = log.size_bytes
        with pytest.raises(error):
            log.append_as_leader(batch, EPOCH + 1)
        assert (log.log_end_offset, log.size_bytes) == (1, size_bytes)
        assert log.leader_epochs.latest_epoch == EPOCH
    assert append(log, b"b").first_offset == 1


# ---- appending as follower


def test_a_follower_takes_offsets_and_epochs_as_they_come() -> None:
    leader, follower = new_log(), new_log()
    append(leader, b"a", b"b", leader_epoch=1)
    append(leader, b"c", leader_epoch=3)
    read = leader.read(0, 10_000, 3)
    assert read.slice is not None
    assert follower.append_as_follower(read.slice.read()) == AppendResult(0, 2, -1, 0)
    assert all_records(follower) == all_records(leader)
    assert follower.leader_epochs.starts == (EpochEntry(1, 0), EpochEntry(3, 2))
    assert follower.append_as_follower(b"") is None


def test_a_cut_batch_at_the_end_of_a_fetch_is_left_for_the_next() -> None:
    log = new_log()
    fetched = bytes(batch_of(b"a", leader_epoch=1)) + bytes(batch_of(b"b", base_offset=1, leader_epoch=1))
    assert log.append_as_follower(fetched[:-1]) == AppendResult(0, 0, -1, 0)
    assert log.log_end_offset == 1


def test_a_follower_refuses_damage_and_what_does_not_follow_and_changes_nothing() -> None:
    log = new_log()
    append(log, b"a")
    good = bytes(batch_of(b"b", base_offset=1, leader_epoch=EPOCH))
    damaged = bytearray(batch_of(b"c", base_offset=2, leader_epoch=EPOCH))
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessage):
        log.append_as_follower(good + bytes(damaged))
    with pytest.raises(UnexpectedAppendOffset):
        log.append_as_follower(good + good)
    with pytest.raises(UnexpectedAppendOffset):
        log.append_as_follower(bytes(batch_of(b"a", leader_epoch=EPOCH)))
    assert log.log_end_offset == 1


def test_gaps_that_compaction_left_on_the_leader_are_kept() -> None:
    log = new_log()
    fetched = bytes(batch_of(b"a", base_offset=3, leader_epoch=1)) + bytes(
        batch_of(b"b", base_offset=9, leader_epoch=1)
    )
    log.append_as_follower(fetched)
    assert offsets_of(all_records(log)) == [3, 9]
    assert offsets_of(records_between(log, 5, 10)) == [9]
    read = log.read(3, 10_000, 4)
    assert read.slice is not None
    assert len(read.slice) == len(fetched) // 2


def test_a_log_that_starts_inside_a_batch_can_be_replicated() -> None:
    """KAFKA-6975."""
    leader = new_log()
    append(leader, b"a", b"b", b"c")
    append(leader, b"d")
    leader.raise_high_watermark(4)
    leader.advance_log_start_offset(2)
    read = leader.read(2, 10_000, 4)
    assert read.slice is not None
    follower = new_log()
    follower.truncate_fully_and_start_at(2)
    follower.append_as_follower(read.slice.read())
    assert (follower.log_start_offset, follower.log_end_offset) == (2, 4)
    assert offsets_of(all_records(follower)) == [2, 3]
    assert loaded(follower, log_start_offset=2).log_start_offset == 2


def test_a_follower_that_ends_where_the_leader_starts_inside_a_batch_starts_over() -> None:
    """Seed 1101621: its records before the leader's log start are deleted, and must not keep it from the batch."""
    leader = new_log()
    append(leader, b"a", b"b", b"c")
    append(leader, b"d")
    leader.raise_high_watermark(4)
    leader.advance_log_start_offset(2)
    read = leader.read(2, 10_000, 4)
    assert read.slice is not None
    follower = new_log()
    append(follower, b"of an earlier epoch")
    append(follower, b"that the leader lacks")
    with pytest.raises(UnexpectedAppendOffset):
        follower.append_as_follower(read.slice.read(), EPOCH, leader_log_start_offset=1)
    follower.append_as_follower(read.slice.read(), EPOCH, leader_log_start_offset=2)
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (2, 2, 4)
    assert offsets_of(all_records(follower)) == [2, 3]
    assert loaded(follower, log_start_offset=2).log_start_offset == 2


def fetched_batches(count: int) -> list[bytes]:
    return [bytes(batch_of(b"%d" % n + b"." * 50, base_offset=n, leader_epoch=EPOCH)) for n in range(count)]


@pytest.mark.parametrize("settings", [TopicSettings(index_interval_bytes=150), SMALL])
def test_batches_that_come_together_are_stored_as_if_they_came_one_by_one(settings: TopicSettings) -> None:
    together, one_by_one = new_log(settings=settings), new_log(settings=settings)
    batches = fetched_batches(30)
    together.append_as_follower(b"".join(batches))
    for batch in batches:
        one_by_one.append_as_follower(batch)
    assert [segment.size_bytes for segment in together.segments] == [s.size_bytes for s in one_by_one.segments]
    assert [segment.file.read(0, 10_000) for segment in together.segments] == [
        segment.file.read(0, 10_000) for segment in one_by_one.segments
    ]
    assert [segment.offset_index.count for segment in together.segments] == [
        segment.offset_index.count for segment in one_by_one.segments
    ]
    for offset in range(30):
        assert offsets_of(records_between(together, offset, 30)) == list(range(offset, 30))
    assert loaded(together).log_end_offset == 30


def test_batches_that_come_together_are_written_with_one_call() -> None:
    disk = MemoryDisk()
    writes: list[tuple[str, int]] = []
    log = new_log(disk)
    first, *others = fetched_batches(30)
    log.append_as_follower(first)
    disk.on_changed.append(lambda what, path, data: writes.append((what, len(data))))
    log.append_as_follower(b"".join(others))
    assert writes == [("append", sum(map(len, others)))]


def test_a_control_batch_is_written_alone() -> None:
    """Only its own append can fail after the write (a marker that cannot be read)."""
    disk = MemoryDisk()
    writes: list[int] = []
    log = new_log(disk)
    log.append_as_follower(fetched_batches(1)[0])
    data = batch_of(b"a", base_offset=1, leader_epoch=EPOCH, producer_id=7, producer_epoch=0, base_sequence=0)
    marker = build_end_marker(
        ControlType.COMMIT,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=NOW_MS,
        base_offset=2,
        leader_epoch=EPOCH,
    )
    disk.on_changed.append(lambda what, path, data: writes.append(len(data)))
    log.append_as_follower(bytes(data) + bytes(marker))
    assert writes == [len(data), len(marker)]


# ---- reading


def test_every_offset_is_found_in_every_segment() -> None:
    log = new_log(settings=SMALL)
    for number in range(60):
        append(log, *[b"%d" % number] * (1 + number % 3))
    assert len(log.segments) > 5
    expected = all_records(log)
    assert offsets_of(expected) == list(range(log.log_end_offset))
    again = loaded(log)
    for offset in range(log.log_end_offset):
        for reader in (log, again):
            assert records_between(reader, offset, log.log_end_offset)[0] == expected[offset]


def test_a_read_gives_whole_batches_within_the_limit_but_at_least_one() -> None:
    log = new_log()
    append(log, b"x" * 1000)
    append(log, b"y")
    first_bytes = log.active_segment.header_at(0).size_bytes
    read = log.read(0, 10, 2)
    assert read.slice is not None
    assert len(read.slice) == first_bytes
    assert log.read(0, 10, 2, at_least_one_batch=False).slice is None


def test_a_limit_cuts_at_an_indexed_batch() -> None:
    log = new_log(settings=TopicSettings(index_interval_bytes=1))
    append_many(log, 50)
    read = log.read(3, 1000, 50)
    assert read.slice is not None
    batches = [header for header, _ in split_batches(read.slice.read())]
    assert sum(header.size_bytes for header in batches) == len(read.slice) <= 1000
    assert batches[0].base_offset == 3


def test_nothing_is_read_from_the_end_on_and_nothing_outside_of_the_log() -> None:
    log = new_log()
    append_many(log, 5)
    assert log.read(5, 100, 5).slice is None
    assert log.read(4, 100, 3).slice is None
    for offset in (-1, 6):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, 5)


def test_a_consumer_reads_to_the_high_watermark_and_not_beyond() -> None:
    log = new_log()
    append_many(log, 600)
    for end_offset in (1, 2, 300, 599):
        log.raise_high_watermark(end_offset)
        assert offsets_of(records_between(log, 0, log.high_watermark)) == list(range(end_offset))


def test_the_loop_learns_when_an_answer_would_have_to_wait_for_the_disk() -> None:
    disk = MemoryDisk()
    log = new_log(disk, settings=TopicSettings(index_interval_bytes=150))
    append_many(log, 20)
    asyncio.run(log.flush())
    again = loaded(log, is_clean=True, recovery_point=20)
    with pytest.raises(NotCached):
        again.read(5, 1000, 20, may_block=False)
    assert again.read(5, 1000, 20).slice is not None
    assert again.read(5, 1000, 20, may_block=False).slice is not None
    disk.uncached_paths.add("/data/orders-0/00000000000000000000.log")
    with pytest.raises(NotCached):
        again.read(5, 1000, 20, may_block=False)
    append_many(again, 1)
    assert again.read(20, 1000, 21, may_block=False).slice is not None


def test_a_reader_keeps_its_bytes_when_the_segment_is_deleted() -> None:
    log = new_log(settings=SMALL)
    append_many(log, 20)
    read = log.read(0, 10_000, 20)
    assert read.slice is not None
    contents = read.slice.read()
    log.raise_high_watermark(20)
    log.settings = TopicSettings(segment_bytes=500, retention_bytes=0)
    assert log.delete_old_segments(NOW_MS)
    for pending in log.local._pending_deletions:
        for path in pending.paths:
            log.directory.context.disk.remove(path)
    assert read.slice.read() == contents


def test_few_files_stay_open_and_all_can_be_read() -> None:
    disk = MemoryDisk()
    directory = directory_on(disk)
    object.__setattr__(directory.context, "cache", SegmentCache(open_files=3, index_bytes=40))
    log = new_log(directory=directory, settings=SMALL)
    append_many(log, 60)
    asyncio.run(log.flush())
    for offset in (*range(60), *range(0, 60, 7)):
        assert records_between(log, offset, offset + 1)[0].offset == offset
        assert sum(segment._file is not None for segment in log.segments) <= 3


# ---- timestamps


def test_the_first_record_at_or_after_a_timestamp_is_found() -> None:
    log = new_log(settings=SMALL)
    append_many(log, 40, step_ms=10)
    for offset in range(40):
        for timestamp in (NOW_MS + offset * 10, NOW_MS + offset * 10 - 9):
            found = log.find_by_timestamp(timestamp)
            assert found == (NOW_MS + offset * 10, offset, EPOCH)
    assert log.find_by_timestamp(NOW_MS + 391) is None
    assert log.find_by_timestamp(0) == (NOW_MS, 0, EPOCH)


def test_records_below_the_log_start_are_not_found_by_timestamp() -> None:
    log = new_log()
    append(log, b"a", b"b", b"c")
    log.raise_high_watermark(3)
    log.advance_log_start_offset(2)
    assert log.find_by_timestamp(0) == (NOW_MS, 2, EPOCH)


def test_timestamps_out_of_order_are_found_in_log_order() -> None:
    log = new_log(settings=SMALL)
    for number in range(30):
        append(log, b"." * 50, timestamp=NOW_MS + (number * 7919) % 31)
    for timestamp in range(NOW_MS, NOW_MS + 31):
        expected = next(record.offset for record in all_records(log) if record.timestamp >= timestamp)
        found = log.find_by_timestamp(timestamp)
        assert found is not None
        assert found.offset == expected
    assert log.find_max_timestamp() == (NOW_MS + 30, offset_with(log_timestamp=NOW_MS + 30), EPOCH)


def offset_with(log_timestamp: int) -> int:
    return next(number for number in range(30) if NOW_MS + (number * 7919) % 31 == log_timestamp)


def test_the_largest_timestamp_is_found_also_after_a_restart() -> None:
    log = new_log(settings=SMALL)
    assert log.find_max_timestamp() is None
    for timestamp in (5, 99, 7, 99, 3, 4, 5, 6, 7):
        append(log, b"." * 90, timestamp=NOW_MS + timestamp)
    assert log.find_max_timestamp() == (NOW_MS + 99, 1, EPOCH)
    assert loaded(log).find_max_timestamp() == (NOW_MS + 99, 1, EPOCH)
    asyncio.run(log.close())
    assert loaded(log, is_clean=True, recovery_point=9).find_max_timestamp() == (NOW_MS + 99, 1, EPOCH)


# ---- rolling


def test_a_segment_rolls_when_the_next_batch_would_not_fit() -> None:
    log = new_log(settings=TopicSettings(segment_bytes=300))
    append_many(log, 10, value_bytes=100)
    assert [segment.size_bytes <= 300 for segment in log.segments] == [True] * len(log.segments)
    assert len(log.segments) == 10


def test_a_segment_rolls_by_the_age_of_its_first_record() -> None:
    log = new_log(settings=TopicSettings(segment_ms=1000))
    append(log, b"a", timestamp=NOW_MS)
    append(log, b"b", timestamp=NOW_MS + 1000)
    assert len(log.segments) == 1
    append(log, b"c", timestamp=NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_the_age_of_a_segment_is_known_after_a_restart() -> None:
    log = new_log(settings=TopicSettings(segment_ms=1000))
    append(log, b"a", timestamp=NOW_MS)
    again = loaded(log)
    append(again, b"b", timestamp=NOW_MS + 1001)
    assert len(again.segments) == 2


def test_a_segment_without_timestamps_rolls_by_the_clock() -> None:
    clock = ManualClock(NOW_MS)
    log = new_log(clock=clock, settings=TopicSettings(segment_ms=1000))
    append(log, b"a", timestamp=-1)
    clock.advance(1000)
    append(log, b"b", timestamp=-1)
    assert len(log.segments) == 1
    clock.advance(1)
    append(log, b"c", timestamp=-1)
    assert len(log.segments) == 2


def test_a_segment_rolls_when_its_index_is_full() -> None:
    log = new_log(settings=TopicSettings(segment_index_bytes=48, index_interval_bytes=10))
    append_many(log, 20)
    assert len(log.segments) > 3
    assert all(segment.offset_index.count <= 6 and segment.time_index.count <= 4 for segment in log.segments)


@pytest.mark.parametrize(("far", "base_offset"), [(2**31, 1), (2**31 + 1, 2**31 + 1)])
def test_a_segment_rolls_when_an_offset_is_too_far_from_its_base(far: int, base_offset: int) -> None:
    log = new_log(settings=TopicSettings(cleanup_policy=("compact",)))
    log.append_as_follower(batch_of(b"a", leader_epoch=1))
    log.append_as_follower(batch_of(b"b", base_offset=far, leader_epoch=1))
    for each in (log, loaded(log)):
        assert [segment.base_offset for segment in each.segments] == [0, base_offset]
        assert offsets_of(records_between(each, 1, far + 1)) == [far]


def test_new_settings_act_at_once() -> None:
    log = new_log()
    append_many(log, 3)
    log.settings = TopicSettings(segment_bytes=150)
    append_many(log, 3)
    assert len(log.segments) == 4


# ---- truncation


def test_truncation_forgets_the_tail_and_the_epochs_in_it() -> None:
    log = new_log(settings=SMALL)
    append_many(log, 20)
    append(log, b"z", leader_epoch=EPOCH + 1)
    log.raise_high_watermark(21)
    log.truncate_to(12)
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (12, 12, 0)
    assert offsets_of(all_records(log)) == list(range(12))
    assert log.leader_epochs.latest_epoch == EPOCH
    append(log, b"again")
    assert all_records(loaded(log))[-1].value == b"again"


def test_truncation_inside_a_batch_takes_the_whole_batch() -> None:
    log = new_log()
    append(log, b"a")
    append(log, b"b", b"c", b"d")
    log.truncate_to(2)
    assert log.log_end_offset == 1


def test_truncation_beyond_the_end_only_trims_the_epochs() -> None:
    log = new_log()
    append_many(log, 3)
    log.leader_epochs.assign(EPOCH + 1, 3)
    log.truncate_to(3)
    assert log.log_end_offset == 3
    assert log.leader_epochs.latest_epoch == EPOCH


def test_full_truncation_moves_all_three_offsets() -> None:
    """KAFKA-9491."""
    log = new_log()
    append_many(log, 5)
    log.raise_high_watermark(5)
    log.truncate_fully_and_start_at(3)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 3, 3)
    assert log.leader_epochs.starts == ()
    assert append(log, b"x").first_offset == 3


# ---- log start and retention


def test_the_log_start_may_lie_inside_a_batch_but_not_past_the_high_watermark() -> None:
    log = new_log()
    append(log, b"a", b"b", b"c")
    log.raise_high_watermark(3)
    assert log.advance_log_start_offset(2)
    assert not log.advance_log_start_offset(1)
    assert offsets_of(all_records(log)) == [2]
    with pytest.raises(OffsetOutOfRange):
        log.read(1, 100, 3)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start_offset(4)


def test_old_segments_go_by_size_but_never_past_the_high_watermark() -> None:
    log = new_log(settings=TopicSettings(segment_bytes=300, retention_bytes=700))
    append_many(log, 10, value_bytes=100)
    assert log.delete_old_segments(NOW_MS) == []
    log.raise_high_watermark(3)
    assert [segment.base_offset for segment in log.delete_old_segments(NOW_MS)] == [0, 1, 2]
    log.raise_high_watermark(10)
    log.delete_old_segments(NOW_MS)
    assert 700 <= log.size_bytes < 900
    assert log.log_start_offset == log.segments[0].base_offset > 3
    assert log.leader_epochs.starts[0].start_offset == log.log_start_offset


def test_old_segments_go_by_their_largest_timestamp() -> None:
    log = new_log(settings=TopicSettings(segment_bytes=300, retention_ms=1000))
    append_many(log, 5, value_bytes=100, step_ms=100)
    log.raise_high_watermark(5)
    assert log.delete_old_segments(NOW_MS + 1000) == []
    assert [segment.base_offset for segment in log.delete_old_segments(NOW_MS + 1201)] == [0, 1, 2]


def test_when_all_is_expired_a_new_segment_is_left() -> None:
    log = new_log(settings=TopicSettings(retention_ms=1000))
    append_many(log, 5)
    log.raise_high_watermark(5)
    assert len(log.delete_old_segments(NOW_MS + 5000)) == 1
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert log.delete_old_segments(NOW_MS + 50_000_000) == []
    assert loaded(log).log_end_offset == 5


def test_a_compacted_topic_only_loses_what_is_below_its_log_start() -> None:
    log = new_log(settings=TopicSettings(segment_bytes=300, retention_bytes=0, cleanup_policy=("compact",)))
    append_many(log, 5, value_bytes=100)
    log.raise_high_watermark(5)
    assert log.delete_old_segments(NOW_MS + 10**12) == []
    log.advance_log_start_offset(2)
    assert [segment.base_offset for segment in log.delete_old_segments(NOW_MS)] == [0, 1]


def test_deleted_files_are_renamed_at_once() -> None:
    disk = MemoryDisk()
    log = new_log(disk, settings=TopicSettings(segment_bytes=300, retention_bytes=0, file_delete_delay_ms=60_000))
    append_many(log, 3, value_bytes=100)
    log.raise_high_watermark(3)
    log.delete_old_segments(NOW_MS)
    assert not disk.exists("/data/orders-0/00000000000000000000.log")
    assert disk.exists("/data/orders-0/00000000000000000000.log.deleted")
    assert {pending.due_ms for pending in log.local._pending_deletions} == {60_000}


# ---- flushing


def test_the_recovery_point_moves_with_a_flush() -> None:
    disk = MemoryDisk()
    log = new_log(disk, settings=SMALL)
    append_many(log, 20)
    assert log.recovery_point == 0
    asyncio.run(log.flush())
    assert log.recovery_point == 20
    assert all(disk.unsynced_bytes(segment.path(".log")) == 0 for segment in log.segments)
    assert disk.read_file("/data/orders-0/leader-epoch-checkpoint") == b"0\n1\n5 0\n"


class DirectorySyncs(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        self.synced.append(path)
        super().sync_directory(path)


def test_the_names_of_new_files_are_synced_with_them() -> None:
    disk = DirectorySyncs()
    log = new_log(disk)
    asyncio.run(log.flush())
    assert disk.synced == []
    append_many(log, 1)
    asyncio.run(log.flush())
    assert sorted(disk.synced) == ["/data", "/data/orders-0"]
    append_many(log, 1)
    asyncio.run(log.flush())
    assert len(disk.synced) == 2
    log.roll()
    append_many(log, 1)
    asyncio.run(log.flush())
    assert disk.synced[2:] == ["/data/orders-0"]

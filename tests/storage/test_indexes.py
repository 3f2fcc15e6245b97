"""Offset and time indexes: entries are written in slices, searched in windows of the file, and bounded in memory."""

import errno
import struct
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.logs import all_records, append_many, loaded, new_log
from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaStorageError
from tidelog.runtime.memory_disk import Fault, MemoryDisk
from tidelog.storage import indexes
from tidelog.storage.indexes import OFFSET_ENTRY, SLICE_BYTES, TIME_ENTRY, WINDOW_BYTES, Index
from tidelog.storage.segment import NotCached, Segment
from tidelog.storage.segment_cache import SegmentCache

BATCH_BYTES = 5000
PATH = "/data/00000000000000000000"


def new_index(disk: MemoryDisk | None = None, entry: struct.Struct = OFFSET_ENTRY) -> Index:
    return Index(disk or MemoryDisk(), SegmentCache(), "/00000000000000000000.index", entry)


def filled(count: int, disk: MemoryDisk | None = None, entry: struct.Struct = OFFSET_ENTRY) -> Index:
    """Entries (0, 0), (10, 100), (20, 200)..., appended as a segment does."""
    index = new_index(disk, entry)
    for number in range(count):
        if index.is_slice_due:
            index.write_slice()
        index.append(10 * number, 100 * number)
    return index


def grown_segment(batches: int, disk: MemoryDisk | None = None) -> Segment:
    """A segment of synthetic batches without any data, each with an index entry."""
    disk = disk or MemoryDisk()
    disk.make_directory("/data")
    segment = Segment.create(disk, SegmentCache(), "/data", 0, now_ms=0)
    for number in range(batches):
        segment.append(b"", BATCH_BYTES, number, 1_000 + number, index_interval_bytes=4096)
    return segment


def memory_bytes(segment: Segment) -> int:
    return segment.offset_index.memory_bytes + segment.time_index.memory_bytes


def test_entries_in_memory_do_not_grow_with_the_segment() -> None:
    largest = max(memory_bytes(grown_segment(batches)) for batches in (1_000, 20_000))
    assert largest <= 4 * SLICE_BYTES + OFFSET_ENTRY.size + TIME_ENTRY.size


def test_a_search_loads_one_window_of_the_file() -> None:
    segment = grown_segment(30_000)
    before = segment.offset_index.memory_bytes
    assert segment.start_of_search(100) == 100 * BATCH_BYTES
    assert segment.offset_index.memory_bytes <= before + WINDOW_BYTES


def test_the_newest_entries_are_found_without_the_file() -> None:
    segment = grown_segment(5_000)
    assert segment.start_of_search(4_999 - SLICE_BYTES // OFFSET_ENTRY.size, may_block=False) > 0
    with pytest.raises(NotCached):
        segment.start_of_search(100, may_block=False)


def test_a_sequential_reader_waits_for_the_file_once_per_window() -> None:
    segment, misses = grown_segment(20_000), 0
    for offset in range(0, 20_000, 50):
        try:
            found = segment.start_of_search(offset, may_block=False)
        except NotCached:
            misses += 1
            found = segment.start_of_search(offset)
        assert found == (offset * BATCH_BYTES if offset else 0)
    assert misses <= 20_000 * OFFSET_ENTRY.size / WINDOW_BYTES + 2


def test_slices_and_the_seal_write_the_same_file_as_one_write() -> None:
    """Kafka's format: nothing but entries, so that its tools and its broker read the file of an active segment."""
    disk = MemoryDisk()
    segment = grown_segment(2_000, disk)
    active = disk.read_file(f"{PATH}.index")
    segment.seal()
    entries = list(OFFSET_ENTRY.iter_unpack(disk.read_file(f"{PATH}.index")))
    assert entries == [(number, number * BATCH_BYTES) for number in range(1, 2_000)]
    assert active == disk.read_file(f"{PATH}.index")[: len(active)]
    assert 0 < len(active) < len(entries) * OFFSET_ENTRY.size
    times = list(TIME_ENTRY.iter_unpack(disk.read_file(f"{PATH}.timeindex")))
    assert times == [(1_000 + number, number) for number in range(1, 2_000)]


def test_a_shortage_of_descriptors_delays_a_slice() -> None:
    disk = MemoryDisk()
    index = filled(2 * SLICE_BYTES // OFFSET_ENTRY.size, disk)
    disk.faults.append(Fault(errno.EMFILE, "/", ("open",)))
    index.write_slice()
    assert (index.is_slice_due, index.has_file) == (True, False)
    disk.faults.clear()
    index.write_slice()
    assert (index.is_slice_due, disk.size(index.path)) == (False, SLICE_BYTES)


def test_a_full_disk_fails_the_append_before_its_batch() -> None:
    disk = MemoryDisk()
    log = new_log(disk, settings=TopicSettings(index_interval_bytes=1))
    append_many(log, 2 * SLICE_BYTES // TIME_ENTRY.size - 100)
    disk.faults.append(Fault(errno.ENOSPC, "/data/orders-0/00000000000000000000.index", ("append",)))
    with pytest.raises(KafkaStorageError):
        append_many(log, 2 * SLICE_BYTES // OFFSET_ENTRY.size)
    disk.faults.clear()
    assert loaded(log).log_end_offset == log.log_end_offset


def test_recovery_rebuilds_indexes_of_which_slices_were_lost_or_torn() -> None:
    disk = MemoryDisk()
    log = new_log(disk, settings=TopicSettings(index_interval_bytes=1))
    append_many(log, 1_500)
    records = all_records(log)
    with_slices = [
        log.active_segment.offset_index.at(number) for number in range(log.active_segment.offset_index.count)
    ]
    file = disk.open("/data/orders-0/00000000000000000000.index", "update")
    file.truncate(file.size() - 3)
    again = loaded(log)
    assert all_records(again) == records
    index = again.active_segment.offset_index
    assert [index.at(number) for number in range(index.count)] == with_slices


def test_truncation_into_written_slices_removes_their_entries_everywhere() -> None:
    disk = MemoryDisk()
    index = filled(3_000, disk)
    assert index.find(10_000) == (10_000, 100_000)  # the window is loaded
    prepared = index.prepare_truncation(5_000)
    assert prepared is not None
    index.truncate(prepared)
    assert (index.count, index.last(), index.find(10_000)) == (500, (4_990, 49_900), (4_990, 49_900))
    assert disk.size(index.path) == 500 * OFFSET_ENTRY.size


def test_a_window_read_before_a_truncation_is_not_used_after_it() -> None:
    """A worker may finish its read after the event loop has truncated the index."""
    index = filled(3_000)
    index.find(100)
    stale = index._window
    prepared = index.prepare_truncation(50)
    assert prepared is not None
    index.truncate(prepared)
    index.append(60, 601)
    index._window = stale
    assert index.find(100) == (60, 601)
    assert index.find(45) == (40, 400)


@given(
    count=st.integers(0, 120),
    truncations=st.lists(st.integers(0, 130), max_size=2),
    keys=st.lists(st.integers(-5, 1_300), min_size=1, max_size=20),
    field=st.sampled_from([0, 1]),
    entry=st.sampled_from([OFFSET_ENTRY, TIME_ENTRY]),
)
def test_searches_find_what_a_list_would(
    count: int, truncations: list[int], keys: list[int], field: int, entry: struct.Struct
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes, "SLICE_BYTES", 64)
        patch.setattr(indexes, "MOST_NEW_BYTES", 128)
        patch.setattr(indexes, "WINDOW_BYTES", 96)
        index, model = filled(count, entry=entry), [(10 * number, 100 * number) for number in range(count)]
        for kept in [None, *truncations]:
            if kept is not None and (prepared := index.prepare_truncation(10 * kept)) is not None:
                index.truncate(prepared)
                del model[kept:]
            for key in keys:
                _compare(index, model, key * (1 if field == 0 else 10), field)


def _compare(index: Index, model: list[tuple[int, int]], key: int, field: int) -> None:
    column = [entry[field] for entry in model]
    before, after = bisect_right(column, key) - 1, bisect_left(column, key)
    assert index.find(key, field) == (model[before] if before >= 0 else None)
    assert index.is_in_memory(key, field)
    assert index.find_from(key, field) == (model[after] if after < len(model) else None)
    assert (index.count, index.last()) == (len(model), model[-1] if model else None)

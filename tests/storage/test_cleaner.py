import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.compacted_log import (
    COMPACT,
    PARTITION,
    Stage,
    append,
    append_batch,
    batches_of,
    records_in,
    values_in,
)
from tidelog.config.broker import BrokerSettings
from tidelog.config.topic import TopicSettings
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import read_header, seal
from tidelog.protocol.records import ControlType, Record, build_batch, build_end_marker
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.workers import InlineWorkers
from tidelog.storage.checkpoints import CLEANER_OFFSETS, read_offsets
from tidelog.storage.compaction import BYTES_PER_KEY
from tidelog.storage.log import Log
from tidelog.storage.log_directory import Identity
from tidelog.storage.log_manager import LogManager
from tidelog.storage.validation import AppendOrigin
from tidelog.types import TopicPartition

DAY_MS = 86_400_000


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_latest_value_of_every_key_stays_at_its_offset(stage: Stage) -> None:
    log = stage.create()
    for codec in Codec:
        append(
            log, ("a", f"a{codec}"), ("b", f"b{codec}"), ("c", "c") if codec is Codec.GZIP else ("a", "x"), codec=codec
        )
        log.roll()
    before = records_in(log)
    assert stage.clean()
    kept = {5: b"c", 13: b"b4", 14: b"x"}
    assert {record.offset: record.value for record in records_in(log)} == kept
    assert all(record in before for record in records_in(log))
    assert log.log_end_offset == 15


def test_a_batch_that_cannot_be_read_does_not_stop_the_cleaning(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    log = stage.create()
    append(log, ("a", "1"), ("b", "1"))
    poisoned = build_batch([Record(0, 0, b"a", b"poison")])
    poisoned[-1] = 7
    seal(poisoned)
    append_batch(log, poisoned, AppendOrigin.COORDINATOR)  # whose records are not looked at
    append(log, ("a", "3"), ("c", "1"))
    log.roll()
    with caplog.at_level("WARNING"):
        assert stage.clean()
    assert [read_header(batch).base_offset for batch in batches_of(log)] == [0, 2, 3]
    assert "first_offset=2" in caplog.text
    statistics = stage.cleaner.statistics()
    assert (statistics.unreadable_batches, statistics.uncleanable_partitions) == (1, 0)


def test_the_active_segment_is_never_cleaned(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "1"), ("a", "2"))
    assert not stage.clean()
    log.roll()
    append(log, ("a", "3"))
    append(log, ("a", "4"))
    assert stage.clean()
    assert [record.offset for record in records_in(log)] == [1, 2, 3]


def test_a_log_that_is_not_compacted_is_left_alone() -> None:
    stage = Stage(TopicSettings(cleanup_policy=("delete",), min_cleanable_dirty_ratio=0.0))
    log = stage.create()
    append(log, ("a", "1"), ("a", "2"))
    log.roll()
    assert not stage.clean()


def test_a_log_may_be_compacted_and_trimmed() -> None:
    stage = Stage(TopicSettings(cleanup_policy=("compact", "delete"), min_cleanable_dirty_ratio=0.0))
    log = stage.create()
    append(log, ("a", "1"), ("a", "2"))
    log.roll()
    assert stage.clean()
    assert [record.offset for record in records_in(log)] == [1]


def test_what_was_cleaned_is_not_cleaned_again(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "1"), ("a", "2"))
    log.roll()
    assert stage.clean()
    assert not stage.clean()
    append(log, ("a", "3"))
    log.roll()
    assert stage.clean()
    assert [record.offset for record in records_in(log)] == [2]


def test_how_far_cleaning_came_survives_a_restart(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "1"), ("a", "2"))
    log.roll()
    stage.clean()
    assert read_offsets(stage.disk, stage.directory.file(CLEANER_OFFSETS)) == {PARTITION: 2}
    assert stage.reopen().cleaned_until == 2
    assert not stage.clean()


def test_a_damaged_checkpoint_makes_everything_dirty(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "1"), ("a", "2"))
    log.roll()
    stage.clean()
    stage.disk.write_file_atomically(stage.directory.file(CLEANER_OFFSETS), b"nonsense")
    stage.reopen()
    assert stage.clean()


def test_truncation_takes_the_checkpoint_back(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "old"))
    append(log, ("b", "1"))
    log.roll()
    stage.clean()
    log.truncate_to(1)
    append(log, ("a", "new"))
    append(log, ("c", "1"))
    log.roll()
    assert stage.clean()
    assert [record.offset for record in records_in(log)] == [1, 2]


def test_the_checkpoint_forgets_logs_that_are_gone(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "1"), ("a", "2"))
    log.roll()
    stage.clean()
    stage.directory.logs.clear()
    stage.logs_by_partition.clear()
    stage.clean()
    assert read_offsets(stage.disk, stage.directory.file(CLEANER_OFFSETS)) == {}


def test_the_dirtiest_log_comes_first(stage: Stage) -> None:
    first, second = stage.create(), stage.create(TopicPartition("other", 0))
    append(first, ("a", "1"), ("b", "2"))
    first.roll()
    stage.clean()
    append(first, ("a", "3"))
    append(second, ("a", "3"))
    for log in stage.logs:
        log.roll()
    assert stage.clean()
    assert (first.cleaned_until, second.cleaned_until) == (2, 1)
    assert stage.clean()
    assert (first.cleaned_until, second.cleaned_until) == (3, 1)


def test_tombstones_go_after_their_retention_and_not_before(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "1"), ("b", "1"))
    append(log, ("a", None))
    log.roll()

    def offsets_after_cleaning() -> list[int]:
        append(log, ("filler", "1"))
        log.roll()
        assert stage.clean()
        return [record.offset for record in records_in(log) if record.key != b"filler"]

    assert offsets_after_cleaning() == [1, 2]
    stage.clock.advance(DAY_MS - 1)
    assert offsets_after_cleaning() == [1, 2]
    stage.clock.advance(1)
    assert offsets_after_cleaning() == [1]


def test_tombstones_stay_while_a_replica_is_not_in_sync(stage: Stage) -> None:
    """It may have the value that a tombstone deletes, and could only get the tombstone from this log (R45)."""
    log = stage.create()
    append(log, ("a", "1"), ("b", "1"))
    append(log, ("a", None))
    log.roll()
    append(log, ("filler", "1"))
    log.roll()
    assert stage.clean()

    stage.clock.advance(DAY_MS)
    stage.cleaner.are_replicas_in_sync = lambda _: False
    append(log, ("filler", "2"))
    log.roll()
    assert stage.clean()
    assert [record.offset for record in records_in(log) if record.key == b"a"] == [2]

    stage.cleaner.are_replicas_in_sync = lambda _: True
    append(log, ("filler", "3"))
    log.roll()
    assert stage.clean()
    assert [record.offset for record in records_in(log) if record.key == b"a"] == []


def test_small_segments_become_one() -> None:
    stage = Stage(TopicSettings(cleanup_policy=("compact",), segment_bytes=1000, min_cleanable_dirty_ratio=0.0))
    log = stage.create()
    for number in range(20):
        append(log, (f"key {number}", "v" * 100))
    assert len(log.segments) == 4
    for number in range(20):
        append(log, (f"key {number}", "w"))
    before = len(log.segments)
    assert stage.clean()
    log.roll()
    assert stage.clean()  # what became small in one round is put together in the next
    assert len(log.segments) < before
    assert values_in(log) == {f"key {number}".encode(): b"w" for number in range(20)}
    assert max(segment.size_bytes for segment in log.segments) <= 1000


def test_an_emptied_segment_still_ends_where_the_next_one_begins() -> None:
    """Recovery takes a gap between segments for a lost end (seed 20705)."""
    stage = Stage(TopicSettings(cleanup_policy=("compact",), segment_bytes=200))
    log = stage.create()
    for number in range(6):
        append(log, ("a", f"{number}" * 100))
    stage.clean()
    for each in (log, stage.reopen()):
        assert [record.offset for record in records_in(each)] == [4, 5]
        joints = [segment.base_offset for segment in each.segments[1:]]
        assert [segment.find_end_offset() for segment in each.segments[:-1]] == joints
        for offset in range(5):
            read = each.read(offset, 10, each.log_end_offset)
            assert read.slice is not None
            header = read_header(read.slice.read())
            assert (header.base_offset, header.record_count) == (offset, int(offset == 4))
        emptied = [segment for segment in each.segments if segment.base_offset < 4]
        assert [segment.time_index.count for segment in emptied] == [0] * len(emptied)  # Kafka's tools check them


def test_a_small_buffer_needs_more_rounds_and_comes_to_the_same() -> None:
    stage = Stage(dedupe_buffer_bytes=10 * BYTES_PER_KEY)
    log = stage.create()
    for round_ in range(3):
        for number in range(50):
            append(log, (f"key {number}", f"{round_}"))
    log.roll()
    rounds = 0
    while stage.clean():
        rounds += 1
        assert values_in(log) == {f"key {number}".encode(): b"2" for number in range(50)}
    assert rounds >= 10
    assert [record.offset for record in records_in(log)] == list(range(100, 150))


def test_batches_larger_than_one_read_are_cleaned(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "x" * 200_000), ("b", "1"))
    append(log, ("c", "y" * 200_000))
    append(log, ("a", "2"))
    log.roll()
    assert stage.clean()
    assert [record.offset for record in records_in(log)] == [1, 2, 3]


def transactional(key: str, sequence: int, producer_id: int = 7) -> bytearray:
    record = Record(0, 5, key.encode(), b"v")
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )


def end_marker(control_type: ControlType, producer_id: int = 7) -> bytearray:
    return build_end_marker(control_type, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=5)


def test_aborted_transactions_leave_markers_and_index_entries_first_and_nothing_later(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "committed"))
    append_batch(log, transactional("a", 0))
    log.roll()
    append_batch(log, transactional("b", 1))
    append_batch(log, end_marker(ControlType.ABORT), AppendOrigin.COORDINATOR)
    append_batch(log, transactional("c", 2))
    append_batch(log, end_marker(ControlType.COMMIT), AppendOrigin.COORDINATOR)
    log.roll()

    def bases_after_cleaning() -> list[int]:
        append(log, ("filler", "1"))
        log.roll()
        assert stage.clean()
        return [read_header(batch).base_offset for batch in batches_of(log) if read_header(batch).base_offset < 6]

    assert bases_after_cleaning() == [0, 3, 4, 5]
    assert [(entry.producer_id, entry.first_offset) for entry in log.aborted_transactions(0, 6)] == [(7, 1)]
    assert bases_after_cleaning() == [0, 3, 4, 5]
    assert log.aborted_transactions(0, 6) == []
    stage.clock.advance(DAY_MS)
    assert bases_after_cleaning() == [0, 4, 5]
    assert values_in(log).keys() >= {b"a", b"c"}


def test_an_open_transaction_is_not_cleaned(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "1"), ("a", "2"))
    log.roll()
    append_batch(log, transactional("a", 0))
    log.roll()
    append(log, ("a", "3"))
    log.roll()
    assert stage.clean()
    assert log.cleaned_until == 2
    assert [read_header(batch).base_offset for batch in batches_of(log)] == [0, 2, 3]


def test_a_producer_can_go_on_after_cleaning_and_restart(stage: Stage) -> None:
    log = stage.create()
    for sequence in range(3):
        record = Record(0, 5, b"a", b"v")
        append_batch(log, build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence))
    append(log, ("a", "newest"))
    log.roll()
    assert stage.clean()
    assert [read_header(batch).base_offset for batch in batches_of(log)] == [2, 3]
    log = stage.reopen()
    repeated = build_batch([Record(0, 5, b"a", b"v")], producer_id=7, producer_epoch=0, base_sequence=2)
    assert log.append_as_leader(memoryview(repeated), 0).is_duplicate
    following = build_batch([Record(0, 5, b"a", b"v")], producer_id=7, producer_epoch=0, base_sequence=3)
    assert log.append_as_leader(memoryview(following), 0).first_offset == 4


# ---- as part of the broker's storage


def test_the_cleaner_runs_with_the_logs_and_goes_on_after_a_restart() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    broker_settings = BrokerSettings(log_dirs=("/first", "/second"), log_cleaner_backoff_ms=0)

    async def open_logs() -> LogManager:
        return await LogManager.open(
            broker_settings, lambda _: COMPACT, disk, clock, InlineWorkers(), Identity("cluster", 0)
        )

    async def run() -> None:
        manager = await open_logs()
        log = manager.create(PARTITION, bytes(16), COMPACT)
        append(log, ("a", "1"), ("a", "2"))
        log.roll()
        background = asyncio.create_task(manager.run())
        for _ in range(100):
            await asyncio.sleep(0)
        background.cancel()
        await asyncio.wait([background])
        assert log.cleaned_until == 2
        await manager.close()
        manager = await open_logs()
        reopened = manager.logs[PARTITION]
        assert reopened.cleaned_until == 2
        assert [record.offset for record in records_in(reopened)] == [1]
        await manager.close()

    asyncio.run(run())


# ---- at random

operations = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"), st.sampled_from("abcd"), st.none() | st.text("xyz", max_size=2), st.integers(1, 4)
        ),
        st.tuples(st.just("roll")),
        st.tuples(st.just("clean")),
        st.tuples(st.just("wait")),
        st.tuples(st.just("restart")),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(operations)
def test_readers_of_the_whole_log_always_learn_the_same(steps: list[tuple[Any, ...]]) -> None:
    stage = Stage(TopicSettings(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, segment_bytes=600))
    log = stage.create()
    model: dict[bytes, bytes] = {}
    ever: dict[int, Record] = {}
    for step in steps:
        log = _take(stage, log, step, model)
        if step[0] == "append":
            ever |= {record.offset: record for record in records_in(log)}
        found = records_in(log)
        assert values_in(log) == model
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        assert all(ever[record.offset] == record for record in found)


def _take(stage: Stage, log: Log, step: tuple[Any, ...], model: dict[bytes, bytes]) -> Log:
    match step:
        case ("append", key, value, count):
            append(log, *[(key, "old")] * (count - 1), (key, value), codec=Codec(count))
            model.pop(key.encode(), None)
            if value is not None:
                model[key.encode()] = value.encode()
        case ("roll",):
            log.roll()
        case ("clean",):
            stage.clean()
        case ("wait",):
            stage.clock.advance(DAY_MS // 2)
        case ("restart",):
            return stage.reopen()
    return log


def every_index_entry(log: Log) -> Iterator[tuple[int, int, int]]:
    for segment in log.segments:
        for number in range(segment.offset_index.count):
            entry = segment.offset_index.at(number)
            assert entry is not None
            yield entry[0] + segment.base_offset, segment.header_at(entry[1]).last_offset, entry[1]


def test_the_indexes_of_cleaned_segments_point_at_batches() -> None:
    settings_ = TopicSettings(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, index_interval_bytes=100)
    stage = Stage(settings_)
    log = stage.create()
    for number in range(200):
        append(log, (f"{number % 60}", "v" * 50), timestamp=number)
    log.roll()
    assert stage.clean()
    entries = list(every_index_entry(log))
    assert len(entries) > 10
    assert all(offset == last_offset for offset, last_offset, _ in entries)
    assert log.segments[0].largest_timestamp() == 199
    times = [log.segments[0].time_index.at(number) for number in range(log.segments[0].time_index.count)]
    assert all(entry is not None and entry[0] == entry[1] for entry in times)

import asyncio
import errno
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any, ParamSpec, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.config.topic import TopicSettings
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import crc_matches, read_header, split_batches
from tidelog.protocol.records import ControlType, Record, build_batch, build_end_marker, records_of
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.disk import OpenMode
from tidelog.runtime.memory_disk import MemoryDisk, MemoryFile
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.workers import InlineWorkers, ThreadWorkers, Workers
from tidelog.storage.checkpoints import read_offsets
from tidelog.storage.cleaner import CLEANER_OFFSETS, Cleaner
from tidelog.storage.compaction import BYTES_PER_KEY
from tidelog.storage.loader import Checkpointed, create_log, load_log
from tidelog.storage.log import Log
from tidelog.storage.log_directory import LogDirectory, StorageContext
from tidelog.storage.validation import AppendOrigin
from tidelog.types import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")

PARTITION = TopicPartition("compacted", 0)
DAY_MS = 86_400_000
COMPACT = TopicSettings(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


class InterruptingWorkers(InlineWorkers):
    """Does something on the event loop before a certain piece of work, as it may happen while a worker is busy."""

    def __init__(self, name: str, event: Callable[[], None]) -> None:
        self._name = name
        self._event: Callable[[], None] | None = event

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result = work(*args, **kwargs)
        if work.__name__ == self._name and self._event is not None:
            event, self._event = self._event, None
            event()
        return result


class Stage:
    """A log dir with one compacted log and a cleaner."""

    def __init__(
        self,
        topic_settings: TopicSettings = COMPACT,
        disk: MemoryDisk | None = None,
        dedupe_buffer_bytes: int = 10**6,
    ) -> None:
        self.clock = ManualClock()
        self.disk = disk or MemoryDisk(self.clock)
        self.context = StorageContext(self.disk, self.clock, InlineWorkers(), SeededRandomness(1))
        self.directory = LogDirectory("/logs", self.context)
        self.topic_settings = topic_settings
        self.dedupe_buffer_bytes = dedupe_buffer_bytes
        self.cleaner = self.new_cleaner()

    @property
    def logs(self) -> list[Log]:
        return list(self.directory.logs.values())

    def new_cleaner(self, workers: Workers | None = None) -> Cleaner:
        context = StorageContext(self.disk, self.clock, workers or InlineWorkers(), SeededRandomness(1))
        cleaner = Cleaner(context, [self.directory], self.dedupe_buffer_bytes)
        asyncio.run(cleaner.load())
        return cleaner

    def create(self, partition: TopicPartition = PARTITION) -> Log:
        log = create_log(self.directory, self.path_of(partition), partition, bytes(16), self.topic_settings)
        self.directory.logs[partition] = log
        return log

    def path_of(self, partition: TopicPartition) -> str:
        return f"{self.directory.path}/{partition}"

    def reopen(self) -> Log:
        """As after a crash."""
        for log in self.logs:
            log.let_go()
        marks = Checkpointed(is_clean=False, recovery_point=0, high_watermark=2**40)
        log = load_log(self.directory, self.path_of(PARTITION), PARTITION, self.topic_settings, marks)
        self.directory.logs = {PARTITION: log}
        self.cleaner = self.new_cleaner()
        return log

    def clean(self) -> bool:
        return asyncio.run(self.cleaner.clean_once())


@pytest.fixture
def stage() -> Stage:
    return Stage()


def append(log: Log, *pairs: tuple[str, str | None], codec: Codec = Codec.NONE, timestamp: int = 5) -> None:
    records = [
        Record(i, timestamp, key.encode(), None if value is None else value.encode())
        for i, (key, value) in enumerate(pairs)
    ]
    append_batch(log, build_batch(records, compression=codec))


def append_batch(log: Log, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    log.append_as_leader(memoryview(batch), 0, origin)
    log.raise_high_watermark(log.log_end_offset)


def batches_of(log: Log) -> list[bytes]:
    """Everything in the log, read as a consumer reads it."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1000, log.log_end_offset)
        if read.slice is None:
            break
        for header, batch in split_batches(read.slice.read()):
            assert crc_matches(batch, header)
            found.append(bytes(batch))
            offset = header.end_offset
    return found


def records_in(log: Log) -> list[Record]:
    return [record for batch in batches_of(log) for record in records_of(batch)]


def values_in(log: Log) -> dict[bytes | None, bytes | None]:
    """What a reader of the whole log knows in the end."""
    latest = {record.key: record.value for record in records_in(log)}
    return {key: value for key, value in latest.items() if value is not None}


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


def test_offsets_of_an_emptied_segment_are_read_from_the_next() -> None:
    stage = Stage(TopicSettings(cleanup_policy=("compact",), segment_bytes=200))
    log = stage.create()
    for number in range(6):
        append(log, ("a", f"{number}" * 100))
    stage.clean()
    assert [record.offset for record in records_in(log)] == [4, 5]
    for offset in range(5):
        read = log.read(offset, 10, log.log_end_offset)
        assert read.slice is not None
        assert read_header(read.slice.read()).base_offset == 4
    assert [record.offset for record in records_in(stage.reopen())] == [4, 5]


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


# ---- what happens meanwhile


def leftovers(stage: Stage) -> list[str]:
    names = [entry.name for entry in stage.disk.list_directory(stage.path_of(PARTITION))]
    return [name for name in names if name.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("work", ["_prepare_round", "_clean_group"])
def test_a_log_that_is_truncated_meanwhile_is_not_touched(stage: Stage, work: str) -> None:
    log = stage.create()
    append(log, ("a", "1"))
    append(log, ("a", "2"))
    log.roll()
    append(log, ("a", "3"))
    stage.cleaner = stage.new_cleaner(InterruptingWorkers(work, lambda: log.truncate_to(1)))
    assert stage.clean()
    assert log.cleaned_until is None
    assert values_in(log) == {b"a": b"1"}
    assert leftovers(stage) == []


def test_segments_that_are_trimmed_meanwhile_do_not_come_back(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "1"))
    log.roll()
    append(log, ("b", "2"))
    log.roll()
    append(log, ("c", "3"))

    def trim() -> None:
        log.advance_log_start_offset(1)
        log.delete_old_segments(stage.clock.now_ms())

    stage.cleaner = stage.new_cleaner(InterruptingWorkers("_clean_group", trim))
    assert stage.clean()
    assert [record.offset for record in records_in(log)] == [1, 2]
    assert leftovers(stage) == []


def test_a_log_that_is_deleted_meanwhile_takes_no_directory_offline(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "1"), ("a", "2"))
    log.roll()

    def delete() -> None:
        stage.directory.logs.clear()
        log.is_deleted = True
        stage.disk.rename(log.path, log.path + ".gone-delete")

    stage.cleaner = stage.new_cleaner(InterruptingWorkers("_prepare_round", delete))
    assert stage.clean()
    assert stage.directory.is_online


def test_appends_go_on_meanwhile(stage: Stage) -> None:
    log = stage.create()
    append(log, ("a", "1"), ("a", "2"))
    log.roll()
    stage.cleaner = stage.new_cleaner(InterruptingWorkers("_clean_group", lambda: append(log, ("a", "3"))))
    assert stage.clean()
    assert [record.offset for record in records_in(log)] == [1, 2]


class SlowDisk(MemoryDisk):
    """Holds up the second opening of a sealed segment, when it is being rewritten, until told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self.renamed: list[str] = []
        self.is_reached = Event()
        self.may_go_on = Event()

    def open(self, path: str, mode: OpenMode) -> MemoryFile:
        if mode == "read" and path.endswith(".log"):
            self.opened += 1
            if self.opened == 2:
                self.is_reached.set()
                assert self.may_go_on.wait(timeout=10)
        return super().open(path, mode)

    def rename(self, old: str, new: str) -> None:
        self.renamed.append(new)
        super().rename(old, new)


def test_a_cleaner_that_is_stopped_leaves_no_worker_behind() -> None:
    disk = SlowDisk()
    stage = Stage(disk=disk)
    log = stage.create()
    append(log, ("a", "1"), ("a", "2"))
    log.roll()
    workers = ThreadWorkers("cleaner", 1)
    cleaner = stage.new_cleaner(workers)

    async def stop_in_the_middle() -> None:
        running = asyncio.create_task(cleaner.run(backoff_ms=1))
        await asyncio.to_thread(disk.is_reached.wait)
        running.cancel()
        # Only once the cancellation has arrived: by then the worker has been told to stop.
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, disk.may_go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(stop_in_the_middle())
    workers.close()
    assert disk.renamed == []
    assert log.cleaned_until is None
    assert len(records_in(log)) == 2
    assert leftovers(stage) == []


# ---- damage


def test_a_damaged_log_is_left_alone_and_the_others_are_cleaned(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    damaged, sound = stage.create(), stage.create(TopicPartition("sound", 0))
    for log in (damaged, sound):
        append(log, ("a", "1"), ("a", "2"))
        log.roll()
    path = damaged.segments[0].path(".log")
    contents = bytearray(stage.disk.read_file(path))
    contents[-1] ^= 1
    stage.disk.write_file_atomically(path, bytes(contents))
    while stage.clean():
        pass
    assert damaged.cleaned_until is None
    assert sound.cleaned_until == 2
    assert stage.disk.read_file(path) == contents
    assert "cannot be cleaned" in caplog.text
    assert stage.cleaner.statistics().uncleanable_partitions == 1


def fill(log: Log) -> None:
    for number in range(12):
        append(log, (f"key {number % 4}", f"value {number}"), ("gone", None), codec=Codec(number % 5))
        if number % 3 == 2:
            log.roll()
    asyncio.run(log.flush())


@pytest.mark.parametrize("segment_bytes", [400, 10_000], ids=["several groups", "one group"])
def test_a_crash_at_any_moment_loses_nothing(segment_bytes: int) -> None:
    topic_settings = TopicSettings(cleanup_policy=("compact",), segment_bytes=segment_bytes)
    for calls in range(1000):
        stage = Stage(topic_settings)
        fill(stage.create())
        expected = values_in(stage.logs[0])
        stage.disk.inject(errno.EIO, calls_before=calls)
        stage.clean()
        has_failed = not stage.directory.is_online
        stage.disk.faults.clear()
        stage.disk.crash()
        _check_recovery(Stage(topic_settings, disk=stage.disk), expected)
        if not has_failed:
            assert calls > 50
            return
    raise AssertionError("the cleaning never ended")


def _check_recovery(stage: Stage, expected: dict[bytes | None, bytes | None]) -> None:
    log = stage.reopen()
    assert values_in(log) == expected
    assert log.log_end_offset == 24
    while stage.clean():
        assert values_in(log) == expected
    assert leftovers(stage) == []


def test_a_full_disk_takes_the_directory_offline(stage: Stage) -> None:
    log = stage.create()
    fill(log)
    stage.disk.inject(errno.ENOSPC, operations=("append",))
    stage.clean()
    assert not stage.directory.is_online
    assert not stage.clean()


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


@settings(max_examples=60, deadline=None)
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

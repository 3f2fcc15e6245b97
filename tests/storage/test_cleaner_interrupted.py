import asyncio
import errno
from collections.abc import Callable
from threading import Event
from typing import ParamSpec, TypeVar

import pytest

from tests.storage.compacted_log import (
    Stage,
    append,
    leftovers,
    records_in,
    values_in,
)
from tidelog.config.topic import TopicSettings
from tidelog.protocol.compression import Codec
from tidelog.runtime.disk import OpenMode
from tidelog.runtime.memory_disk import MemoryDisk, MemoryFile
from tidelog.runtime.workers import InlineWorkers, ThreadWorkers
from tidelog.storage.log import Log
from tidelog.types import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")


class InterruptingWorkers(InlineWorkers):
    """Does something before the result of a piece of work is used, as it may happen while a worker is busy."""

    def __init__(self, name: str, event: Callable[[], None]) -> None:
        self._name = name
        self._event: Callable[[], None] | None = event

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result = work(*args, **kwargs)
        if work.__name__ == self._name and self._event is not None:
            event, self._event = self._event, None
            event()
        return result


@pytest.fixture
def stage() -> Stage:
    return Stage()


# ---- what happens meanwhile


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
        stage.logs_by_partition.clear()
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
    """Holds up the second opening of a sealed segment, when it is being rewritten, until the test lets it go on."""

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
                assert self.may_go_on.wait(timeout=60)
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
        # Only once the cancellation has arrived: by then the worker knows that it has to stop.
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, disk.may_go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(stop_in_the_middle())
    workers.close()
    assert not any(path.endswith(".log") for path in disk.renamed)
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
    assert "marked log as uncleanable" in caplog.text
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

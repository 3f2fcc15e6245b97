"""Recovery after a power cut that took the leader epoch checkpoint: no CRC covers the leader epoch of a batch."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.storage.logs import all_records, append, loaded, new_log
from tidelog.config.topic import TopicSettings
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.leader_epochs import EpochEntry
from tidelog.storage.log import Log

CHECKPOINT = "/data/orders-0/leader-epoch-checkpoint"
JOURNAL = "/data/orders-0/leader-epoch-journal"
TORN = [b"", b"0\n1\n", b"0\n2\n5 0\n6 "]
EPOCH_POSITION = 12
TWO_BATCHES_EACH = TopicSettings(segment_bytes=300)


def log_with(disk: MemoryDisk, epochs: Sequence[int], settings: TopicSettings | None = None) -> Log:
    """A log with one batch of one record for each of these leader epochs."""
    log = new_log(disk, settings=settings)
    for number, epoch in enumerate(epochs):
        append(log, b"%d" % number + b"." * 50, leader_epoch=epoch)
    return log


def lose_checkpoint(disk: MemoryDisk, contents: bytes | None) -> None:
    """With the journal of later epochs."""
    disk.remove(JOURNAL)
    disk.remove(CHECKPOINT)
    if contents is not None:
        disk.write_file_atomically(CHECKPOINT, contents)


def set_epoch(disk: MemoryDisk, log: Log, offset: int, epoch: int) -> None:
    """As a flipped bit would: nothing else of the batch changes."""
    segment = next(segment for segment in reversed(log.segments) if segment.base_offset <= offset)
    path = f"{log.path}/{segment.base_offset:020}.log"
    position = next(place.position for place in segment.batch_places() if place.base_offset == offset)
    contents = bytearray(disk.read_file(path))
    contents[position + EPOCH_POSITION : position + EPOCH_POSITION + 4] = epoch.to_bytes(4, "big")
    disk.open(path, "create").append(bytes(contents))


@pytest.mark.parametrize("raised", [5 + 2**30, 7])
def test_an_epoch_raised_in_the_last_batch_is_not_believed(raised: int) -> None:
    """A log with a false last epoch would win an election (R42), or keep its broker from starting (R44)."""
    disk = MemoryDisk()
    log = log_with(disk, [5, 5, 5])
    set_epoch(disk, log, 2, raised)
    lose_checkpoint(disk, None)
    again = loaded(log)
    assert again.log_end_offset == 2
    assert again.leader_epochs.starts == (EpochEntry(5, 0),)


@pytest.mark.parametrize("flipped", [1, 4, 7, 5 + 2**30])
@pytest.mark.parametrize("offset", range(6))
@pytest.mark.parametrize("settings", [TopicSettings(), TWO_BATCHES_EACH], ids=["one-segment", "many-segments"])
def test_an_epoch_flipped_in_any_batch_is_not_believed(flipped: int, offset: int, settings: TopicSettings) -> None:
    disk = MemoryDisk()
    log = log_with(disk, [5, 5, 5, 6, 6, 6], settings)
    set_epoch(disk, log, offset, flipped)
    lose_checkpoint(disk, None)
    again = loaded(log)
    confirms_the_one_before = offset in (1, 4)
    assert again.log_end_offset == (offset - 1 if confirms_the_one_before else offset)
    assert all(epoch in (5, 6) for epoch, _ in again.leader_epochs.starts)


def test_the_only_batch_of_a_log_is_not_believed_without_a_checkpoint() -> None:
    disk = MemoryDisk()
    log = log_with(disk, [5])
    set_epoch(disk, log, 0, 5 + 2**20)
    lose_checkpoint(disk, None)
    assert loaded(log).log_end_offset == 0


@pytest.mark.parametrize("checkpoint", [None, *TORN, b"0\n0\n"])
@pytest.mark.parametrize("settings", [TopicSettings(), TWO_BATCHES_EACH], ids=["one-segment", "many-segments"])
def test_epochs_that_two_batches_have_are_believed(checkpoint: bytes | None, settings: TopicSettings) -> None:
    disk = MemoryDisk()
    log = log_with(disk, [3, 3, 5, 5, 5, 8, 8], settings)
    expected = all_records(log)
    lose_checkpoint(disk, checkpoint)
    again = loaded(log)
    assert all_records(again) == expected
    assert again.leader_epochs.starts == (EpochEntry(3, 0), EpochEntry(5, 2), EpochEntry(8, 5))


@pytest.mark.parametrize("settings", [TopicSettings(), TWO_BATCHES_EACH], ids=["one-segment", "many-segments"])
def test_epochs_of_synced_batches_are_believed(settings: TopicSettings) -> None:
    """No record that was synced may go because a checkpoint is missing."""
    disk = MemoryDisk()
    log = log_with(disk, [3, 4, 5, 6, 7], settings)
    asyncio.run(log.flush())
    append(log, b"not synced", leader_epoch=7)
    append(log, b"nor this", leader_epoch=8)
    expected = all_records(log)
    lose_checkpoint(disk, None)
    again = loaded(log, recovery_point=5)
    assert all_records(again) == expected
    assert [epoch for epoch, _ in again.leader_epochs.starts] == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("checkpoint", TORN)
def test_a_damaged_checkpoint_costs_no_record(checkpoint: bytes) -> None:
    """The log may have been flushed since the recovery point was last written: then all of it was synced."""
    disk = MemoryDisk()
    log = log_with(disk, [3, 4, 5, 6, 7])
    asyncio.run(log.flush())
    expected = all_records(log)
    lose_checkpoint(disk, checkpoint)
    again = loaded(log)
    assert all_records(again) == expected
    assert [epoch for epoch, _ in again.leader_epochs.starts] == [3, 4, 5, 6, 7]


def test_epochs_of_batches_that_no_other_batch_has_are_believed_if_the_checkpoint_has_them() -> None:
    """As after a process crash, where nothing is lost."""
    disk = MemoryDisk()
    log = log_with(disk, [3, 4, 5, 6, 7])
    expected = all_records(log)
    assert all_records(loaded(log)) == expected


@pytest.mark.parametrize(("flipped", "end_offset"), [(5 + 2**30, 1), (9, 1), (2, 6), (3, 6)])
def test_an_epoch_before_the_first_one_of_the_checkpoint_is_not_above_it(flipped: int, end_offset: int) -> None:
    """The log start was raised, and is lost in the crash. Later batches, which are intact, do not have that epoch."""
    disk = MemoryDisk()
    log = log_with(disk, [3, 3, 3, 4, 5, 5])
    log.raise_high_watermark(6)
    log.advance_log_start_offset(4)
    log.flusher.write_epochs()
    set_epoch(disk, log, 1, flipped)
    again = loaded(log)
    assert again.log_end_offset == end_offset
    assert again.leader_epochs.latest_epoch == (5 if end_offset == 6 else 3)

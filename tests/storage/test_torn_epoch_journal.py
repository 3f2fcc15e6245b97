"""Power cuts that damage what was written of leader epochs without a sync, together with a flipped epoch of a batch."""

import asyncio

import pytest

from tests.storage.logs import all_records, append, loaded, new_log, offsets_of
from tests.storage.test_epochs_without_checkpoint import set_epoch
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.checkpoints import read_current_epochs
from tidelog.storage.leader_epochs import EpochEntry
from tidelog.storage.log import Log

DIRECTORY = "/data/orders-0"
SYNCED_END = 3
RAISED = [8, 7 + 2**20]


def log_of_two_epochs(disk: MemoryDisk) -> Log:
    """Three batches of epoch 5 are synced; epoch 6 and its only batch are not."""
    log = new_log(disk)
    for number in range(SYNCED_END):
        append(log, b"%d" % number, leader_epoch=5)
    asyncio.run(log.flush())
    append(log, b"last", leader_epoch=6)
    return log


def unsynced_epochs(disk: MemoryDisk) -> str:
    """Path of the file that names epochs and was not synced."""
    names = [entry.name for entry in disk.list_directory(DIRECTORY) if "epoch" in entry.name]
    (found,) = (name for name in names if disk.unsynced_bytes(f"{DIRECTORY}/{name}"))
    return f"{DIRECTORY}/{found}"


def replace(disk: MemoryDisk, path: str, contents: bytes) -> None:
    disk.open(path, "create").append(contents)


def torn_sizes() -> range:
    disk = MemoryDisk()
    log_of_two_epochs(disk)
    return range(len(disk.read_file(unsynced_epochs(disk))))


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("kept_bytes", torn_sizes())
def test_an_epoch_raised_in_the_last_batch_is_not_believed_where_its_epoch_is_torn(
    raised: int, kept_bytes: int
) -> None:
    """A log with a false last epoch would win an election (R42), or keep its broker from starting (R44)."""
    disk = MemoryDisk()
    log = log_of_two_epochs(disk)
    set_epoch(disk, log, SYNCED_END, raised)
    path = unsynced_epochs(disk)
    replace(disk, path, disk.read_file(path)[:kept_bytes])
    again = loaded(log)
    assert again.leader_epochs.starts == (EpochEntry(5, 0),)
    assert offsets_of(all_records(again)) == [0, 1, 2]


@pytest.mark.parametrize("bit", range(8))
def test_a_bit_flipped_in_unsynced_epochs_costs_no_synced_record(bit: int) -> None:
    """Nor does it leave a false epoch. The recovery point, which is written now and then, is still 0."""
    for position in torn_sizes():
        disk = MemoryDisk()
        log = log_of_two_epochs(disk)
        path = unsynced_epochs(disk)
        contents = bytearray(disk.read_file(path))
        contents[position] ^= 1 << bit
        replace(disk, path, bytes(contents))
        again = loaded(log)
        assert again.leader_epochs.starts in ((EpochEntry(5, 0),), (EpochEntry(5, 0), EpochEntry(6, SYNCED_END)))
        assert again.log_end_offset >= SYNCED_END


@pytest.mark.parametrize("raised", RAISED)
def test_an_epoch_raised_in_the_first_batch_is_not_believed_after_an_empty_checkpoint(raised: int) -> None:
    """A flush wrote down that the log had no epochs: no batch was flushed since."""
    disk = MemoryDisk()
    log = log_of_two_epochs(disk)
    log.truncate_fully_and_start_at(10)
    asyncio.run(log.flush())
    append(log, b"again", leader_epoch=7)
    set_epoch(disk, log, 10, raised)
    replace(disk, unsynced_epochs(disk), b"")
    again = loaded(log, recovery_point=10, log_start_offset=10)
    assert (again.log_start_offset, again.log_end_offset) == (10, 10)
    assert again.leader_epochs.latest_epoch < 7


def test_the_synced_checkpoint_is_not_replaced_without_a_sync() -> None:
    disk = MemoryDisk()
    log_of_two_epochs(disk)
    assert disk.read_file(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n1\n5 0\n"
    assert disk.unsynced_bytes(f"{DIRECTORY}/leader-epoch-checkpoint") == 0
    assert read_current_epochs(disk, DIRECTORY) == [EpochEntry(5, 0), EpochEntry(6, SYNCED_END)]


def test_epochs_that_survived_the_process_are_synced_by_the_next_flush() -> None:
    disk = MemoryDisk()
    again = loaded(log_of_two_epochs(disk))
    asyncio.run(again.flush())
    disk.crash()
    last = loaded(again)
    assert last.leader_epochs.starts == (EpochEntry(5, 0), EpochEntry(6, SYNCED_END))
    assert offsets_of(all_records(last)) == [0, 1, 2, 3]


def test_a_journal_whose_removal_was_undone_says_nothing() -> None:
    disk = MemoryDisk()
    log = log_of_two_epochs(disk)
    path = unsynced_epochs(disk)
    journal = disk.read_file(path)
    log.truncate_to(SYNCED_END)
    append(log, b"other", leader_epoch=9)
    asyncio.run(log.flush())
    replace(disk, path, journal)
    again = loaded(log)
    assert again.leader_epochs.starts == (EpochEntry(5, 0), EpochEntry(9, SYNCED_END))
    assert again.log_end_offset == SYNCED_END + 1
    assert not disk.exists(path), "it could continue a later checkpoint"

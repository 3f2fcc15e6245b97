import pytest

from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.checkpoints import (
    CorruptCheckpoint,
    read_epochs,
    read_offsets,
    write_epochs,
    write_offsets,
)
from tidelog.storage.leader_epochs import EpochEntry
from tidelog.types import TopicPartition

OFFSETS = {TopicPartition("orders", 0): 17, TopicPartition("a-b.c_d", 12): 0}


def test_offsets_are_written_as_kafka_writes_them_and_read_back() -> None:
    disk = MemoryDisk()
    write_offsets(disk, "/file", OFFSETS)
    assert disk.read_file("/file") == b"0\n2\norders 0 17\na-b.c_d 12 0\n"
    assert read_offsets(disk, "/file") == OFFSETS


def test_epochs_are_written_as_kafka_writes_them_and_read_back() -> None:
    disk = MemoryDisk()
    starts = [EpochEntry(1, 0), EpochEntry(4, 120)]
    write_epochs(disk, "/file", starts)
    assert disk.read_file("/file") == b"0\n2\n1 0\n4 120\n"
    assert read_epochs(disk, "/file") == starts


def test_an_absent_file_is_an_empty_checkpoint() -> None:
    assert read_offsets(MemoryDisk(), "/file") == {}
    assert read_epochs(MemoryDisk(), "/file") == []


@pytest.mark.parametrize(
    "contents",
    [b"", b"0\n", b"1\n0\n", b"0\n2\norders 0 17\n", b"0\n0\norders 0 17\n", b"0\n1\norders 0\n", b"0\n1\norders 0 x\n",
     b"0\n1\norders x 1\n", b"0\nmany\n", b"\x00\x00\x00\x00", b"\xff\xff"],
)  # fmt: skip
def test_a_damaged_checkpoint_is_distinguished_from_a_good_one(contents: bytes) -> None:
    disk = MemoryDisk()
    disk.write_file_atomically("/file", contents)
    with pytest.raises(CorruptCheckpoint, match="/file"):
        read_offsets(disk, "/file")

"""Tidying up a partition's directory: what is removed is removed in one order, so that a simulation can repeat it."""

from tests.storage.compacted_log import Stage
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.partition_files import tidy_and_list


def test_leftovers_are_removed_in_the_order_of_their_names() -> None:
    directory = Stage().directory
    disk = directory.context.disk
    assert isinstance(disk, MemoryDisk)
    disk.make_directory("/logs/topic-0")
    paths = [f"/logs/topic-0/{number:020d}.log.deleted" for number in (7, 3, 9, 1, 5, 8, 2)]
    for path in paths:
        disk.write_file_atomically(path, b"")
    removed: list[str] = []
    disk.on_changed.append(lambda what, path, data: removed.append(path))
    tidy_and_list(directory, "/logs/topic-0")
    assert removed == sorted(paths)

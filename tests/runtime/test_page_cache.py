"""Reads that would wait for the device, detected by the real page cache."""

import os
from pathlib import Path

import pytest

from tidelog.runtime.disk import SystemDisk

SIZE_BYTES = 8 * 1024 * 1024

ATTEMPTS = 200
"""Pages that the kernel is busy with stay for now."""


def evict(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def test_a_file_is_cached_after_writing_not_after_eviction_and_again_after_reading(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(SIZE_BYTES))
    file = SystemDisk().open(str(path), "read")
    assert file.is_cached(0, SIZE_BYTES)
    for _ in range(ATTEMPTS):
        evict(path)
        if not file.is_cached(0, SIZE_BYTES):
            break
    else:
        pytest.skip("this file system keeps its files in memory")
    assert file.read_cached(0, SIZE_BYTES) is None
    file.read(0, SIZE_BYTES)
    assert file.is_cached(0, SIZE_BYTES)
    assert file.read_cached(0, SIZE_BYTES) == bytes(SIZE_BYTES)

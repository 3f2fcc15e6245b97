"""Disk wrapper for logs: when descriptors run out, releases an idle segment file and retries once."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tidelog.runtime.disk import DirectoryEntry, Disk, File, Lock, OpenMode
from tidelog.storage.disk_errors import SHORT_OF_DESCRIPTORS
from tidelog.storage.segment_cache import SegmentCache

P = ParamSpec("P")
T = TypeVar("T")


class DescriptorReclaimingDisk:
    """Segment files stay open for the next reader. Connections may need their descriptors."""

    def __init__(self, disk: Disk, cache: SegmentCache) -> None:
        self.disk = disk
        self._cache = cache

    def _with_retry(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except OSError as error:
            if error.errno not in SHORT_OF_DESCRIPTORS or not self._cache.release_idle_file():
                raise
            return call(*args, **kwargs)

    # ---- operations that need a descriptor

    def open(self, path: str, mode: OpenMode) -> File:
        return self._with_retry(self.disk.open, path, mode)

    def read_file(self, path: str) -> bytes:
        return self._with_retry(self.disk.read_file, path)

    def write_file_atomically(self, path: str, data: bytes) -> None:
        self._with_retry(self.disk.write_file_atomically, path, data)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        return self._with_retry(self.disk.list_directory, path)

    def remove_tree(self, path: str) -> None:
        self._with_retry(self.disk.remove_tree, path)

    def sync_directory(self, path: str) -> None:
        self._with_retry(self.disk.sync_directory, path)

    def lock(self, path: str) -> Lock:
        return self._with_retry(self.disk.lock, path)

    # ---- operations that need none

    def exists(self, path: str) -> bool:
        return self.disk.exists(path)

    def size(self, path: str) -> int:
        return self.disk.size(path)

    def identity(self, path: str) -> object:
        return self.disk.identity(path)

    def make_directory(self, path: str) -> None:
        self.disk.make_directory(path)

    def rename(self, old: str, new: str) -> None:
        self.disk.rename(old, new)

    def remove(self, path: str) -> None:
        self.disk.remove(path)

    def sync_everything(self) -> None:
        self.disk.sync_everything()

    def open_files_limit(self) -> int:
        return self.disk.open_files_limit()

    def space(self, path: str) -> tuple[int, int]:
        return self.disk.space(path)

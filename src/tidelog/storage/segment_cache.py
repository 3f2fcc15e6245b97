"""Shared cache of open segment files and loaded index entries, with a limit for each."""

from collections import OrderedDict
from threading import Lock
from typing import Protocol

DEFAULT_OPEN_FILES = 500
DEFAULT_INDEX_BYTES = 16 * 1024 * 1024


class HoldsFile(Protocol):
    is_recently_used: bool

    def release_file(self) -> None: ...


class HoldsEntries(Protocol):
    def release(self) -> None: ...


class SegmentCache:
    """Tracks the holders and makes the least recently used one release its file or entries.

    The lock is for readers in worker threads, which open files too. The hot path does not use the cache.
    """

    def __init__(self, open_files: int = DEFAULT_OPEN_FILES, index_bytes: int = DEFAULT_INDEX_BYTES) -> None:
        self._lock = Lock()
        self._open_files_limit = open_files
        self._index_bytes_limit = index_bytes
        self._files: OrderedDict[HoldsFile, None] = OrderedDict()
        self._indexes: OrderedDict[HoldsEntries, int] = OrderedDict()
        self._index_bytes = 0

    def opened(self, holder: HoldsFile) -> None:
        with self._lock:
            self._files[holder] = None
            if len(self._files) > self._open_files_limit and not self._release_idle_file():
                holder, _nothing = self._files.popitem(last=False)
                holder.release_file()

    def forget(self, holder: HoldsFile) -> None:
        with self._lock:
            self._files.pop(holder, None)

    def release_idle_file(self) -> bool:
        """Release one idle file, because the process has run out of descriptors. Whether there was one.

        Only one, and only an idle one: waiting connections would take the descriptors at once, and logs in use would
        lose their files.
        """
        with self._lock:
            return self._release_idle_file()

    def loaded(self, holder: HoldsEntries, size_bytes: int) -> None:
        with self._lock:
            self._index_bytes += size_bytes - self._indexes.pop(holder, 0)
            self._indexes[holder] = size_bytes
            while self._index_bytes > self._index_bytes_limit and len(self._indexes) > 1:
                oldest, released_bytes = self._indexes.popitem(last=False)
                self._index_bytes -= released_bytes
                oldest.release()

    def dropped(self, holder: HoldsEntries) -> None:
        with self._lock:
            self._index_bytes -= self._indexes.pop(holder, 0)

    def _release_idle_file(self) -> bool:
        """Second-chance eviction: a file used since the last pass moves to the end of the queue."""
        for _ in range(len(self._files)):
            holder, _nothing = self._files.popitem(last=False)
            if not holder.is_recently_used:
                holder.release_file()
                return True
            holder.is_recently_used = False
            self._files[holder] = None
        return False

"""What the segments of all logs share: a bounded number of open files and of index bytes in memory."""

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
    """Remembers who holds what and tells the longest unused to let go.

    Readers in worker threads open files too, hence the lock; nothing is looked up here on the hot path.
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
        """The process has run out of descriptors: let go of one that nobody has used lately. Whether there was one.

        Not of more, and not of those in use: connections that wait to be accepted would take them at once, and logs
        that could be written would lose their files.
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
        """Second chance: who was used since the last look moves to the end of the queue."""
        for _ in range(len(self._files)):
            holder, _nothing = self._files.popitem(last=False)
            if not holder.is_recently_used:
                holder.release_file()
                return True
            holder.is_recently_used = False
            self._files[holder] = None
        return False

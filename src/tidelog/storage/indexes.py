"""Offset index and time index of a segment, in Kafka's file format.

New entries stay in memory until the segment is sealed, flushed or closed. Entries in the file are read only when a
search needs them.
"""

import struct
from typing import NamedTuple

from tidelog.runtime.disk import Disk, File
from tidelog.storage.disk_errors import append_whole
from tidelog.storage.segment_cache import SegmentCache
from tidelog.types import Buffer

OFFSET_ENTRY = struct.Struct(">ii")
"""Relative last offset of a batch, and the position where the batch starts."""

TIME_ENTRY = struct.Struct(">qi")
"""Largest timestamp so far, and the relative last offset of its batch."""


class IndexTruncation(NamedTuple):
    """A prepared truncation: number of kept entries, the last of them, and the file if it must be truncated."""

    kept: int
    last: tuple[int, int] | None
    file: File | None


class Index:
    """One index file. Entries are sorted by their first field, for binary search."""

    __slots__ = ("_cache", "_disk", "_entry", "_last", "_parts", "_stored_bytes", "has_file", "is_synced", "path")

    def __init__(
        self, disk: Disk, cache: SegmentCache, path: str, entry: struct.Struct, stored_bytes: int | None = None
    ) -> None:
        """`stored_bytes` is the file size, None without a file."""
        self.path = path
        self._disk = disk
        self._cache = cache
        self._entry = entry
        # One tuple, so that a search in another thread never sees an entry twice during a write.
        self._parts: tuple[int, bytearray] = ((stored_bytes or 0) // entry.size, bytearray())
        self.has_file = stored_bytes is not None
        self.is_synced = True
        self._stored_bytes: bytes | None = None
        self._last: tuple[int, int] | None = None
        """The last entry, cached by appends so that they do not read the file."""

    @property
    def count(self) -> int:
        stored, fresh = self._parts
        return stored + len(fresh) // self._entry.size

    def append(self, key: int, value: int) -> None:
        self._parts[1].extend(self._entry.pack(key, value))
        self._last = key, value

    def remember_last(self) -> None:
        """Cache the last entry, so that `last` needs no file on the event loop."""
        self._last = self.last()

    def last(self) -> tuple[int, int] | None:
        remembered = self._last
        if remembered is not None:
            return remembered
        stored, fresh = self._parts
        if fresh or not stored or self._stored_bytes is not None:
            return self.at(self.count - 1)
        file = self._disk.open(self.path, "read")
        entry = self._unpack(file.read((stored - 1) * self._entry.size, self._entry.size), 0)
        file.close()
        return entry

    def at(self, number: int) -> tuple[int, int] | None:
        stored, fresh = self._parts
        if number < 0:
            return None
        if number >= stored:
            return self._unpack(fresh, number - stored)
        return self._unpack(self._load(stored), number)

    def find(self, key: int, field: int = 0) -> tuple[int, int] | None:
        """The last entry with `field` <= `key`. Both fields are sorted."""
        stored, fresh = self._parts
        if fresh and self._entry.unpack_from(fresh)[field] <= key:
            return self._search(fresh, len(fresh) // self._entry.size, key, field)
        return self._search(self._load(stored), stored, key, field) if stored else None

    def find_from(self, key: int, field: int = 0) -> tuple[int, int] | None:
        """The first entry with `field` >= `key`."""
        return self.at(self._number_from(key, field))

    def _number_from(self, key: int, field: int) -> int:
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            entry = self.at(middle)
            if entry is not None and entry[field] < key:
                low = middle + 1
            else:
                high = middle
        return low

    def is_in_memory(self, key: int, field: int = 0) -> bool:
        """Whether `find` needs no file access."""
        stored, fresh = self._parts
        if stored == 0 or self._stored_bytes is not None:
            return True
        return bool(fresh) and self._entry.unpack_from(fresh)[field] <= key

    def write(self) -> None:
        """Write new entries to the file, without a sync."""
        stored, fresh = self._parts
        if not fresh and self.has_file:
            return
        file = self._disk.open(self.path, "append")
        append_whole(file, fresh, file.size())
        file.close()
        self.has_file = True
        self.is_synced = False
        self._parts = (stored + len(fresh) // self._entry.size, bytearray())
        self.release()

    def sync(self) -> None:
        self.is_synced = True  # first, so that entries written meanwhile count as unsynced
        if self.has_file:
            try:
                file = self._disk.open(self.path, "read")
                file.sync()
                file.close()
            except BaseException:
                self.is_synced = False
                raise

    def prepare_truncation(self, limit: int, field: int = 0) -> IndexTruncation | None:
        """Prepare to remove the entries with `field` >= `limit`; None if there are none.

        Opens the file here, so that a shortage of descriptors is raised before anything has changed.
        """
        number = self._number_from(limit, field)
        if number >= self.count:
            return None
        is_in_file = number < self._parts[0]
        return IndexTruncation(
            number, self.at(number - 1), self._disk.open(self.path, "append") if is_in_file else None
        )

    def truncate(self, prepared: IndexTruncation) -> None:
        stored, fresh = self._parts
        if prepared.file is None:
            self._parts = (stored, fresh[: (prepared.kept - stored) * self._entry.size])
        else:
            prepared.file.truncate(prepared.kept * self._entry.size)
            prepared.file.close()
            self.is_synced = False
            self._parts = (prepared.kept, bytearray())
            self.release()
        self._last = prepared.last

    def drop_torn_entry(self) -> None:
        """Remove a partial entry that a crash left at the end of the file."""
        stored, _ = self._parts
        if self.has_file and self._disk.size(self.path) != stored * self._entry.size:
            file = self._disk.open(self.path, "update")
            file.truncate(stored * self._entry.size)
            file.close()

    def reset(self) -> None:
        """Discard all entries and the contents of the file, which may be preallocated or corrupt."""
        self._disk.remove(self.path)
        self.has_file = False
        self._parts = (0, bytearray())
        self._last = None
        self.release()

    def release(self) -> None:
        self._stored_bytes = None

    def _load(self, stored: int) -> bytes:
        contents = self._stored_bytes
        if contents is None or len(contents) < stored * self._entry.size:
            contents = self._disk.read_file(self.path)[: stored * self._entry.size]
            self._stored_bytes = contents
            self._cache.loaded(self, len(contents))
        return contents

    def _unpack(self, contents: Buffer, number: int) -> tuple[int, int] | None:
        place = number * self._entry.size
        if place + self._entry.size > len(contents):
            return None
        key, value = self._entry.unpack_from(contents, place)
        return key, value

    def _search(self, contents: Buffer, count: int, key: int, field: int) -> tuple[int, int] | None:
        unpack_from, size = self._entry.unpack_from, self._entry.size
        low, high = 0, min(count, len(contents) // size)
        while low < high:
            middle = (low + high) // 2
            if unpack_from(contents, middle * size)[field] <= key:
                low = middle + 1
            else:
                high = middle
        return self._unpack(contents, low - 1) if low else None

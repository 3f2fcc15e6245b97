"""Offset index and time index of a segment, in Kafka's file format.

New entries stay in memory until there are enough of them for a slice, or until the segment is sealed, flushed or
closed. Entries in the file are read only when a search needs them, and never more than a window of the file. So the
memory of an index does not grow with its segment.
"""

import struct
from typing import NamedTuple

from tidelog.runtime.disk import Disk, File
from tidelog.storage.disk_errors import append_whole, is_transient
from tidelog.storage.segment_cache import SegmentCache
from tidelog.types import Buffer

OFFSET_ENTRY = struct.Struct(">ii")
"""Relative last offset of a batch, and the position where the batch starts."""

TIME_ENTRY = struct.Struct(">qi")
"""Largest timestamp so far, and the relative last offset of its batch."""


SLICE_BYTES = 2048
"""Size of the slices in which new entries are written."""

MOST_NEW_BYTES = 2 * SLICE_BYTES
"""Size of the new entries at which a slice is due. Half of them stay: most reads are near the end of the log."""

WINDOW_BYTES = 64 * 1024
"""Size of the part of a file that a search loads: the offset entries of 32 MiB of log or more."""


class _Window(NamedTuple):
    """Loaded entries of the file, from entry number `first` on."""

    generation: int
    first: int
    end: int
    contents: bytes


class IndexTruncation(NamedTuple):
    """A prepared truncation: number of kept entries, the last of them, and the file if it must be truncated."""

    kept: int
    last: tuple[int, int] | None
    file: File | None


class Index:
    """One index file. Entries are sorted by their first field, for binary search."""

    __slots__ = (
        "_cache",
        "_disk",
        "_entry",
        "_generation",
        "_last",
        "_parts",
        "_window",
        "has_file",
        "is_slice_due",
        "is_synced",
        "path",
    )

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
        self.is_slice_due = False
        self._window: _Window | None = None
        self._generation = 0
        """Counts the truncations: a window that a worker has read before one must not be used after it."""
        self._last: tuple[int, int] | None = None
        """The last entry, cached by appends so that they do not read the file."""

    @property
    def count(self) -> int:
        stored, fresh = self._parts
        return stored + len(fresh) // self._entry.size

    def append(self, key: int, value: int) -> None:
        fresh = self._parts[1]
        fresh += self._entry.pack(key, value)
        self._last = key, value
        if len(fresh) >= MOST_NEW_BYTES:
            self.is_slice_due = True

    @property
    def memory_bytes(self) -> int:
        """Size of the entries in memory."""
        window = self._window
        return len(self._parts[1]) + (len(window.contents) if window is not None else 0)

    def remember_last(self) -> None:
        """Cache the last entry, so that `last` needs no file on the event loop."""
        if self._last is None:
            self._last = self.last()

    def write_slice(self) -> None:
        """Write the oldest of the new entries. A transient error changes nothing: the slice stays due."""
        stored, fresh = self._parts
        try:
            self._write(stored, fresh, min(SLICE_BYTES, len(fresh)) // self._entry.size * self._entry.size)
        except OSError as error:
            if not is_transient(error):
                raise

    def last(self) -> tuple[int, int] | None:
        remembered = self._last
        return remembered if remembered is not None else self.at(self.count - 1)

    def at(self, number: int) -> tuple[int, int] | None:
        stored, fresh = self._parts
        if number < 0:
            return None
        if number >= stored:
            return self._unpack(fresh, number - stored)
        window = self._window
        if window is not None and window.generation == self._generation and window.first <= number < window.end:
            return self._unpack(window.contents, number - window.first)
        file = self._disk.open(self.path, "read")
        entry = self._unpack(file.read(number * self._entry.size, self._entry.size), 0)
        file.close()
        return entry

    def find(self, key: int, field: int = 0) -> tuple[int, int] | None:
        """The last entry with `field` <= `key`. Both fields are sorted."""
        stored, fresh = self._parts
        if fresh and self._entry.unpack_from(fresh)[field] <= key:
            return self._unpack(fresh, self._count_up_to(fresh, key, field) - 1)
        if not stored:
            return None
        window = self._window_for(stored, key, field) or self._load(stored, key, field)
        return self._unpack(window.contents, self._count_up_to(window.contents, key, field) - 1)

    def find_from(self, key: int, field: int = 0) -> tuple[int, int] | None:
        """The first entry with `field` >= `key`."""
        return self.at(self._number_from(key, field))

    def _number_from(self, key: int, field: int) -> int:
        """Number of entries with `field` < `key`."""
        stored, fresh = self._parts
        if fresh and self._entry.unpack_from(fresh)[field] < key:
            return stored + self._count_up_to(fresh, key - 1, field)
        if not stored:
            return 0
        window = self._window_for(stored, key - 1, field) or self._load(stored, key - 1, field)
        return window.first + self._count_up_to(window.contents, key - 1, field)

    def is_in_memory(self, key: int, field: int = 0) -> bool:
        """Whether `find` of the key, and `find_from` of the next one, need no file access."""
        stored, fresh = self._parts
        if not stored or (fresh and self._entry.unpack_from(fresh)[field] <= key):
            return True
        return self._window_for(stored, key, field) is not None

    def write(self) -> None:
        """Write new entries to the file, without a sync."""
        stored, fresh = self._parts
        if fresh or not self.has_file:
            self._write(stored, fresh, len(fresh))

    def _write(self, stored: int, fresh: bytearray, size_bytes: int) -> None:
        file = self._disk.open(self.path, "append")
        append_whole(file, fresh[:size_bytes], stored * self._entry.size)
        file.close()
        self.has_file = True
        self.is_synced = False
        self._parts = (stored + size_bytes // self._entry.size, fresh[size_bytes:])
        self.is_slice_due = False

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
            self._generation += 1
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
        self._generation += 1
        self.release()

    def release(self) -> None:
        self._window = None

    def _window_for(self, stored: int, key: int, field: int) -> _Window | None:
        """The loaded window if it has the last entry with `field` <= `key`, or if no entry in the file is such."""
        window = self._window
        if window is None or window.generation != self._generation:
            return None
        unpack_from, contents = self._entry.unpack_from, window.contents
        if unpack_from(contents)[field] > key:
            return window if window.first == 0 else None
        if (
            window.end >= stored
            or unpack_from(contents, (window.end - window.first - 1) * self._entry.size)[field] > key
        ):
            return window
        return None

    def _load(self, stored: int, key: int, field: int) -> _Window:
        """Read the window with the last entry with `field` <= `key`, and the entries that follow it."""
        generation, size = self._generation, self._entry.size
        most = WINDOW_BYTES // size
        file = self._disk.open(self.path, "read")
        low, high = 0, stored  # `field` <= `key` before low, and > `key` from high on
        while high - low > most - 2:  # the window begins before low and has high, if there is such an entry
            middle = (low + high) // 2
            probed = self._unpack(file.read(middle * size, size), 0)
            if probed is not None and probed[field] <= key:
                low = middle + 1
            else:
                high = middle
        first = max(low - 1, 0)
        contents = file.read(first * size, min(most, stored - first) * size)
        file.close()
        window = _Window(generation, first, first + len(contents) // size, contents)
        if contents:
            self._window = window
            self._cache.loaded(self, len(contents))
        return window

    def _unpack(self, contents: Buffer, number: int) -> tuple[int, int] | None:
        place = number * self._entry.size
        if number < 0 or place + self._entry.size > len(contents):
            return None
        key, value = self._entry.unpack_from(contents, place)
        return key, value

    def _count_up_to(self, contents: Buffer, key: int, field: int) -> int:
        """Number of entries with `field` <= `key`."""
        unpack_from, size = self._entry.unpack_from, self._entry.size
        low, high = 0, len(contents) // size
        while low < high:
            middle = (low + high) // 2
            if unpack_from(contents, middle * size)[field] <= key:
                low = middle + 1
            else:
                high = middle
        return low

"""The sparse index files of a segment: offset to position, and timestamp to offset, byte for byte Kafka's.

Entries are born in memory and reach the file when the segment is sealed, flushed or closed; what is in the
file is read back only when a search needs it.
"""

import struct
from typing import NamedTuple

from tidelog.runtime.disk import Disk, File
from tidelog.storage.disk_errors import append_whole
from tidelog.storage.segment_cache import SegmentCache
from tidelog.types import Buffer

OFFSET_ENTRY = struct.Struct(">ii")
"""Last offset of a batch relative to the segment's base, and the position where that batch starts."""

TIME_ENTRY = struct.Struct(">qi")
"""Largest timestamp so far, and the relative last offset of the batch that holds it."""


class IndexCut(NamedTuple):
    """What a cut needs: how many entries stay, the last of them, and the file if it has to be cut."""

    kept: int
    last: tuple[int, int] | None
    file: File | None


class Index:
    """One index file. Its entries grow in their first field, so that they can be searched by halving."""

    __slots__ = ("_cache", "_disk", "_entry", "_last", "_parts", "_stored_bytes", "has_file", "is_synced", "path")

    def __init__(
        self, disk: Disk, cache: SegmentCache, path: str, entry: struct.Struct, stored_bytes: int | None = None
    ) -> None:
        """`stored_bytes` is the size of the file, None if there is no file yet."""
        self.path = path
        self._disk = disk
        self._cache = cache
        self._entry = entry
        # One tuple, so that a searching thread never sees an entry twice while the fresh ones go to the file.
        self._parts: tuple[int, bytearray] = ((stored_bytes or 0) // entry.size, bytearray())
        self.has_file = stored_bytes is not None
        self.is_synced = True
        self._stored_bytes: bytes | None = None
        self._last: tuple[int, int] | None = None
        """The last entry, once whoever appends has asked for it: it is not to need the file again."""

    @property
    def count(self) -> int:
        stored, fresh = self._parts
        return stored + len(fresh) // self._entry.size

    def append(self, key: int, value: int) -> None:
        self._parts[1].extend(self._entry.pack(key, value))
        self._last = key, value

    def remember_last(self) -> None:
        """From now on `last` needs no file. For whoever appends, on the event loop."""
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
        """The last entry whose `field` is not above `key`. Both fields grow from entry to entry."""
        stored, fresh = self._parts
        if fresh and self._entry.unpack_from(fresh)[field] <= key:
            return self._search(fresh, len(fresh) // self._entry.size, key, field)
        return self._search(self._load(stored), stored, key, field) if stored else None

    def find_from(self, key: int, field: int = 0) -> tuple[int, int] | None:
        """The first entry whose `field` is not below `key`."""
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
        """Whether `find` would not touch the file."""
        stored, fresh = self._parts
        if stored == 0 or self._stored_bytes is not None:
            return True
        return bool(fresh) and self._entry.unpack_from(fresh)[field] <= key

    def write(self) -> None:
        """Bring the fresh entries into the file; it is not synced yet."""
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

    def prepare_cut(self, limit: int, field: int = 0) -> IndexCut | None:
        """For `cut`, which forgets the entries whose `field` is at or above `limit`; None if there are none.

        What may lack a descriptor is done here, while nothing has changed yet.
        """
        number = self._number_from(limit, field)
        if number >= self.count:
            return None
        is_in_file = number < self._parts[0]
        return IndexCut(number, self.at(number - 1), self._disk.open(self.path, "append") if is_in_file else None)

    def cut(self, prepared: IndexCut) -> None:
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
        """A crash may leave a part of an entry at the end of the file."""
        stored, _ = self._parts
        if self.has_file and self._disk.size(self.path) != stored * self._entry.size:
            file = self._disk.open(self.path, "update")
            file.truncate(stored * self._entry.size)
            file.close()

    def reset(self) -> None:
        """Start again with an empty index, whatever the file holds (it may be preallocated or damaged)."""
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

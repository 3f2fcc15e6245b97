"""Transaction index of a segment: aborted transactions whose marker is in the segment.

New entries stay in memory until the segment is sealed, flushed or closed: an append must not
fail for lack of a descriptor after its batch was written.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.runtime.disk import Disk, File
from tidelog.storage.disk_errors import append_whole
from tidelog.storage.segment_cache import SegmentCache

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the abort marker."""
    last_stable_offset: int
    """Last stable offset after the marker. A read that ends below it needs no later entry."""


class TransactionIndexTruncation(NamedTuple):
    """A prepared truncation: the file, if it must be truncated, and the kept entries."""

    file: File | None
    stored_bytes: int
    fresh: bytes


class TransactionIndex:
    """Entries of one segment, sorted by marker offset. Without entries there is no file."""

    __slots__ = ("_cache", "_contents", "_disk", "_parts", "has_file", "path")

    def __init__(self, disk: Disk, cache: SegmentCache, path: str, *, stored_bytes: int | None) -> None:
        """`stored_bytes` is the file size, None without a file. A partial entry at the end is ignored."""
        self._disk = disk
        self._cache = cache
        self.path = path
        self.has_file = stored_bytes is not None
        # One tuple, so that a reader in another thread never sees an entry twice during a write.
        self._parts: tuple[int, bytes] = ((stored_bytes or 0) // ENTRY.size * ENTRY.size, b"")
        self._contents: bytes | None = None

    def entries(self, first_offset: int = 0) -> Iterator[AbortedTransaction]:
        """Entries with a marker at `first_offset` or later."""
        contents = self._all()
        for place in range(_place_of(contents, first_offset), len(contents), ENTRY.size):
            yield AbortedTransaction(*ENTRY.unpack_from(contents, place)[1:])

    def append(self, transaction: AbortedTransaction) -> None:
        stored_bytes, fresh = self._parts
        self._parts = (stored_bytes, fresh + ENTRY.pack(VERSION, *transaction))

    def write(self) -> None:
        """Write new entries to the file, without a sync."""
        stored_bytes, fresh = self._parts
        if not fresh:
            return
        file = self._disk.open(self.path, "append")
        append_whole(file, fresh, file.size())
        file.close()
        self.has_file = True
        self._parts = (stored_bytes + len(fresh), b"")
        self.release()

    def sync(self) -> None:
        if self.has_file:
            file = self._disk.open(self.path, "read")
            file.sync()
            file.close()

    def replace(self, transactions: list[AbortedTransaction]) -> None:
        self._disk.remove(self.path)
        self.has_file = False
        self.release()
        self._parts = (0, b"".join(ENTRY.pack(VERSION, *transaction) for transaction in transactions))
        self.write()

    def prepare_truncation(self, end_offset: int) -> TransactionIndexTruncation | None:
        """Prepare to remove the entries with a marker at `end_offset` or later; None if there are none."""
        stored_bytes, fresh = self._parts
        contents = self._all()
        kept_bytes = _place_of(contents, end_offset)
        if kept_bytes == len(contents):
            return None
        file = self._disk.open(self.path, "append") if kept_bytes < stored_bytes else None
        return TransactionIndexTruncation(
            file, min(kept_bytes, stored_bytes), fresh[: max(kept_bytes - stored_bytes, 0)]
        )

    def truncate(self, prepared: TransactionIndexTruncation) -> None:
        if prepared.file is not None:
            prepared.file.truncate(prepared.stored_bytes)
            prepared.file.close()
            if not prepared.stored_bytes:
                self._disk.remove(self.path)
                self.has_file = False
        self._parts = (prepared.stored_bytes, prepared.fresh)
        self.release()

    def release(self) -> None:
        self._contents = None

    def release_resources(self) -> None:
        self.release()
        self._cache.dropped(self)

    def _all(self) -> bytes:
        stored_bytes, fresh = self._parts
        return self._load(stored_bytes) + fresh if stored_bytes else fresh

    def _load(self, stored_bytes: int) -> bytes:
        contents = self._contents
        if contents is None or len(contents) < stored_bytes:
            contents = self._contents = self._disk.read_file(self.path)[:stored_bytes]
            self._cache.loaded(self, len(contents))
        return contents


def _place_of(contents: bytes, first_offset: int) -> int:
    """Index of the first entry with a marker at `first_offset` or later."""
    count = len(contents) // ENTRY.size
    return ENTRY.size * bisect_left(range(count), first_offset, key=lambda number: _last_offset(contents, number))


def _last_offset(contents: bytes, number: int) -> int:
    last_offset: int = ENTRY.unpack_from(contents, number * ENTRY.size)[3]
    return last_offset

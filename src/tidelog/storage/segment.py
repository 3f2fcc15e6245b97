"""Log segment: data file and indexes, opened and loaded on first use."""

import errno
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.protocol.record_batch import HEADER, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, BatchHeader
from tidelog.runtime.disk import Disk, File
from tidelog.storage.disk_errors import append_whole
from tidelog.storage.indexes import OFFSET_ENTRY, TIME_ENTRY, Index, IndexTruncation
from tidelog.storage.segment_cache import SegmentCache
from tidelog.storage.transaction_index import TransactionIndex, TransactionIndexTruncation
from tidelog.types import NO_TIMESTAMP, Buffer

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

MAX_RELATIVE_OFFSET = 2**31 - 1
NEVER: Final = 2**63 - 1
NOT_LOADED: Final = -2
"""Lower than every timestamp: the first append then loads the real value from the file."""

LOOK_AHEAD_BYTES = 8 * 1024
"""Read size of a search from an index entry to a batch. There is an index entry every 4 KiB."""

SCAN_BYTES = 1024 * 1024

_BATCH_EXTENT = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta: enough to iterate over batches."""


class NotCached(Exception):
    """The data is not in memory: repeat the call in a worker, which may wait for the disk."""


class BatchPlace(NamedTuple):
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


class SegmentTruncation(NamedTuple):
    """A prepared truncation of a segment. All files are open before anything changes."""

    position: int
    file: File | None
    """None if no batch is removed."""
    offset_index: IndexTruncation | None
    time_index: IndexTruncation | None
    transaction_index: TransactionIndexTruncation | None
    max_timestamp: int
    offset_of_max_timestamp: int


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


class IndexSizes(NamedTuple):
    """Sizes of the index files; None if a file is missing."""

    offset: int | None = None
    time: int | None = None
    transaction: int | None = None


NO_INDEXES: Final = IndexSizes()


class Segment:
    """Consecutive batches in one file. Appends go to the last segment of a log."""

    __slots__ = (
        "_cache",
        "_disk",
        "_extra_suffix",
        "_file",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "directory",
        "has_unsynced_truncation",
        "is_recently_used",
        "last_possible_offset",
        "max_timestamp",
        "modified_ms",
        "offset_index",
        "offset_of_max_timestamp",
        "roll_after_clock_ms",
        "roll_after_timestamp",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        disk: Disk,
        cache: SegmentCache,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        size_bytes: int = 0,
        index_sizes: IndexSizes = NO_INDEXES,
        extra_suffix: str = "",
    ) -> None:
        self._disk = disk
        self._cache = cache
        self._extra_suffix = extra_suffix
        self._file: File | None = None
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = now_ms
        self.modified_ms = now_ms
        self.is_recently_used = False
        self.has_unsynced_truncation = False
        """This segment was truncated, or later ones were removed."""
        self.bytes_since_index_entry = 0
        self.max_timestamp = NOT_LOADED if size_bytes else NO_TIMESTAMP
        self.offset_of_max_timestamp = -1
        self.last_possible_offset = base_offset + MAX_RELATIVE_OFFSET
        self.roll_after_timestamp = NOT_LOADED
        self.roll_after_clock_ms = NEVER
        self.offset_index = Index(disk, cache, self.path(OFFSET_INDEX_SUFFIX), OFFSET_ENTRY, index_sizes.offset)
        self.time_index = Index(disk, cache, self.path(TIME_INDEX_SUFFIX), TIME_ENTRY, index_sizes.time)
        self.transaction_index = TransactionIndex(
            disk, cache, self.path(TRANSACTION_INDEX_SUFFIX), stored_bytes=index_sizes.transaction
        )

    @classmethod
    def create(
        cls,
        disk: Disk,
        cache: SegmentCache,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        extra_suffix: str = "",
    ) -> "Segment":
        """A new, empty segment. Existing files with its names are emptied."""
        segment = cls(disk, cache, directory, base_offset, now_ms=now_ms, extra_suffix=extra_suffix)
        for suffix in SEGMENT_SUFFIXES[1:]:
            disk.remove(segment.path(suffix))
        disk.open(segment.path(LOG_SUFFIX), "create").close()
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG_SUFFIX)!r}, size_bytes={self.size_bytes})"

    def path(self, suffix: str) -> str:
        return segment_path(self.directory, self.base_offset, suffix) + self._extra_suffix

    # ---- data file

    @property
    def file(self) -> File:
        self.is_recently_used = True
        return self._file or self._open_file()

    def _open_file(self) -> File:
        file = self._file = self._disk.open(self.path(LOG_SUFFIX), "update")
        self._cache.opened(self)
        return file

    def is_in(self, file: File) -> bool:
        return self._file is file

    def release_file(self) -> None:
        """Drop the reference. The file closes when the last reader releases its slice."""
        self._file = None

    # ---- append

    def append(
        self, data: Buffer, size_bytes: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        if self.bytes_since_index_entry > index_interval_bytes:
            # Before the write of the batch: after it nothing may need another file.
            if self.offset_index.is_slice_due:
                self.offset_index.write_slice()
            if self.time_index.is_slice_due:
                self.time_index.write_slice()
            self.time_index.remember_last()
        append_whole(self._file or self._open_file(), data, self.size_bytes)
        self.is_recently_used = True
        self.track_batch(size_bytes, last_offset, max_timestamp, index_interval_bytes)

    def track_batch(self, size_bytes: int, last_offset: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """Update size, timestamps and indexes for the next batch of the file."""
        position = self.size_bytes
        self.size_bytes = position + size_bytes
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self.bytes_since_index_entry > index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position)
            self.add_time_entry()
            self.bytes_since_index_entry = size_bytes
        else:
            self.bytes_since_index_entry += size_bytes

    def add_time_entry(self) -> None:
        """Timestamps in the index increase: a batch that is not later than the last entry adds none."""
        if self.max_timestamp < 0 or self.offset_of_max_timestamp < 0:
            return
        last = self.time_index.last()
        if last is None or self.max_timestamp > last[0]:
            self.time_index.append(self.max_timestamp, self.offset_of_max_timestamp - self.base_offset)

    def largest_timestamp(self) -> int:
        """Largest timestamp by the time index; the file's modification time if no record has one."""
        self.load_max_timestamp()
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self.modified_ms

    def load_max_timestamp(self) -> None:
        if self.max_timestamp != NOT_LOADED:
            return
        last = self.time_index.last()
        if last is None:
            self.max_timestamp = NO_TIMESTAMP
        else:
            self.max_timestamp, relative_offset = last
            self.offset_of_max_timestamp = self.base_offset + relative_offset

    def first_timestamp(self) -> int:
        """Largest timestamp of the first batch, from which the segment's age is counted."""
        if self.size_bytes < HEADER_BYTES:
            return NO_TIMESTAMP
        return self.header_at(0).max_timestamp

    # ---- reads

    def header_at(self, position: int) -> BatchHeader:
        data = self.file.read(position, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            raise OSError(errno.EIO, "the file is shorter than what was written to it", self.path(LOG_SUFFIX))
        return BatchHeader._make(HEADER.unpack(data))

    def start_of_search(self, offset: int, *, may_block: bool = True) -> int:
        """Position of an indexed batch at or before the one with `offset`."""
        relative_offset = offset - self.base_offset
        if not may_block and not self.offset_index.is_in_memory(relative_offset):
            raise NotCached
        entry = self.offset_index.find(min(relative_offset, MAX_RELATIVE_OFFSET))
        # Ignore an index entry that points past the end of the file.
        return entry[1] if entry is not None and entry[1] < self.size_bytes else 0

    def find_batch(self, offset: int, *, may_block: bool = True) -> BatchPlace | None:
        """The first batch with last offset >= `offset`; None if there is none."""
        start = self.start_of_search(offset, may_block=may_block)
        for place in self.batch_places(start, may_block=may_block):
            if place.last_offset >= offset:
                return place
        return None

    def find_position(self, offset: int, *, may_block: bool = True) -> int | None:
        """Position of the first batch with last offset >= `offset`; None if there is none."""
        position, end = self.start_of_search(offset, may_block=may_block), self.size_bytes
        file, unpack_from = self.file, _BATCH_EXTENT.unpack_from
        while position + HEADER_BYTES <= end:
            window_bytes = min(LOOK_AHEAD_BYTES, end - position)
            if not may_block and not file.is_cached(position, window_bytes):
                raise NotCached
            window, start = file.read(position, window_bytes), position
            while position + HEADER_BYTES <= start + len(window):
                base_offset, length, last_offset_delta = unpack_from(window, position - start)
                if base_offset + last_offset_delta >= offset:
                    return position
                if length <= 0:
                    return None
                position += length + LENGTH_OVERHEAD_BYTES
            if position == start:
                return None
        return None

    def batch_places(
        self, position: int = 0, end: int | None = None, *, may_block: bool = True
    ) -> Iterator[BatchPlace]:
        """Iterate over batches by their headers, up to the end or to the first invalid header."""
        end, file = self.size_bytes if end is None else end, self.file
        window, window_start = b"", position
        while position + HEADER_BYTES <= end:
            if position + HEADER_BYTES > window_start + len(window):
                if not may_block and not file.is_cached(position, min(LOOK_AHEAD_BYTES, end - position)):
                    raise NotCached
                window, window_start = file.read(position, min(LOOK_AHEAD_BYTES, end - position)), position
                if len(window) < HEADER_BYTES:
                    return
            base_offset, length, last_offset_delta = _BATCH_EXTENT.unpack_from(window, position - window_start)
            size_bytes = length + LENGTH_OVERHEAD_BYTES
            if size_bytes < HEADER_BYTES:
                return
            yield BatchPlace(position, size_bytes, base_offset, base_offset + last_offset_delta)
            position += size_bytes

    def last_batch_start_before(self, position: int, *, may_block: bool = True) -> int:
        """Largest indexed batch position <= `position`; 0 if there is none."""
        if not may_block and not self.offset_index.is_in_memory(position, field=1):
            raise NotCached
        entry = self.offset_index.find(position, field=1)
        return entry[1] if entry is not None else 0

    def find_end_offset(self) -> int:
        """Offset after the last complete batch, searched from the last index entry."""
        return self.find_end()[0]

    def find_end(self) -> tuple[int, int]:
        """Offset and position after the last complete batch."""
        last = self.offset_index.last()
        end_offset, position = self.base_offset, 0
        start = last[1] if last is not None and last[1] < self.size_bytes else 0
        for place in self.batch_places(start):
            if place.position + place.size_bytes > self.size_bytes:
                break
            end_offset, position = place.last_offset + 1, place.position + place.size_bytes
        return end_offset, position

    def end_offset_before(self, position: int, *, may_block: bool = True) -> int | None:
        """Upper bound of the end offset of batches before `position`, by the index; None without an entry.

        A fetch lists the aborted transactions up to there.
        """
        if not may_block and not self.offset_index.is_in_memory(position - 1, field=1):
            raise NotCached
        entry = self.offset_index.find_from(position, field=1)
        return None if entry is None else self.base_offset + entry[0]

    # ---- seal, flush and truncation

    def write_indexes(self) -> None:
        self.offset_index.write()
        self.time_index.write()
        self.transaction_index.write()

    def seal(self) -> None:
        """Add the last timestamp to the index, because the segment is complete or the broker stops."""
        if self.size_bytes:
            self.load_max_timestamp()
            self.add_time_entry()
            self.write_indexes()

    def sync(self) -> None:
        """Blocking: for a worker."""
        if self.size_bytes or self.has_unsynced_truncation:
            is_truncated, self.has_unsynced_truncation = self.has_unsynced_truncation, False
            try:
                self.file.sync()
            except BaseException:
                self.has_unsynced_truncation |= is_truncated
                raise
        self.offset_index.sync()
        self.time_index.sync()
        self.transaction_index.sync()

    def prepare_truncation(self, position: int, end_offset: int) -> SegmentTruncation:
        """Prepare to truncate the file at a batch boundary, and its indexes.

        Opens and reads all files here, so that a shortage of descriptors leaves the segment unchanged.
        """
        time_index = self.time_index.prepare_truncation(end_offset - self.base_offset, field=1)
        last = self.time_index.last() if time_index is None else time_index.last
        return SegmentTruncation(
            position,
            self.file if position < self.size_bytes else None,
            self.offset_index.prepare_truncation(position, field=1),
            time_index,
            self.transaction_index.prepare_truncation(end_offset),
            *self._max_timestamp_after(last, position),
        )

    def truncate(self, prepared: SegmentTruncation) -> None:
        self.has_unsynced_truncation = True
        if prepared.file is not None:
            prepared.file.truncate(prepared.position)
            self.size_bytes = prepared.position
        if prepared.offset_index is not None:
            self.offset_index.truncate(prepared.offset_index)
        if prepared.time_index is not None:
            self.time_index.truncate(prepared.time_index)
        if prepared.transaction_index is not None:
            self.transaction_index.truncate(prepared.transaction_index)
        self.forget_tail()
        self.max_timestamp = prepared.max_timestamp
        self.offset_of_max_timestamp = prepared.offset_of_max_timestamp

    def repair_indexes(self) -> None:
        """Rebuild the ends of the indexes, which a crash may have lost. The batches are on disk."""
        self.offset_index.drop_torn_entry()
        self.time_index.drop_torn_entry()
        self.max_timestamp, self.offset_of_max_timestamp = self._max_timestamp_after(
            self.time_index.last(), self.size_bytes
        )
        self.seal()

    @property
    def has_unsynced_changes(self) -> bool:
        """Whether more than appended records has to be synced: a power cut could bring back what was truncated."""
        return self.has_unsynced_truncation or not (self.offset_index.is_synced and self.time_index.is_synced)

    def _max_timestamp_after(self, entry: tuple[int, int] | None, end: int) -> tuple[int, int]:
        """Largest timestamp before position `end`, and its offset: from the time index and from the batches after its
        last entry."""
        max_timestamp, offset = NO_TIMESTAMP, -1
        if entry is not None:
            max_timestamp, offset = entry[0], self.base_offset + entry[1]
        for place in self.batch_places(self.start_of_search(max(offset, self.base_offset)), end):
            timestamp = self.header_at(place.position).max_timestamp
            if timestamp > max_timestamp:
                max_timestamp, offset = timestamp, place.last_offset
        return max_timestamp, offset

    def forget_tail(self) -> None:
        """Discard cached values of the last batches; the next append loads them again."""
        self.bytes_since_index_entry = 0
        self.max_timestamp = NOT_LOADED if self.size_bytes else NO_TIMESTAMP
        self.offset_of_max_timestamp = -1
        self.roll_after_timestamp = NOT_LOADED
        self.roll_after_clock_ms = NEVER

    def on_directory_renamed(self, directory: str) -> None:
        """Open files stay valid: only the names of the next ones change."""
        self.directory = directory
        self._name_indexes()

    def _name_indexes(self) -> None:
        self.offset_index.path = self.path(OFFSET_INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.transaction_index.path = self.path(TRANSACTION_INDEX_SUFFIX)

    def change_suffix(self, extra_suffix: str) -> list[str]:
        """Rename all files of the segment. Returns the new paths."""
        renamed = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            new_path = segment_path(self.directory, self.base_offset, suffix) + extra_suffix
            if self._disk.exists(path):
                self._disk.rename(path, new_path)
                renamed.append(new_path)
        self._extra_suffix = extra_suffix
        self._name_indexes()
        self.release_resources()
        return renamed

    def release_resources(self) -> None:
        """Release the file and index entries in the shared cache."""
        self.release_file()
        self._cache.forget(self)
        for index in (self.offset_index, self.time_index):
            index.release()
            self._cache.dropped(index)
        self.transaction_index.release_resources()

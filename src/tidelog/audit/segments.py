"""Reader of one segment file, in chunks; collects its facts.

The file is read, not mapped: a broker that truncates a mapped file under its reader kills the reader.
"""

import contextlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import crc32c
import numpy as np

from tidelog.audit.batch_kernels import (
    BASE_OFFSET,
    CRC,
    EPOCH,
    FIELDS,
    FORMAT,
    LAST_DELTA,
    MIN_LENGTH,
    POSITION,
    SIZE,
    next_candidate,
    walk,
)
from tidelog.audit.batch_table import MAX_DEFECTS, BoolArray, RunningFacts
from tidelog.audit.key_counting import KeyCounter
from tidelog.audit.replica_facts import (
    BatchIdentity,
    Defect,
    DefectKind,
    Int64Array,
    OffsetRange,
    PlacedBatch,
    SegmentFacts,
)
from tidelog.errors import CorruptMessage
from tidelog.protocol.record_batch import CRC_START, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC
from tidelog.runtime.disk import Disk, File, SystemDisk
from tidelog.types import TopicPartition

CHUNK_BYTES = 8 * 1024 * 1024
MAX_RELATIVE_OFFSET = 2**31 - 1
OLD_FORMATS = (0, 1)
OLD_HEADER_BYTES = 17
"""Header of a message before format 2: offset, length, CRC, format."""


@dataclass(frozen=True)
class SegmentItem:
    """Input of a task: one segment to read."""

    topic_partition: TopicPartition
    path: str
    base_offset: int
    size_bytes: int
    cuts: tuple[int, ...]
    """Required block boundaries, besides the regular ones."""
    counts_keys: bool = False


@dataclass(frozen=True)
class BlockItem:
    """Batches of a range of offsets to list, from a position in a segment on."""

    segment: SegmentItem
    position: int
    offsets: OffsetRange


def read_segment(item: SegmentItem, disk: Disk | None = None) -> SegmentFacts:
    try:
        file = (disk or SystemDisk()).open(item.path, "read")
    except FileNotFoundError:
        return SegmentFacts(item.base_offset, 0, item.base_offset, is_gone=True)
    except OSError as error:
        return SegmentFacts(item.base_offset, item.size_bytes, item.base_offset, error=_reason(error))
    try:
        return _SegmentScan(item, file).facts()
    finally:
        file.close()


def list_batches(item: BlockItem, disk: Disk | None = None) -> list[PlacedBatch]:
    """Sound batches whose base offset is in the range."""
    try:
        file = (disk or SystemDisk()).open(item.segment.path, "read")
    except OSError:
        return []
    scan = _SegmentScan(item.segment, file)
    try:
        return _placed(item, scan.batches_from(item.position, item.offsets.end))
    finally:
        file.close()


def _placed(item: BlockItem, table: Int64Array) -> list[PlacedBatch]:
    columns = table[:, [BASE_OFFSET, LAST_DELTA, EPOCH, SIZE, CRC, POSITION]].tolist()
    return [
        PlacedBatch(BatchIdentity(base, base + delta, epoch, size, crc), item.segment.path, position)
        for base, delta, epoch, size, crc, position in columns
        if item.offsets.holds(base)
    ]


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _walk(data: bytes) -> tuple[Int64Array, int]:
    """Complete batches at the beginning of `data`, and the position after them."""
    table = np.empty((len(data) // HEADER_BYTES + 1, FIELDS), np.int64)
    count, stopped = walk(np.frombuffer(data, np.uint8), 0, table)
    return table[:count], stopped


def _crc_matches(data: bytes, table: Int64Array) -> BoolArray:
    view = memoryview(data)
    columns = table[:, [POSITION, SIZE, CRC]].tolist()
    sums = [crc32c.crc32c(view[at + CRC_START : at + size]) == crc for at, size, crc in columns]
    matches = np.array(sums, np.bool_)
    matches &= (table[:, FORMAT] == MAGIC) & (table[:, LAST_DELTA] >= 0)
    return matches


def _read_batches(file: File, position: int, size_bytes: int) -> bytes:
    """Read one chunk, or the first batch if that is longer."""
    left = size_bytes - position
    data = file.read(position, min(CHUNK_BYTES, left))
    if len(data) >= LENGTH_OVERHEAD_BYTES:
        needed = LENGTH_OVERHEAD_BYTES + int.from_bytes(data[8:12], "big", signed=True)
        if len(data) < needed <= left:
            data += file.read(position + len(data), needed - len(data))
    return data


class _SegmentScan:
    def __init__(self, item: SegmentItem, file: File) -> None:
        self._item = item
        self._file = file
        self._facts = RunningFacts(item.base_offset, np.array(sorted(item.cuts), np.int64))
        self._keys = KeyCounter(item.topic_partition) if item.counts_keys else None
        self._position = 0
        self._size_bytes = item.size_bytes
        self._error: str | None = None

    def batches_from(self, position: int, end_offset: int) -> Int64Array:
        """Batches from `position` on, up to the end of the chunk that reaches `end_offset`."""
        self._position = position
        taken = [np.empty((0, FIELDS), np.int64)]
        with contextlib.suppress(OSError):
            while not self._is_done and self._facts.end_offset < end_offset:
                taken.append(self._read_chunk())
        return np.concatenate(taken)

    @property
    def _is_done(self) -> bool:
        return self._position >= self._size_bytes or len(self._facts.defects) >= MAX_DEFECTS

    def facts(self) -> SegmentFacts:
        try:
            while not self._is_done:
                self._read_chunk()
        except OSError as error:
            self._error = f"at byte {self._position}: {_reason(error)}"
        running = self._facts
        return SegmentFacts(
            base_offset=running.base_offset,
            size_bytes=self._item.size_bytes,
            end_offset=running.end_offset,
            first_offset=running.first_offset,
            batch_count=running.batch_count,
            record_count=running.record_count,
            epoch_runs=tuple(running.epoch_runs),
            last_epoch=running.last_epoch,
            first_timestamp_ms=running.first_timestamp_ms,
            last_timestamp_ms=running.last_timestamp_ms,
            timeline=running.timeline(),
            codecs=running.codecs,
            defects=tuple(running.defects),
            blocks=running.merged_blocks(),
            keys=self._keys.counts if self._keys else None,
            error=self._error,
        )

    def _read_chunk(self) -> Int64Array:
        """Read the next chunk and return its sound batches."""
        start = self._position
        data = _read_batches(self._file, start, self._size_bytes)
        if not data:
            # The broker has truncated the file since it was listed.
            self._size_bytes = start
            return np.empty((0, FIELDS), np.int64)
        table, stopped = _walk(data)
        is_sound = _crc_matches(data, table)
        sound_count = len(table) if is_sound.all() else int(np.argmin(is_sound))
        is_at_end = start + len(data) >= self._size_bytes
        if sound_count == len(table) and not is_at_end and sound_count > 1:
            # The last batch is judged together with the one that follows it.
            sound_count -= 1
        sound = self._take(data, table[:sound_count], start)
        self._position = start + (int(table[sound_count, POSITION]) if sound_count < len(table) else stopped)
        is_damaged = not is_sound.all() or not sound_count
        if is_damaged or (is_at_end and sound_count == len(table) and self._position < self._size_bytes):
            self._skip_defect()
        return sound

    def _take(self, data: bytes, table: Int64Array, start: int) -> Int64Array:
        in_file = table.copy()
        in_file[:, POSITION] += start
        sound = self._facts.take(in_file)
        if self._keys is not None and len(sound):
            for first, last in _runs(sound):
                self._count_keys(memoryview(data), sound[first:last], start)
        return sound

    def _count_keys(self, data: memoryview, table: Int64Array, start: int) -> None:
        assert self._keys is not None
        begin, end = int(table[0, POSITION]), int(table[-1, POSITION] + table[-1, SIZE])
        try:
            self._keys.count(data[begin - start : end - start])
        except CorruptMessage as error:
            if len(table) > 1:
                for row in range(len(table)):
                    self._count_keys(data, table[row : row + 1], start)
            else:
                base = int(table[0, BASE_OFFSET])
                offsets = OffsetRange(base, base + int(table[0, LAST_DELTA]) + 1)
                self._facts.note(DefectKind.MALFORMED, table[0], offsets, str(error))

    def _skip_defect(self) -> None:
        """Record the damaged bytes and continue with the next valid batch."""
        position = self._position
        head = self._file.read(position, HEADER_BYTES)
        if self._is_old_format(head):
            self._note(DefectKind.OLD_FORMAT, self._size_bytes, None, f"message format {head[16]}")
            self._position = self._size_bytes
            return
        found = self._next_sound(position, head)
        if found is None:
            kind, detail = self._damaged_end(head)
            self._note(kind, self._size_bytes, None, detail)
            self._position = self._size_bytes
            return
        at, base_offset = found
        self._note(DefectKind.CORRUPT, at, base_offset, _what_is_wrong(head, at - position))
        self._position = at
        self._facts.skip_defect()

    def _damaged_end(self, head: bytes) -> tuple[DefectKind, str]:
        left = self._size_bytes - self._position
        if len(head) < HEADER_BYTES:
            return DefectKind.CUT, f"{left} bytes are left, fewer than a batch header has"
        needed = LENGTH_OVERHEAD_BYTES + int.from_bytes(head[8:12], "big", signed=True)
        if needed > left:
            return DefectKind.CUT, f"the last batch has {left} of the {needed} bytes that its header claims"
        return DefectKind.CORRUPT, _what_is_wrong(head, left)

    def _note(self, kind: DefectKind, end: int, end_offset: int | None, detail: str) -> None:
        start_offset = self._facts.end_offset
        last = start_offset if end_offset is None else end_offset
        defect = Defect(kind, self._position, end - self._position, start_offset, max(last, start_offset), detail)
        self._facts.defects.append(defect)

    def _is_old_format(self, head: bytes) -> bool:
        """True for a message before format 2: its CRC32 covers all bytes after it."""
        if len(head) < OLD_HEADER_BYTES or head[16] not in OLD_FORMATS:
            return False
        length = int.from_bytes(head[8:12], "big", signed=True)
        if length < OLD_HEADER_BYTES - LENGTH_OVERHEAD_BYTES or length > self._size_bytes - self._position:
            return False
        message = self._file.read(self._position + LENGTH_OVERHEAD_BYTES, length)
        return zlib.crc32(message[4:]) == int.from_bytes(message[:4], "big")

    def _next_sound(self, position: int, head: bytes) -> tuple[int, int] | None:
        """Position and base offset of the next batch with a valid CRC, found by the length field or by a search."""
        if len(head) == HEADER_BYTES:
            length = int.from_bytes(head[8:12], "big", signed=True)
            following = position + LENGTH_OVERHEAD_BYTES + length
            if length >= MIN_LENGTH and following < self._size_bytes:
                base_offset = self._sound_batch_at(following)
                if base_offset is not None:
                    return following, base_offset
        return self._search(position + 1)

    def _search(self, position: int) -> tuple[int, int] | None:
        smallest = self._facts.end_offset
        while position + HEADER_BYTES <= self._size_bytes:
            data = self._file.read(position, min(CHUNK_BYTES, self._size_bytes - position))
            if len(data) < HEADER_BYTES:
                return None
            buffer = np.frombuffer(data, np.uint8)
            at = next_candidate(buffer, 0, smallest, smallest + MAX_RELATIVE_OFFSET)
            while at >= 0:
                base_offset = self._sound_batch_at(position + at)
                if base_offset is not None:
                    return position + at, base_offset
                at = next_candidate(buffer, at + 1, smallest, smallest + MAX_RELATIVE_OFFSET)
            position += len(data) - HEADER_BYTES + 1
        return None

    def _sound_batch_at(self, position: int) -> int | None:
        head = self._file.read(position, LENGTH_OVERHEAD_BYTES)
        if len(head) < LENGTH_OVERHEAD_BYTES:
            return None
        size_bytes = LENGTH_OVERHEAD_BYTES + int.from_bytes(head[8:12], "big", signed=True)
        if size_bytes < HEADER_BYTES or size_bytes > self._size_bytes - position:
            return None
        data = self._file.read(position, size_bytes)
        table, _ = _walk(data)
        if not len(table) or not _crc_matches(data, table[:1])[0]:
            return None
        return int(table[0, BASE_OFFSET])


def _runs(table: Int64Array) -> Sequence[tuple[int, int]]:
    """Rows of batches that directly follow each other."""
    ends = table[:, POSITION] + table[:, SIZE]
    breaks = [0, *(np.flatnonzero(table[1:, POSITION] != ends[:-1]) + 1).tolist(), len(table)]
    return list(pairwise(breaks))


def _what_is_wrong(head: bytes, size_bytes: int) -> str:
    if len(head) < HEADER_BYTES:
        return "the bytes are not a record batch"
    length = int.from_bytes(head[8:12], "big", signed=True)
    if length + LENGTH_OVERHEAD_BYTES != size_bytes:
        return (
            f"the header claims {length + LENGTH_OVERHEAD_BYTES} bytes, the next sound batch follows after {size_bytes}"
        )
    if head[16] != MAGIC:
        return f"the header has format {head[16]}, which is not supported"
    return "the CRC does not match"

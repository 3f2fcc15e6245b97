"""Group of batches that one kernel call reads: enough for one Arrow batch of a good size."""

from typing import Final

import numpy as np

from tidelog.errors import CorruptMessage
from tidelog.protocol.record_batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, BatchHeader
from tidelog.protocol.records import MIN_RECORD_BYTES, codec_of
from tidelog.spark.records.kernels import BATCH_FACTS, Bytes, Longs
from tidelog.spark.records.scratch import Scratch
from tidelog.spark.records.small_batches import scan_small_batches

TARGET_BYTES: Final = 4 * 1024 * 1024
TARGET_ROWS: Final = 40_000
COLUMN_LIMIT_BYTES: Final = 2**31 - 1
"""Arrow's binary columns have 32-bit offsets; no column is longer than its records."""


class BatchGroup:
    """Batches whose records are in one buffer: the fetched bytes, or a scratch buffer of decompressed records.

    An uncompressed batch among compressed ones is copied to the scratch buffer, so that a topic with both kinds of
    producers does not split into small groups.
    """

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._raw: memoryview = memoryview(b"")
        self._in_scratch = False
        self._batches: list[tuple[int, ...]] = []
        self._tables: list[Longs] = []  # of earlier batches
        self._room: Longs = np.empty((0, BATCH_FACTS), np.int64)
        self.size_bytes = 0
        self.record_count = 0

    def begin(self, raw: memoryview) -> None:
        self._raw = raw
        self.clear()

    def clear(self) -> None:
        self._scratch.clear()
        self._batches, self._tables = [], []
        self._in_scratch = False
        self.size_bytes = self.record_count = 0

    @property
    def is_empty(self) -> bool:
        return not self._batches and not self._tables

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= TARGET_BYTES or self.record_count >= TARGET_ROWS

    @property
    def buffer(self) -> Bytes:
        """Read-only in both cases, so that kernels are compiled for one type only."""
        if not self._in_scratch:
            return self._as_fetched
        view = self._scratch.written
        view.flags.writeable = False
        return view

    @property
    def _as_fetched(self) -> Bytes:
        return np.frombuffer(self._raw.toreadonly(), np.uint8)

    @property
    def batches(self) -> Longs:
        return np.concatenate([*self._tables, self._last_batches()])

    def _last_batches(self) -> Longs:
        return np.array(self._batches, np.int64).reshape(-1, BATCH_FACTS)

    def has_room_for(self, header: BatchHeader) -> bool:
        if self.is_empty:
            return True
        if self._in_scratch:
            return bool(header.compression) or header.size_bytes <= TARGET_BYTES
        return not header.compression and self.size_bytes + header.size_bytes <= COLUMN_LIMIT_BYTES

    def add(self, header: BatchHeader, position: int) -> None:
        """`position` is in the fetched bytes; the records are decompressed here."""
        start, end = position + HEADER_BYTES, position + header.length + LENGTH_OVERHEAD_BYTES
        if self.is_empty:
            self._in_scratch = bool(header.compression)
        if self._in_scratch:
            start, end = self._scratch.append(codec_of(header), self._raw[start:end])
        if not 0 <= header.record_count * MIN_RECORD_BYTES <= end - start:
            raise CorruptMessage(f"{end - start} bytes cannot hold {header.record_count} records")
        self._batches.append(facts_of(header, start, end))
        self.size_bytes += end - start
        self.record_count += header.record_count

    def add_small(self, position: int, start_offset: int, end_offset: int, shows_transactions: bool) -> int:
        """Adds the small batches that follow at `position`, as far as the kernel accepts them; returns their end."""
        if self._in_scratch or self.is_full:
            return position
        if not len(self._room):
            self._room = np.empty((TARGET_ROWS, BATCH_FACTS), np.int64)
        rows_left, bytes_left = TARGET_ROWS - self.record_count, TARGET_BYTES - self.size_bytes
        count, rows, size_bytes, position = scan_small_batches(
            self._as_fetched, position, start_offset, end_offset, shows_transactions, rows_left, bytes_left, self._room
        )
        if count:
            self._tables += [self._last_batches(), self._room[:count].copy()]
            self._batches = []
        self.record_count += rows
        self.size_bytes += size_bytes
        return position


def facts_of(header: BatchHeader, start: int, end: int) -> tuple[int, ...]:
    """In the order of the kernels' batch table."""
    return (
        start,
        end,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        int(header.has_log_append_time),
    )

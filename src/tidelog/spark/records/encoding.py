"""Encoder from Arrow columns to record batches: each row goes to the open batch of its target."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tidelog.protocol.compression import Codec, compress
from tidelog.protocol.record_batch import HEADER, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC
from tidelog.spark.options.client_settings import BATCH_BYTES
from tidelog.spark.records.arrow_columns import BytesColumn, HeadersColumn
from tidelog.spark.records.encode_kernels import append_records
from tidelog.spark.records.kernels import Ints, Longs
from tidelog.spark.records.open_batches import OpenBatches, open_batches
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

MAX_RECORDS = 20_000
ARENA_BYTES = 64 * 1024 * 1024
"""Memory for the open batches of all targets: with many targets, batches are smaller."""

MIN_BATCH_BYTES = 16 * 1024


class RecordColumns(NamedTuple):
    """The rows of one Arrow batch; `targets` has the target of each row."""

    targets: Ints
    timestamps_ms: Longs
    key: BytesColumn
    value: BytesColumn
    headers: HeadersColumn


class FullBatch(NamedTuple):
    """A batch of format v2 with base offset 0, without producer and CRC."""

    target: int
    data: bytearray
    record_count: int


class BatchEncoder:
    """Batches stay open between calls, so that they are large even with many targets."""

    def __init__(
        self, target_count: int, compression: Codec, *, batch_bytes: int = BATCH_BYTES, max_records: int = MAX_RECORDS
    ) -> None:
        self._compression = compression
        self._batch_bytes = batch_bytes
        self._max_records = max_records
        self._open = self._make_room(target_count)

    def _make_room(self, target_count: int) -> OpenBatches:
        share_bytes = max(MIN_BATCH_BYTES, ARENA_BYTES // max(1, target_count))
        capacity_bytes = max(1, min(self._batch_bytes, share_bytes) - HEADER_BYTES)
        return open_batches(target_count, capacity_bytes, self._max_records)

    def encode(self, rows: RecordColumns) -> Iterator[FullBatch]:
        """The batches that these rows fill; batches of one target are in the order of their rows."""
        row, row_count = 0, len(rows.targets)
        while row < row_count:
            row, record_bytes = _append(rows, row, row_count, self._open)
            if row < row_count:
                target = int(rows.targets[row])
                if self._open.record_counts[target]:
                    yield self._close_batch(self._open, target)
                if record_bytes > self._open.capacity_bytes:
                    yield self._oversized(rows, row, record_bytes)
                    row += 1

    def finish(self) -> Iterator[FullBatch]:
        """All open batches."""
        for target in np.flatnonzero(self._open.record_counts):
            yield self._close_batch(self._open, int(target))

    def grow(self, target_count: int) -> Iterator[FullBatch]:
        """Adds targets; open batches are returned first."""
        yield from self.finish()
        self._open = self._make_room(target_count)

    def _oversized(self, rows: RecordColumns, row: int, record_bytes: int) -> FullBatch:
        """A batch for a record larger than the batch size: only the broker knows whether it is too large."""
        target = int(rows.targets[row])
        room = open_batches(
            1, record_bytes, 1
        )  # enough: as the only record its deltas are 0, so it is not larger than measured
        only_row = rows._replace(targets=np.zeros(len(rows.targets), np.int32))
        _append(only_row, row, row + 1, room)
        return self._close_batch(room, 0)._replace(target=target)

    def _close_batch(self, batches: OpenBatches, target: int) -> FullBatch:
        """Closes the batch of the target; the next record starts a new one."""
        start = target * batches.capacity_bytes
        payload = batches.arena.data[start : start + int(batches.filled_bytes[target])]
        data = bytearray(HEADER_BYTES)
        data += payload if self._compression is Codec.NONE else compress(self._compression, payload)
        record_count = int(batches.record_counts[target])
        self._put_header(data, batches, target, record_count)
        batches.filled_bytes[target] = batches.record_counts[target] = 0
        return FullBatch(target, data, record_count)

    def _put_header(self, data: bytearray, batches: OpenBatches, target: int, record_count: int) -> None:
        HEADER.pack_into(
            data,
            0,
            0,
            len(data) - LENGTH_OVERHEAD_BYTES,
            NO_LEADER_EPOCH,
            MAGIC,
            0,
            int(self._compression),
            record_count - 1,
            int(batches.base_timestamps[target]),
            int(batches.max_timestamps[target]),
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            record_count,
        )


def _append(rows: RecordColumns, row: int, end_row: int, batches: OpenBatches) -> tuple[int, int]:
    return append_records(row, end_row, rows.targets, rows.timestamps_ms, rows.key, rows.value, rows.headers, batches)

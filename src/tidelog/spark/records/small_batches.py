"""Kernel for runs of small batches: parsing their headers in Python would take longer than reading the records."""

from typing import Final

import numpy as np
import numpy.typing as npt

from tidelog.protocol.record_batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from tidelog.spark.records.batch_headers import LAST_OFFSET, MAGIC_POSITION
from tidelog.spark.records.kernels import (
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_END,
    BATCH_START,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP,
    MIN_RECORD_BYTES,
    RECORD_COUNT,
    Bytes,
    Long,
    Longs,
    inlined,
    kernel,
    load_int32,
    load_int64,
)

SMALL_BATCH_BYTES: Final = 4096
"""Above this size the library computes the CRC faster, despite the cost of the call."""

_MIN_LENGTH: Final = HEADER_BYTES - LENGTH_OVERHEAD_BYTES
_LENGTH, _CRC, _ATTRIBUTES, _LAST_OFFSET_DELTA = 8, 17, CRC_START, 23
_BASE_TIMESTAMP, _MAX_TIMESTAMP, _RECORD_COUNT = 27, 35, 57
_CASTAGNOLI_REVERSED: Final = 0x82F63B78
_BYTES_AT_ONCE: Final = 8


def _crc_tables() -> npt.NDArray[np.uint32]:
    """Contribution of each byte value, followed by 0 to 7 other bytes."""
    tables = np.zeros((_BYTES_AT_ONCE, 256), np.uint32)
    tables[0] = np.arange(256)
    for _ in range(8):
        tables[0] = (tables[0] >> 1) ^ np.where(tables[0] & 1, np.uint32(_CASTAGNOLI_REVERSED), np.uint32(0))
    for index in range(1, _BYTES_AT_ONCE):
        tables[index] = (tables[index - 1] >> 8) ^ tables[0][tables[index - 1] & 0xFF]
    return tables


_CRC_TABLES = _crc_tables()


@kernel
def crc32c(buffer: Bytes, start: Long, end: Long) -> Long:
    """Without bounds checks."""
    crc = np.uint32(0xFFFFFFFF)
    position = start
    while end - position >= _BYTES_AT_ONCE:
        found = np.uint32(0)
        for index in range(_BYTES_AT_ONCE):
            byte = np.uint32(buffer[position + index])
            if index < 4:
                byte ^= (crc >> np.uint32(8 * index)) & np.uint32(0xFF)
            found ^= _CRC_TABLES[_BYTES_AT_ONCE - 1 - index, byte]
        crc = found
        position += _BYTES_AT_ONCE
    while position < end:
        crc = (crc >> np.uint32(8)) ^ _CRC_TABLES[0, (crc ^ np.uint32(buffer[position])) & np.uint32(0xFF)]
        position += 1
    return crc ^ np.uint32(0xFFFFFFFF)


@inlined
def _end_of_small_batch(buffer: Bytes, position: Long, rejected_attributes: Long) -> Long:
    """The end of a batch that is complete, small, valid so far and visible to all readers; -1 for all others."""
    if buffer.shape[0] - position < HEADER_BYTES or buffer[position + MAGIC_POSITION] != MAGIC:
        return np.int64(-1)
    length = np.int64(load_int32(buffer, position + _LENGTH))
    end = position + LENGTH_OVERHEAD_BYTES + length
    if not _MIN_LENGTH <= length <= SMALL_BATCH_BYTES or end > buffer.shape[0]:
        return np.int64(-1)
    if buffer[position + _ATTRIBUTES + 1] & rejected_attributes:
        return np.int64(-1)
    base_offset, last_delta = load_int64(buffer, position), load_int32(buffer, position + _LAST_OFFSET_DELTA)
    if base_offset < 0 or last_delta < 0 or base_offset > LAST_OFFSET - last_delta:
        return np.int64(-1)
    records_bytes = end - position - HEADER_BYTES
    if not 0 <= np.int64(load_int32(buffer, position + _RECORD_COUNT)) * MIN_RECORD_BYTES <= records_bytes:
        return np.int64(-1)
    return end


@kernel
def scan_small_batches(
    buffer: Bytes,
    position: Long,
    start_offset: Long,
    end_offset: Long,
    shows_transactions: bool,
    target_rows: Long,
    target_bytes: Long,
    batches: Longs,
) -> tuple[Long, Long, Long, Long]:
    """Fills the table of `batches` with small, uncompressed batches until they have enough rows or bytes.

    Stops at the first batch that it does not accept, valid or not; the caller handles that batch. Returns the number of
    batches, their rows, the bytes of their records, and the position where it stopped.
    """
    rejected_attributes = np.uint8(COMPRESSION_MASK | CONTROL_BIT)
    if not shows_transactions:
        rejected_attributes |= np.uint8(TRANSACTIONAL_BIT)
    count, rows, size_bytes = np.int64(0), np.int64(0), np.int64(0)
    while count < batches.shape[0] and rows < target_rows and size_bytes < target_bytes:
        end = _end_of_small_batch(buffer, position, rejected_attributes)
        if end < 0:
            break
        base_offset, last_delta = (
            load_int64(buffer, position),
            np.int64(load_int32(buffer, position + _LAST_OFFSET_DELTA)),
        )
        if base_offset >= end_offset:
            break
        if base_offset + last_delta >= start_offset:
            if crc32c(buffer, position + CRC_START, end) != np.uint32(load_int32(buffer, position + _CRC)):
                break
            batch = batches[count]
            batch[BATCH_START], batch[BATCH_END] = position + HEADER_BYTES, end
            batch[RECORD_COUNT] = load_int32(buffer, position + _RECORD_COUNT)
            batch[BASE_OFFSET], batch[LAST_OFFSET_DELTA] = base_offset, last_delta
            batch[BASE_TIMESTAMP] = load_int64(buffer, position + _BASE_TIMESTAMP)
            batch[MAX_TIMESTAMP] = load_int64(buffer, position + _MAX_TIMESTAMP)
            batch[LOG_APPEND_TIME] = np.int64(buffer[position + _ATTRIBUTES + 1] & TIMESTAMP_TYPE_BIT != 0)
            count += 1
            rows += batch[RECORD_COUNT]
            size_bytes += end - batch[BATCH_START]
        position = end
    return count, rows, size_bytes, position

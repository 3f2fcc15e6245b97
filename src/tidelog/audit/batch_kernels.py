"""Kernels for batch headers: walk over valid batches, and find the next batch after damaged bytes."""

import numpy as np

from tidelog.protocol.record_batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC, MAGIC_POSITION
from tidelog.spark.records.kernels import Bytes, Longs, kernel, load_int32, load_int64

POSITION, SIZE, BASE_OFFSET, LAST_DELTA, EPOCH, FORMAT, CRC, ATTRIBUTES, MAX_TIMESTAMP, RECORDS = range(10)
FIELDS = 10
"""The columns of a table of batches."""

MIN_LENGTH = HEADER_BYTES - LENGTH_OVERHEAD_BYTES


@kernel
def walk(buffer: Bytes, start: int, table: Longs) -> tuple[int, int]:
    """Fill `table` with the complete batches from `start` on. Returns their number and where the walk stopped.

    It stops at an incomplete batch, at an impossible length, or when the table is full.
    """
    position = start
    end = len(buffer)
    count = 0
    while count < len(table) and end - position >= HEADER_BYTES:
        length = load_int32(buffer, position + 8)
        if length < MIN_LENGTH or length + LENGTH_OVERHEAD_BYTES > end - position:
            break
        row = table[count]
        row[POSITION] = position
        row[SIZE] = length + LENGTH_OVERHEAD_BYTES
        row[BASE_OFFSET] = load_int64(buffer, position)
        row[EPOCH] = load_int32(buffer, position + 12)
        row[FORMAT] = buffer[position + MAGIC_POSITION]
        row[CRC] = load_int32(buffer, position + 17) & np.int64(0xFFFFFFFF)
        row[ATTRIBUTES] = (np.int64(buffer[position + 21]) << 8) | np.int64(buffer[position + 22])
        row[LAST_DELTA] = load_int32(buffer, position + 23)
        row[MAX_TIMESTAMP] = load_int64(buffer, position + 35)
        row[RECORDS] = load_int32(buffer, position + 57)
        position += length + LENGTH_OVERHEAD_BYTES
        count += 1
    return count, position


@kernel
def next_candidate(buffer: Bytes, start: int, smallest_offset: int, largest_offset: int) -> int:
    """Position of the next bytes that may be a batch header with a base offset in this range; -1 if there are none."""
    for position in range(start, len(buffer) - HEADER_BYTES + 1):
        if buffer[position + MAGIC_POSITION] != MAGIC:
            continue
        base_offset = load_int64(buffer, position)
        if base_offset < smallest_offset or base_offset > largest_offset:
            continue
        if load_int32(buffer, position + 8) >= MIN_LENGTH and load_int32(buffer, position + 23) >= 0:
            return position
    return -1

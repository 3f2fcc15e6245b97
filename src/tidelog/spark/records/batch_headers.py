"""Batch headers in fetched bytes, read without numpy."""

import struct
from typing import Final

from tidelog.errors import CorruptMessage
from tidelog.protocol.record_batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC, BatchHeader, read_header

BASE_OFFSET: Final = struct.Struct(">q")
MAGIC_POSITION: Final = 16
LAST_OFFSET: Final = 2**63 - 2


def whole_batch_at(raw: memoryview, position: int) -> BatchHeader | None:
    """The header of the batch at `position`; None if the batch is truncated, as the last one of a fetch may be."""
    room = len(raw) - position
    if room <= MAGIC_POSITION:
        return None
    if raw[position + MAGIC_POSITION] != MAGIC:  # messages of older formats are shorter than a batch header
        raise CorruptMessage(
            f"it has format version {raw[position + MAGIC_POSITION]}, but only version {MAGIC} is supported"
        )
    if room < HEADER_BYTES:
        return None
    header = read_header(raw, position)
    if header.length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES:
        raise CorruptMessage(f"it claims a length of {header.length} bytes, less than its own header")
    if header.length + LENGTH_OVERHEAD_BYTES > room:
        return None
    if not 0 <= header.base_offset <= LAST_OFFSET - header.last_offset_delta or header.last_offset_delta < 0:
        raise CorruptMessage(f"it claims offsets from {header.base_offset} to {header.last_offset}")
    return header

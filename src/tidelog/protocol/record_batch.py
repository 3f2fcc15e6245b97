"""Record batches of format v2, on the wire and on disk: the 61-byte header.

The contents of a batch are in `records`. Fetches never read them; a leader does once, when the batch is produced.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.protocol.checksums import crc32c
from tidelog.types import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
_new_header = tuple.__new__  # half the time of the named tuple's own constructor
HEADER_BYTES = 61
LENGTH_OVERHEAD_BYTES = 12
"""Base offset and length, which the length field does not include."""

CRC_START = 21
"""The CRC covers everything from the attributes on. Base offset and leader epoch are before it and may be changed."""

ATTRIBUTES = struct.Struct(">h")
MAX_TIMESTAMP = struct.Struct(">q")
MAX_TIMESTAMP_POSITION = 35

MAGIC = 2
MAGIC_POSITION = 16
LOW_ATTRIBUTES_POSITION = 22
"""The lower byte of the attributes has all bits that are in use."""

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

MAX_SEQUENCE = 2**31 - 1

_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_CRC_POSITION = 17
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_POSITION = 43


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return LENGTH_OVERHEAD_BYTES + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        return add_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time after which the tombstones and markers of a cleaned batch may be removed (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def add_sequence(sequence: int, increment: int) -> int:
    """Sequences wrap from the largest int32 to 0."""
    return (sequence + increment) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. The caller has checked that 61 bytes are there."""
    header: BatchHeader = _new_header(BatchHeader, HEADER.unpack_from(buffer, position))
    return header


def crc_matches(batch: Buffer, header: BatchHeader) -> bool:
    return crc32c(memoryview(batch)[CRC_START : header.length + LENGTH_OVERHEAD_BYTES]) == header.crc


def assemble(header: BatchHeader, payload: Buffer) -> bytearray:
    """A batch of these records; computes length and CRC."""
    batch = bytearray(HEADER.pack(*header))
    batch += payload
    _LENGTH.pack_into(batch, _LENGTH_POSITION, len(batch) - LENGTH_OVERHEAD_BYTES)
    seal(batch)
    return batch


def seal(batch: bytearray | memoryview) -> None:
    """Recompute the CRC after a change."""
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))


def place(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch in place. The CRC does not cover them (R1)."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, LENGTH_OVERHEAD_BYTES, leader_epoch)


def restamp(batch: bytearray | memoryview, attributes: int, max_timestamp: int) -> bytearray | memoryview:
    """Set attributes and largest timestamp, in place if the buffer is writable."""
    if isinstance(batch, memoryview) and batch.readonly:
        batch = bytearray(batch)
    ATTRIBUTES.pack_into(batch, CRC_START, attributes)
    MAX_TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_POSITION, max_timestamp)
    seal(batch)
    return batch


def batch_length_at(buffer: Buffer, position: int) -> int:
    """Length of the batch, from its header."""
    length: int = _LENGTH.unpack_from(buffer, position + _BASE_OFFSET.size)[0]
    return length


def identify(
    batch: bytearray | memoryview,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    is_transactional: bool = False,
) -> None:
    """Set producer and sequence in place, and recompute the CRC."""
    (attributes,) = ATTRIBUTES.unpack_from(batch, CRC_START)
    ATTRIBUTES.pack_into(
        batch, CRC_START, (attributes & ~TRANSACTIONAL_BIT) | (TRANSACTIONAL_BIT if is_transactional else 0)
    )
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    seal(batch)


def split_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Complete batches in `buffer`, in order. A fetch may end with an incomplete one, which is omitted."""
    view = memoryview(buffer)
    position, end = 0, len(view)
    while end - position >= HEADER_BYTES:
        header = read_header(view, position)
        if header.length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES:
            raise CorruptMessage(f"a batch claims a length of {header.length} bytes, less than its own header")
        batch_end = position + LENGTH_OVERHEAD_BYTES + header.length
        if batch_end > end:
            return
        yield header, view[position:batch_end]
        position = batch_end

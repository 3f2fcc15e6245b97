"""Records inside a record batch: data records, control records, and varints.

Malformed input raises CorruptMessage and nothing else, and never takes more memory than DECOMPRESSED_LIMIT_BYTES.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cache
from itertools import compress as select
from itertools import repeat
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar, cast

from tidelog.config.topic import DECOMPRESSED_LIMIT_BYTES
from tidelog.errors import CorruptMessage
from tidelog.kernels import kernels
from tidelog.protocol.compression import Codec, DecompressedTooLarge, compress, decompress, decompress_start
from tidelog.protocol.record_batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble,
    read_header,
)
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
)

MIN_RECORD_BYTES: Final = 7
"""Length, attributes, two deltas, no key, no value, no headers: a byte each."""

SLICE_RECORDS: Final = 500
"""Records decoded at a time."""

SEARCHED_RECORDS: Final = 20_000
"""Records searched at a time, in a few tenths of a millisecond: compiled code lets no other thread run meanwhile."""

FIRST_ROOM_BYTES: Final = 256 * 1024
ROOM_FACTOR: Final = 4
"""Initial size of the decompression buffer, and its growth each time it is too small."""

_TWO_BYTES_LIMIT: Final = 1 << 13
_INT64_LIMIT: Final = 1 << 63
_CONTROL_KEY: Final = struct.Struct(">hh")
_END_MARKER_VALUE: Final = struct.Struct(">hi")
_CONTROL_VERSION: Final = 0
_new_record: Final = tuple.__new__  # half the time of the named tuple's own constructor


T = TypeVar("T")

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


PlainRecord: TypeAlias = Record | tuple[int, int, bytes | None, bytes | None, Headers]
"""A record, or a tuple of its fields, which costs a producer less: the garbage collector forgets plain tuples."""

_TIMESTAMP_OF: Final[Callable[[PlainRecord], int]] = itemgetter(1)


class RecordColumns(NamedTuple):
    """Some records of one batch, a list for each field: cheaper than an object for each record."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]

    def rows(self) -> "Iterator[tuple[int, int, bytes | None, bytes | None, Headers]]":
        return zip(*self, strict=True)

    def extend(self, others: "RecordColumns") -> None:
        self.offsets.extend(others.offsets)
        self.timestamps.extend(others.timestamps)
        self.keys.extend(others.keys)
        self.values.extend(others.values)
        self.headers.extend(others.headers)

    def from_offset(self, start_offset: int) -> "RecordColumns":
        chosen = [offset >= start_offset for offset in self.offsets]
        return RecordColumns._make(list(select(column, chosen)) for column in self)


class RawRecord(NamedTuple):
    """Position of a record in its payload, and the few fields that the broker needs."""

    start: int
    """The first byte of the length prefix."""
    end: int
    timestamp_delta: int
    offset_delta: int
    offset_position: int
    """Position from which on no byte depends on the batch's base timestamp."""
    key: bytes | None
    value_position: int


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


class EndMarker(NamedTuple):
    """The control record that ends a transaction in a partition."""

    control_type: ControlType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def write_varint(output: bytearray, value: int) -> None:
    """Zigzag varint of a 32-bit or 64-bit number."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    while rest > 0x7F:
        output.append(rest & 0x7F | 0x80)
        rest >>= 7
    output.append(rest)


def _varint(value: int) -> bytes:
    if 0 <= value < _TWO_BYTES_LIMIT:
        raw = value << 1
        return bytes((raw,)) if raw < 0x80 else bytes((raw & 0x7F | 0x80, raw >> 7))
    output = bytearray()
    write_varint(output, value)
    return bytes(output)


def read_varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """The number at `position` and the position after it; IndexError past the end of the data."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        raw = byte & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), position + 2
    return _read_long_varint(data, position, bits)


def _read_long_varint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, bits, 7):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raw = 1 << bits
    if raw >> bits:
        raise CorruptMessage(f"a variable-length number has more than {bits} bits")
    return (raw >> 1) ^ -(raw & 1), position


def payload_of(batch: Buffer, header: BatchHeader, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """Decompressed records of a batch."""
    return decompress(codec_of(header), _compressed_payload(batch, header), limit_bytes)


def _compressed_payload(batch: Buffer, header: BatchHeader) -> memoryview:
    if header.magic != MAGIC:
        raise CorruptMessage(f"the batch has format version {header.magic}, not {MAGIC}")
    if not HEADER_BYTES <= header.size_bytes <= len(batch):
        raise CorruptMessage(f"the batch claims {header.size_bytes} bytes and has {len(batch)}")
    return memoryview(batch)[HEADER_BYTES : header.size_bytes]


def codec_of(header: BatchHeader) -> Codec:
    try:
        return Codec(header.compression)
    except ValueError:
        raise CorruptMessage(f"the batch has the unknown compression codec {header.compression}") from None


def raw_records(payload: bytes, record_count: int) -> Iterator[RawRecord]:
    """Walks exactly `record_count` records that fill `payload`, without reading values and headers."""
    if not 0 <= record_count * MIN_RECORD_BYTES <= len(payload):
        raise CorruptMessage(f"{len(payload)} bytes cannot hold {record_count} records")
    position = 0
    while record_count > 0:
        try:
            found = kernels.raw_slice(payload, position, min(record_count, SLICE_RECORDS))
        except ValueError as error:
            raise CorruptMessage(str(error)) from None
        for each in found:
            yield _new_record(RawRecord, each)
        position = found[-1][1]
        record_count -= len(found)
    if position != len(payload):
        raise CorruptMessage(f"{len(payload) - position} bytes follow the last record of the batch")


def is_tombstone(payload: bytes, record: RawRecord) -> bool:
    """True if the value is null (a tombstone), which deletes the key in a compacted log."""
    try:
        return read_varint(payload, record.value_position)[0] < 0
    except IndexError:
        raise CorruptMessage(f"the record at byte {record.start} has no value field") from None


def records_of(batch: Buffer) -> Iterator[Record]:
    """Records of one batch with their offsets and timestamps, decompressed and decoded in slices on demand.

    A batch of a few kilobytes may have millions of records: reading the first one costs one slice.
    """
    for found in slices_of(batch):
        yield from found


def slices_of(batch: Buffer) -> Iterator[list[Record]]:
    """Like `records_of`, in slices, so that a reader can yield to other tasks in between."""
    for columns in column_slices(batch):
        yield list(map(_new_record, repeat(Record), columns.rows()))


def column_slices(batch: Buffer) -> Iterator[RecordColumns]:
    """Like `slices_of`, for readers that make something else of the fields."""
    header = _checked_header(batch)
    # Log append time is one for the whole batch, in its header.
    base_timestamp = 0 if header.has_log_append_time else header.base_timestamp

    def step(payload: bytes, position: int, count: int) -> tuple[int, RecordColumns]:
        end, offsets, timestamps, keys, values, headers = kernels.decoded_columns(
            payload, position, count, header.base_offset, header.last_offset_delta, base_timestamp
        )
        if header.has_log_append_time:
            timestamps = [header.max_timestamp] * count
        named: list[Headers] = [()] * count if headers is None else list(map(_named, headers))
        return end, RecordColumns(offsets, timestamps, keys, values, named)

    yield from _walk(batch, header, step, SLICE_RECORDS)


def _named(headers: list[tuple[bytes, bytes | None]] | None) -> Headers:
    """Names that are not UTF-8 are decoded like in Java clients."""
    return () if headers is None else tuple((name.decode(errors="replace"), content) for name, content in headers)


def first_at(batch: Buffer, timestamp: int, start_offset: int) -> tuple[int, int] | None:
    """Timestamp and offset of the first record from both of these on. Decodes nothing else, in millions of records."""
    header = _checked_header(batch)
    base_timestamp = header.base_timestamp
    if header.has_log_append_time:
        if header.max_timestamp < timestamp:
            return None
        min_delta = -_INT64_LIMIT
    else:
        min_delta = max(-_INT64_LIMIT, min(timestamp - base_timestamp, _INT64_LIMIT - 1))
    min_offset_delta = max(0, start_offset - header.base_offset)

    def step(payload: bytes, position: int, count: int) -> tuple[int, tuple[int, int]]:
        end, delta, offset_delta = kernels.find_timestamp(payload, position, count, min_delta, min_offset_delta)
        return end, (delta, offset_delta)

    for delta, offset_delta in _walk(batch, header, step, SEARCHED_RECORDS):
        if offset_delta >= 0:
            if offset_delta > header.last_offset_delta:
                raise CorruptMessage(f"offset delta {offset_delta} is outside of its batch")
            found = header.max_timestamp if header.has_log_append_time else base_timestamp + delta
            return found, header.base_offset + offset_delta
    return None


def _checked_header(batch: Buffer) -> BatchHeader:
    if len(batch) < HEADER_BYTES:
        raise CorruptMessage(f"{len(batch)} bytes are less than the header of a batch")
    header = read_header(batch)
    if header.record_count < 0:
        raise CorruptMessage(f"the batch claims {header.record_count} records")
    return header


def _walk(
    batch: Buffer, header: BatchHeader, step: Callable[[bytes, int, int], tuple[int, T]], most: int
) -> Iterator[T]:
    """Decompress as much as is needed, and take up to `most` records in each step.

    `step` gets the records, where to begin and how many to take, and returns where it ended and what it made.
    """
    view = _compressed_payload(batch, header)
    codec, left, position = codec_of(header), header.record_count, 0
    room = max(FIRST_ROOM_BYTES, len(view) * ROOM_FACTOR)
    payload, is_whole = decompress_start(codec, view, min(room, DECOMPRESSED_LIMIT_BYTES))
    while left > 0:
        count = min(left, most)
        try:
            end, made = step(payload, position, count)
        except ValueError as error:
            if is_whole:
                raise CorruptMessage(str(error)) from None
            if room >= DECOMPRESSED_LIMIT_BYTES:
                raise DecompressedTooLarge(f"the batch holds more than {DECOMPRESSED_LIMIT_BYTES} bytes") from None
            room *= ROOM_FACTOR
            payload, is_whole = decompress_start(codec, view, min(room, DECOMPRESSED_LIMIT_BYTES))
            continue
        yield made
        position = end
        left -= count
    if is_whole and position != len(payload):
        raise CorruptMessage(f"{len(payload) - position} bytes follow the last record of the batch")


def timestamp_of(raw: RawRecord, header: BatchHeader) -> int:
    """Log append time is one for the whole batch, in its header."""
    if header.has_log_append_time:
        return header.max_timestamp
    timestamp = header.base_timestamp + raw.timestamp_delta
    if not -_INT64_LIMIT <= timestamp < _INT64_LIMIT:
        raise CorruptMessage(f"timestamp {timestamp} does not fit in 64 bits")
    return timestamp


def build_batch(
    records: Sequence[PlainRecord],
    *,
    compression: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """A batch of at least one record, in the given order; `base_offset` defaults to that of the first record."""
    if base_offset is None:
        base_offset = records[0][0]
    base_timestamp = records[0][1] if delete_horizon_ms is None else delete_horizon_ms
    max_timestamp = max(map(_TIMESTAMP_OF, records)) if log_append_time_ms is None else log_append_time_ms
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=compression
        | (TIMESTAMP_TYPE_BIT if log_append_time_ms is not None else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0),
        last_offset_delta=records[-1][0] - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, compress(compression, _encode_records(records, base_offset, base_timestamp), level))


def build_empty_batch(header: BatchHeader) -> bytearray:
    """An empty batch as the cleaner keeps it: offsets, and the last sequence number of its producer."""
    attributes = header.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    return assemble(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def _encode_records(records: Sequence[PlainRecord], base_offset: int, base_timestamp: int) -> bytes:
    """One join of all parts: a loop that appends to a buffer costs twice as much."""
    plain = cast("list[tuple[int, int, bytes | None, bytes | None, Headers]]", records)
    parts = kernels.plain_parts(
        plain if isinstance(records, list) else list(plain), base_offset, base_timestamp, _varints()
    )
    if parts is None:
        parts = []
        for offset, timestamp, key, value, headers in records:
            body = _encode_body(timestamp - base_timestamp, offset - base_offset, key, value, headers)
            parts += (_varint(len(body)), bytes(body))
    return b"".join(parts)


@cache
def _varints() -> list[bytes]:
    """All that have one or two bytes."""
    return [_varint(value) for value in range(_TWO_BYTES_LIMIT)]


def _encode_body(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytearray:
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, key)
    _write_bytes(body, value)
    write_varint(body, len(headers))
    for name, content in headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, content)
    return body


def _write_bytes(output: bytearray, value: bytes | None) -> None:
    if value is None:
        write_varint(output, -1)
    else:
        write_varint(output, len(value))
        output += value


def with_base_timestamp(
    payload: bytes, records: Iterable[RawRecord], old_base_timestamp: int, new_base_timestamp: int
) -> bytearray:
    """The same records, encoded relative to another base timestamp."""
    output = bytearray()
    for record in records:
        head = bytearray(1)
        write_varint(head, old_base_timestamp + record.timestamp_delta - new_base_timestamp)
        write_varint(output, len(head) + record.end - record.offset_position)
        output += head
        output += payload[record.offset_position : record.end]
    return output


def build_end_marker(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    key = _CONTROL_KEY.pack(_CONTROL_VERSION, control_type)
    value = _END_MARKER_VALUE.pack(_CONTROL_VERSION, coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_end_marker(batch: Buffer) -> EndMarker | None:
    """None for a control batch that ends no transaction: one that was cleaned empty, or of another type."""
    for record in records_of(batch):
        if record.key is None or record.value is None or len(record.key) < _CONTROL_KEY.size:
            raise CorruptMessage("a control record needs a key of four bytes and a value")
        _, control_type = _CONTROL_KEY.unpack_from(record.key)
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        if len(record.value) < _END_MARKER_VALUE.size:
            raise CorruptMessage("an end marker needs a value of six bytes")
        _, coordinator_epoch = _END_MARKER_VALUE.unpack_from(record.value)
        header = read_header(batch)
        return EndMarker(ControlType(control_type), header.producer_id, header.producer_epoch, coordinator_epoch)
    return None

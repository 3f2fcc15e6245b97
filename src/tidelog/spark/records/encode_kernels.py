"""Encoding kernel: appends rows of Arrow columns as records to the open batches of their targets."""

import numpy as np

from tidelog.spark.records.arrow_columns import BytesColumn, HeadersColumn
from tidelog.spark.records.kernels import Bytes, Ints, Long, Longs, copy_bytes, kernel
from tidelog.spark.records.open_batches import OpenBatches

_ATTRIBUTES_BYTES = 1


@kernel
def is_set(bitmap: Bytes, bit: Long) -> bool:
    return bool(bitmap[bit >> 3] >> (bit & 7) & 1)


@kernel
def _zigzag(value: Long) -> Long:
    return np.uint64((value << 1) ^ (value >> 63))


@kernel
def _varint_bytes(value: Long) -> Long:
    rest = _zigzag(value) >> np.uint64(7)
    size = 1
    while rest:
        rest >>= np.uint64(7)
        size += 1
    return size


@kernel
def _put_varint(output: Bytes, position: Long, value: Long) -> Long:
    rest = _zigzag(value)
    while rest >= np.uint64(0x80):
        output[position] = np.uint8(rest & np.uint64(0x7F) | np.uint64(0x80))
        rest >>= np.uint64(7)
        position += 1
    output[position] = np.uint8(rest)
    return position + 1


@kernel
def _field_bytes(length: Long) -> Long:
    """Size of a field with its length, which is -1 for null."""
    return _varint_bytes(length) + max(length, 0)


@kernel
def _put_field(output: Bytes, position: Long, data: Bytes, start: Long, length: Long) -> Long:
    position = _put_varint(output, position, length)
    if length > 0:
        copy_bytes(output, position, data, start, length)
        position += length
    return position


@kernel
def _length(validity: Bytes, first_bit: Long, offsets: Ints, row: Long) -> Long:
    """Length of the value in a row of an Arrow column; -1 for null."""
    if validity.size and not is_set(validity, first_bit + row):
        return np.int64(-1)
    return np.int64(offsets[row + 1]) - np.int64(offsets[row])


@kernel
def _headers_bytes(names: BytesColumn, values: BytesColumn, first: Long, end: Long) -> Long:
    size = 0
    for header in range(first, end):
        size += _field_bytes(_length(names.validity, names.first_bit, names.offsets, header))
        size += _field_bytes(_length(values.validity, values.first_bit, values.offsets, header))
    return size


@kernel
def _put_headers(
    output: Bytes, position: Long, names: BytesColumn, values: BytesColumn, first: Long, end: Long
) -> Long:
    for header in range(first, end):
        length = _length(names.validity, names.first_bit, names.offsets, header)
        position = _put_field(output, position, names.data, np.int64(names.offsets[header]), length)
        length = _length(values.validity, values.first_bit, values.offsets, header)
        position = _put_field(output, position, values.data, np.int64(values.offsets[header]), length)
    return position


@kernel
def append_records(
    first_row: Long,
    end_row: Long,
    targets: Ints,
    timestamps: Longs,
    key: BytesColumn,
    value: BytesColumn,
    headers: HeadersColumn,
    batches: OpenBatches,
) -> tuple[Long, Long]:
    """Append rows until `end_row` or the first row without room in its batch; returns that row and its record size."""
    # Arrays are taken out of their tuples once: inside the loop numba would count references for every row.
    key_validity, key_first_bit, key_offsets, key_data = key
    value_validity, value_first_bit, value_offsets, value_data = value
    header_validity, header_first_bit, header_offsets, names, values = headers
    arena, capacity_bytes, max_records, filled_bytes, record_counts, base_timestamps, max_timestamps = batches
    has_headers = header_offsets.size > 0
    first_header: Long = np.int64(0)
    header_count: Long = np.int64(0)
    for row in range(first_row, end_row):
        target = np.int64(targets[row])
        count = record_counts[target]
        timestamp = timestamps[row]
        if count == 0:
            base_timestamps[target] = max_timestamps[target] = timestamp
        timestamp_delta = timestamp - base_timestamps[target]
        key_length = _length(key_validity, key_first_bit, key_offsets, row)
        value_length = _length(value_validity, value_first_bit, value_offsets, row)
        body_bytes = _ATTRIBUTES_BYTES + _varint_bytes(timestamp_delta) + _varint_bytes(count)
        body_bytes += _field_bytes(key_length) + _field_bytes(value_length)
        if has_headers:
            first_header = np.int64(header_offsets[row])
            header_count = max(_length(header_validity, header_first_bit, header_offsets, row), 0)
            body_bytes += _headers_bytes(names, values, first_header, first_header + header_count)
        body_bytes += _varint_bytes(header_count)
        record_bytes = _varint_bytes(body_bytes) + body_bytes
        filled = filled_bytes[target]
        if filled + record_bytes > capacity_bytes or count == max_records:
            return row, record_bytes
        position = _put_varint(arena, target * capacity_bytes + filled, body_bytes)
        arena[position] = 0
        position = _put_varint(arena, position + _ATTRIBUTES_BYTES, timestamp_delta)
        position = _put_varint(arena, position, count)
        position = _put_field(arena, position, key_data, np.int64(key_offsets[row]), key_length)
        position = _put_field(arena, position, value_data, np.int64(value_offsets[row]), value_length)
        position = _put_varint(arena, position, header_count)
        if has_headers:
            _put_headers(arena, position, names, values, first_header, first_header + header_count)
        filled_bytes[target] = filled + record_bytes
        record_counts[target] = count + 1
        max_timestamps[target] = max(max_timestamps[target], timestamp)
    return end_row, np.int64(0)

"""Numba kernels for record batches: big-endian loads, varints, copies, and the scan that finds every field.

Kernels do not trust their input: a scan stays within its bounds and reports malformed bytes by a negative code, so
that a hostile batch causes an error and never a crash.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

Bytes: TypeAlias = npt.NDArray[np.uint8]
Longs: TypeAlias = npt.NDArray[np.int64]
Ints: TypeAlias = npt.NDArray[np.int32]
Long: TypeAlias = Any
"""A number in a kernel: numba treats Python's and numpy's numbers alike, mypy does not."""

Function = TypeVar("Function", bound=Callable[..., Any])

BAD_NUMBER: Final = -1
BAD_RECORD_LENGTH: Final = -2
BAD_FIELD_LENGTH: Final = -3
BAD_HEADER_COUNT: Final = -4
NULL_HEADER_NAME: Final = -5
BAD_RECORD_END: Final = -6
BAD_OFFSET: Final = -7
BAD_TIMESTAMP: Final = -8
BAD_RECORD_COUNT: Final = -9
BAD_BATCH_END: Final = -10
BAD_BOUNDS: Final = -11
"""Error codes of a scan, in place of a position; `error_codes.WHY` has the texts."""

BATCH_START, BATCH_END, RECORD_COUNT, BASE_OFFSET, LAST_OFFSET_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, LOG_APPEND_TIME = (
    range(8)
)
BATCH_FACTS: Final = 8
"""Columns of the batch table of `scan`; start and end are those of the records, without the batch header."""

KEY_START, KEY_LENGTH, VALUE_START, VALUE_LENGTH, HEADERS_START, HEADER_COUNT = range(6)
FIELD_FACTS: Final = 6
"""Rows of the field table that `scan` fills; length -1 is null."""

NAME_START, NAME_LENGTH, HEADER_VALUE_START, HEADER_VALUE_LENGTH = range(4)
HEADER_FACTS: Final = 4

MIN_RECORD_LENGTH: Final = 6
MIN_RECORD_BYTES: Final = 7
MIN_HEADER_BYTES: Final = 2
MICROSECONDS: Final = 1000
MAX_MILLISECONDS: Final = (2**63 - 1) // MICROSECONDS


def kernel(function: Function) -> Function:
    """For kernels called from Python. A kernel allocates nothing, so reference counting of its arrays, which would
    take most of the time of a scan, is off."""
    return _compiled(function, nogil=True, _nrt=False)


def inlined(function: Function) -> Function:
    """For functions that kernels call for every record."""
    return _compiled(function, nogil=True, _nrt=False, forceinline=True)


def _compiled(function: Function, **options: Any) -> Function:
    """Compiled once per machine; once per process if no cache directory can be written."""
    try:
        return cast("Function", njit(function, cache=True, **options))
    except RuntimeError:
        return cast("Function", njit(function, **options))


@intrinsic
def _copy_bytes(_context: Any, target: Any, target_start: Any, source: Any, source_start: Any, count: Any) -> Any:
    """LLVM's memcpy between byte arrays, without bounds checks. Four times as fast as a loop."""
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        origin = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        to, origin = builder.gep(to, [arguments[1]]), builder.gep(origin, [arguments[3]])
        cgutils.raw_memcpy(builder, to, origin, arguments[4], 1)
        return context.get_dummy_value()

    return signature, generate


copy_bytes: Any = _copy_bytes
"""copy_bytes(target, target_start, source, source_start, count)"""


@kernel
def load_int32(buffer: Bytes, position: Long) -> Long:
    value = np.uint32(0)
    for index in range(4):
        value = np.uint32(value << np.uint32(8)) | np.uint32(buffer[position + index])
    return np.int32(value)


@kernel
def load_int64(buffer: Bytes, position: Long) -> Long:
    value = np.uint64(0)
    for index in range(8):
        value = (value << np.uint64(8)) | np.uint64(buffer[position + index])
    return np.int64(value)


@inlined
def from_zigzag(raw: Long) -> Long:
    return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))


@kernel
def read_long_number(buffer: Bytes, position: Long, end: Long, bits: Long) -> tuple[Long, Long]:
    raw = np.uint64(0)
    shift = 0
    while position < end and shift < bits:
        byte = np.uint64(buffer[position])
        position += 1
        group = byte & np.uint64(0x7F)
        if shift + 7 > bits and group >> np.uint64(bits - shift) != 0:
            return np.int64(0), np.int64(BAD_NUMBER)
        raw |= group << np.uint64(shift)
        if byte < 0x80:
            return from_zigzag(raw), np.int64(position)
        shift += 7
    return np.int64(0), np.int64(BAD_NUMBER)


@inlined
def read_number(buffer: Bytes, position: Long, end: Long, bits: Long) -> tuple[Long, Long]:
    """A number of up to `bits` bits in `buffer[position:end]` and the position after it, or BAD_NUMBER.

    Fast path: most numbers have one or two bytes.
    """
    if position < end and buffer[position] < 0x80:
        return from_zigzag(np.uint64(buffer[position])), np.int64(position + 1)
    if position + 1 < end and buffer[position + 1] < 0x80:
        raw = np.uint64(buffer[position] & 0x7F) | np.uint64(buffer[position + 1]) << np.uint64(7)
        return from_zigzag(raw), np.int64(position + 2)
    return read_long_number(buffer, position, end, bits)


@inlined
def read_varint(buffer: Bytes, position: Long, end: Long) -> tuple[Long, Long]:
    return read_number(buffer, position, end, 32)


@inlined
def read_length(buffer: Bytes, position: Long, end: Long) -> tuple[Long, Long]:
    """The length of a field and its start; -1 is null, as for every negative length in Kafka."""
    length, position = read_varint(buffer, position, end)
    if position < 0:
        return length, position
    if length > end - position:
        return length, np.int64(BAD_FIELD_LENGTH)
    return max(length, np.int64(-1)), position


@kernel
def skip_headers(buffer: Bytes, position: Long, end: Long, count: Long) -> Long:
    """The position after `count` headers, all inside `buffer[position:end]`."""
    if count < 0 or count > (end - position) // MIN_HEADER_BYTES:
        return np.int64(BAD_HEADER_COUNT)
    for _ in range(count):
        length, position = read_length(buffer, position, end)
        if position < 0:
            return position
        if length < 0:
            return np.int64(NULL_HEADER_NAME)
        length, position = read_length(buffer, position + length, end)
        if position < 0:
            return position
        position += max(length, 0)
    return position


@inlined
def scan_fields(buffer: Bytes, position: Long, end: Long, row: Long, fields: Longs) -> Long:
    """Key, value and headers of one record that must end at `end`; returns the end, or an error code."""
    length, position = read_length(buffer, position, end)
    if position < 0:
        return position
    fields[KEY_START, row], fields[KEY_LENGTH, row] = position, length
    length, position = read_length(buffer, position + max(length, 0), end)
    if position < 0:
        return position
    fields[VALUE_START, row], fields[VALUE_LENGTH, row] = position, length
    count, position = read_varint(buffer, position + max(length, 0), end)
    if position < 0:
        return position
    fields[HEADERS_START, row], fields[HEADER_COUNT, row] = position, count
    if count != 0:
        position = skip_headers(buffer, position, end, count)
    if position >= 0 and position != end:
        return np.int64(BAD_RECORD_END)
    return position


@inlined
def scan_record(buffer: Bytes, position: Long, batch_end: Long, row: Long, fields: Longs) -> tuple[Long, Long, Long]:
    """The end of the record at `position` or an error code, its timestamp delta and its offset delta."""
    nothing = np.int64(0)
    length, position = read_varint(buffer, position, batch_end)
    if position < 0:
        return position, nothing, nothing
    if length < MIN_RECORD_LENGTH or length > batch_end - position:
        return np.int64(BAD_RECORD_LENGTH), nothing, nothing
    end = position + length
    timestamp_delta, position = read_number(buffer, position + 1, end, 64)
    if position < 0:
        return position, nothing, nothing
    offset_delta, position = read_varint(buffer, position, end)
    if position < 0:
        return position, nothing, nothing
    return scan_fields(buffer, position, end, row, fields), timestamp_delta, offset_delta


@inlined
def timestamp_of(batch: Longs, delta: Long) -> tuple[Long, bool]:
    """Milliseconds, and whether they fit in 64 bits; with log append time all records have that of the batch."""
    if batch[LOG_APPEND_TIME] != 0:
        return batch[MAX_TIMESTAMP], True
    base = batch[BASE_TIMESTAMP]
    timestamp = base + delta
    return timestamp, ((base ^ timestamp) & (delta ^ timestamp)) >= 0


@inlined
def in_microseconds(timestamp_ms: Long) -> tuple[Long, bool]:
    fits = -MAX_MILLISECONDS <= timestamp_ms <= MAX_MILLISECONDS
    return (timestamp_ms if fits else 0) * MICROSECONDS, fits


@kernel
def scan_batch(
    buffer: Bytes,
    batch: Longs,
    start_offset: Long,
    end_offset: Long,
    needs_time: bool,
    row: Long,
    offsets: Longs,
    timestamps: Longs,
    types_of_time: Ints,
    fields: Longs,
) -> tuple[Long, Long, Long]:
    """Returns the row after the last one, the position reached or an error code, and the start of the last record."""
    position, end, count = batch[BATCH_START], batch[BATCH_END], batch[RECORD_COUNT]
    if position < 0 or end < position or end > buffer.shape[0]:
        return row, np.int64(BAD_BOUNDS), position
    if count < 0 or count > offsets.shape[0] - row or count > (end - position) // MIN_RECORD_BYTES:
        return row, np.int64(BAD_RECORD_COUNT), position
    last_delta = np.int64(-1)
    for _ in range(count):
        began = position
        position, timestamp_delta, offset_delta = scan_record(buffer, began, end, row, fields)
        if position < 0:
            return row, position, began
        if offset_delta <= last_delta or offset_delta > batch[LAST_OFFSET_DELTA]:
            return row, np.int64(BAD_OFFSET), began
        last_delta = offset_delta
        timestamp_ms, is_complete = timestamp_of(batch, timestamp_delta)
        timestamp, fits = in_microseconds(timestamp_ms)
        if not is_complete:
            return row, np.int64(BAD_TIMESTAMP), began
        offset = batch[BASE_OFFSET] + offset_delta
        if start_offset <= offset < end_offset:
            if needs_time and not fits:
                return row, np.int64(BAD_TIMESTAMP), began
            offsets[row], timestamps[row] = offset, timestamp
            types_of_time[row] = np.int32(batch[LOG_APPEND_TIME])
            row += 1
    if position != end:
        return row, np.int64(BAD_BATCH_END), position
    return row, position, position


@kernel
def scan(
    buffer: Bytes,
    batches: Longs,
    start_offset: Long,
    end_offset: Long,
    needs_time: bool,
    offsets: Longs,
    timestamps: Longs,
    types_of_time: Ints,
    fields: Longs,
) -> tuple[Long, Long, Long, Long]:
    """Finds the records with `start_offset <= offset < end_offset` in all `batches`, whose records are in `buffer`.

    Returns the number of rows, 0 or an error code, and the batch and byte of the error. A timestamp that does not fit
    microseconds is an error only if `needs_time`.
    """
    row = np.int64(0)
    room = min(offsets.shape[0], timestamps.shape[0], types_of_time.shape[0], fields.shape[1])
    for index in range(batches.shape[0]):
        if batches[index, RECORD_COUNT] > room - row:
            return row, np.int64(BAD_RECORD_COUNT), np.int64(index), batches[index, BATCH_START]
        row, position, began = scan_batch(
            buffer,
            batches[index],
            start_offset,
            end_offset,
            needs_time,
            row,
            offsets,
            timestamps,
            types_of_time,
            fields,
        )
        if position < 0:
            return row, position, np.int64(index), began
    return row, np.int64(0), np.int64(0), np.int64(0)


@kernel
def locate_headers(buffer: Bytes, end: Long, starts: Longs, counts: Longs, list_offsets: Ints, located: Longs) -> Long:
    """Positions of the headers of scanned records, and list offsets of the rows; the number of headers, or -1."""
    total = 0
    list_offsets[0] = 0
    for row in range(starts.shape[0]):
        position = starts[row]
        if counts[row] > located.shape[1] - total:
            return np.int64(BAD_HEADER_COUNT)
        for _ in range(counts[row]):
            length, position = read_length(buffer, position, end)
            if position < 0 or length < 0:
                return np.int64(BAD_FIELD_LENGTH)
            located[NAME_START, total], located[NAME_LENGTH, total] = position, length
            length, position = read_length(buffer, position + length, end)
            if position < 0:
                return np.int64(BAD_FIELD_LENGTH)
            located[HEADER_VALUE_START, total], located[HEADER_VALUE_LENGTH, total] = position, length
            position += max(length, 0)
            total += 1
        list_offsets[row + 1] = total
    return total


@kernel
def offsets_of(lengths: Longs, offsets: Ints) -> tuple[Long, Long]:
    """Arrow offsets for fields of these lengths; returns their total size and the number of nulls."""
    total, nulls = np.int64(0), np.int64(0)
    offsets[0] = 0
    for row in range(lengths.shape[0]):
        length = lengths[row]
        total += max(length, 0)
        nulls += length < 0
        offsets[row + 1] = np.int32(total)
    return total, nulls


@kernel
def mark_valid(lengths: Longs, smallest_valid: Long, bitmap: Bytes) -> None:
    """Arrow validity bits, least significant first: set where the length is at least `smallest_valid`."""
    bitmap[:] = 0
    for row in range(lengths.shape[0]):
        if lengths[row] >= smallest_valid:
            bitmap[row >> 3] |= np.uint8(1 << (row & 7))


@kernel
def gather(buffer: Bytes, starts: Longs, lengths: Longs, output: Bytes) -> Long:
    """Copies the fields one after another; returns the bytes written, or BAD_BOUNDS instead of leaving an array."""
    written = np.int64(0)
    for row in range(starts.shape[0]):
        start, length = starts[row], lengths[row]
        if length > 0:
            if start < 0 or length > buffer.shape[0] - start or length > output.shape[0] - written:
                return np.int64(BAD_BOUNDS)
            copy_bytes(output, written, buffer, start, length)
            written += length
    return written

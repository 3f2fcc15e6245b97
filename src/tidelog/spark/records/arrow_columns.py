"""Arrow columns for kernels: the underlying buffers as numpy arrays, always of the same few types.

Any other combination of types (another width, writable instead of read-only) would make numba compile again.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.spark.records.kernels import Bytes, Ints


class BytesColumn(NamedTuple):
    """Row `i` is `data[offsets[i]:offsets[i + 1]]`; it is null where bit `first_bit + i` of `validity` is 0."""

    validity: Bytes
    """Empty if no row is null."""
    first_bit: int
    offsets: Ints
    data: Bytes


class HeadersColumn(NamedTuple):
    """Row `i` has the headers `offsets[i]` to `offsets[i + 1]` of `names` and `values`."""

    validity: Bytes
    first_bit: int
    offsets: Ints
    """Empty if no row has headers."""
    names: BytesColumn
    values: BytesColumn


class NumbersColumn(NamedTuple):
    """Numbers; null where the bit is 0."""

    validity: Bytes
    first_bit: int
    numbers: Ints
    """Empty if the column does not exist."""


def bytes_column(array: pa.Array) -> BytesColumn:
    """From strings or binary of any width."""
    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = _narrow(array)
    validity, offsets, data = array.buffers()
    return BytesColumn(
        _validity(array, validity), array.offset, _offsets(array, offsets), _read_only(data, np.uint8, 0, -1)
    )


def no_bytes(row_count: int) -> BytesColumn:
    """A column of nulls."""
    validity, offsets = np.zeros((row_count + 7) // 8, np.uint8), np.zeros(row_count + 1, np.int32)
    validity.flags.writeable = offsets.flags.writeable = False
    return BytesColumn(validity, 0, offsets, _nothing(np.uint8))


def headers_column(array: pa.Array) -> HeadersColumn:
    """From lists of structs `key`, `value`."""
    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    validity, offsets = array.buffers()[:2]
    names, values = array.values.field("key"), array.values.field("value")
    return HeadersColumn(
        _validity(array, validity), array.offset, _offsets(array, offsets), bytes_column(names), bytes_column(values)
    )


def no_headers() -> HeadersColumn:
    return HeadersColumn(_nothing(np.uint8), 0, _nothing(np.int32), no_bytes(0), no_bytes(0))


def numbers_column(array: pa.Array) -> NumbersColumn:
    """From integers that fit in 32 bits."""
    if not pa.types.is_int32(array.type):
        array = array.cast(pa.int32())
    validity, numbers = array.buffers()
    return NumbersColumn(
        _validity(array, validity), array.offset, _read_only(numbers, np.int32, array.offset, len(array))
    )


def no_numbers() -> NumbersColumn:
    return NumbersColumn(_nothing(np.uint8), 0, _nothing(np.int32))


def _narrow(array: pa.Array) -> pa.Array:
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    return array.cast(pa.binary())


def _validity(array: pa.Array, buffer: pa.Buffer | None) -> Bytes:
    return _read_only(buffer if array.null_count else None, np.uint8, 0, -1)


def _offsets(array: pa.Array, buffer: pa.Buffer | None) -> Ints:
    if len(array) == 0:  # Arrow allows an empty offsets buffer in this case
        return no_bytes(0).offsets
    return _read_only(buffer, np.int32, array.offset, len(array) + 1)


def _read_only(buffer: pa.Buffer | None, kind: Any, start: int, count: int) -> npt.NDArray[Any]:
    if buffer is None or buffer.size == 0:
        return _nothing(kind)
    array = np.frombuffer(buffer, kind, count, start * np.dtype(kind).itemsize)
    array.flags.writeable = False
    return array


def _nothing(kind: Any) -> npt.NDArray[Any]:
    array = np.empty(0, kind)
    array.flags.writeable = False
    return array

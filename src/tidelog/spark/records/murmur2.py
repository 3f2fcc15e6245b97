"""Where Kafka's own clients put a key: murmur2 of its bytes, for whole columns of keys at a time."""

import numpy as np
import pyarrow as pa

from tidelog.spark.records.arrow_columns import BytesColumn, bytes_column
from tidelog.spark.records.encode_kernels import is_set
from tidelog.spark.records.kernels import Bytes, Ints, Long, kernel

_SEED = np.uint32(0x9747B28C)
_MULTIPLIER = np.uint32(0x5BD1E995)

NO_PARTITION = -1


@kernel
def murmur2(data: Bytes, start: Long, length: Long) -> Long:
    """As Kafka's Java clients compute it, here without a sign."""
    hashed = _SEED ^ np.uint32(length)
    whole_end = start + (length & ~3)
    for position in range(start, whole_end, 4):
        word = np.uint32(
            np.uint32(data[position])
            | np.uint32(data[position + 1]) << np.uint32(8)
            | np.uint32(data[position + 2]) << np.uint32(16)
            | np.uint32(data[position + 3]) << np.uint32(24)
        )
        word = np.uint32(word * _MULTIPLIER)
        word = np.uint32((word ^ word >> np.uint32(24)) * _MULTIPLIER)
        hashed = np.uint32(hashed * _MULTIPLIER) ^ word
    if length & 3:
        for index in range(length & 3):
            hashed ^= np.uint32(data[whole_end + index]) << np.uint32(8 * index)
        hashed = np.uint32(hashed * _MULTIPLIER)
    hashed = np.uint32((hashed ^ hashed >> np.uint32(13)) * _MULTIPLIER)
    return np.uint32(hashed ^ hashed >> np.uint32(15))


@kernel
def partition_of_key(data: Bytes, start: Long, length: Long, partition_count: Long) -> Long:
    return np.int64(murmur2(data, start, length) & np.uint32(0x7FFFFFFF)) % partition_count


@kernel
def _partitions_of_keys(keys: BytesColumn, partition_count: Long, partitions: Ints) -> None:
    validity, first_bit, offsets, data = keys
    for row in range(partitions.size):
        if validity.size == 0 or is_set(validity, first_bit + row):
            start = np.int64(offsets[row])
            partitions[row] = partition_of_key(data, start, np.int64(offsets[row + 1]) - start, partition_count)


def partition_of_keys(keys: pa.Array, partition_count: int) -> Ints:
    """The partition of each key, NO_PARTITION where it is null."""
    partitions = np.full(len(keys), NO_PARTITION, np.int32)
    _partitions_of_keys(bytes_column(keys), partition_count, partitions)
    return partitions

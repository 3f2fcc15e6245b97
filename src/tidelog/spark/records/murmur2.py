"""Kafka's default partitioner for keys: murmur2 of the key's bytes."""

import numpy as np

from tidelog.spark.records.kernels import Bytes, Long, kernel

_SEED = np.uint32(0x9747B28C)
_MULTIPLIER = np.uint32(0x5BD1E995)


@kernel
def murmur2(data: Bytes, start: Long, length: Long) -> Long:
    """Same as Kafka's Java clients, as an unsigned number."""
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

"""Partition of an internal topic for a key (Kafka: partitionFor), by Java's String.hashCode."""

import struct
from functools import lru_cache
from typing import Final

_MAX_CACHED_KEYS: Final = 65_536
_MAX_CACHED_KEY_LENGTH: Final = 256
"""Longest key that is cached, in characters, so that clients with very long keys cannot fill the memory."""
_SIGN_BIT: Final = 1 << 31


def partition_for(key: str, partition_count: int) -> int:
    if len(key) > _MAX_CACHED_KEY_LENGTH:
        return _partition_for(key, partition_count)
    return _cached_partition_for(key, partition_count)


def _partition_for(key: str, partition_count: int) -> int:
    return _absolute(java_hash(key)) % partition_count


_cached_partition_for = lru_cache(maxsize=_MAX_CACHED_KEYS)(_partition_for)


def java_hash(text: str) -> int:
    """Java's String.hashCode over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        hashed = (hashed * 31 + unit) & 0xFFFF_FFFF
    return hashed - ((hashed & _SIGN_BIT) << 1)


def _absolute(number: int) -> int:
    """As Kafka's Utils.abs: the smallest integer, which has no positive counterpart, becomes 0."""
    return 0 if number == -_SIGN_BIT else abs(number)

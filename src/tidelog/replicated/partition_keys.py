"""Which partition of an internal topic keeps a key, as Kafka counts it: by the hash that Java gives to texts."""

import struct
from functools import lru_cache
from typing import Final

_REMEMBERED_KEYS: Final = 65_536
_MAX_REMEMBERED_LENGTH: Final = 256
"""Whoever asks for keys of thirty thousand letters must not fill the memory with them."""
_SIGN_BIT: Final = 1 << 31


def partition_for(key: str, partition_count: int) -> int:
    if len(key) > _MAX_REMEMBERED_LENGTH:
        return _partition_for(key, partition_count)
    return _remembered_partition_for(key, partition_count)


def _partition_for(key: str, partition_count: int) -> int:
    return _absolute(java_hash(key)) % partition_count


_remembered_partition_for = lru_cache(maxsize=_REMEMBERED_KEYS)(_partition_for)


def java_hash(text: str) -> int:
    """Java's String.hashCode, which counts UTF-16 units, in signed 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        hashed = (hashed * 31 + unit) & 0xFFFF_FFFF
    return hashed - ((hashed & _SIGN_BIT) << 1)


def _absolute(number: int) -> int:
    """As Kafka's: the one number without a positive twin counts as 0."""
    return 0 if number == -_SIGN_BIT else abs(number)

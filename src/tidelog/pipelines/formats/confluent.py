"""Confluent's schema registry prefix: a zero byte, the schema id and, for Protobuf, the message indexes."""

import struct

MAGIC = 0
PREFIX_BYTES = 5
MAX_VARINT_BYTES = 10


class BadPrefix(ValueError):
    pass


def has_prefix(value: bytes) -> bool:
    return len(value) >= PREFIX_BYTES and value[0] == MAGIC


def prefix(schema_id: int) -> bytes:
    return struct.pack(">bI", MAGIC, schema_id)


def after_prefix(value: bytes) -> bytes:
    if not has_prefix(value):
        raise BadPrefix("the value has no schema registry prefix")
    return value[PREFIX_BYTES:]


def after_message_indexes(value: bytes) -> bytes:
    """A count, then that many indexes, as zigzag varints. A count of 0 means the first message of the file."""
    return value[_read_indexes(value)[1] :]


def message_indexes(value: bytes) -> tuple[int, ...]:
    """Position of the message in its file; each further index is that of a nested message. Raises BadPrefix."""
    return _read_indexes(value)[0] or (0,)


def _read_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    count, position = _varint(value, PREFIX_BYTES)
    indexes = []
    for _ in range(count):
        index, position = _varint(value, position)
        indexes.append(index)
    return tuple(indexes), position


def _varint(value: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(MAX_VARINT_BYTES):
        if position >= len(value):
            break
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise BadPrefix("the message indexes after the schema id are truncated")

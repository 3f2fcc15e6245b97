"""Confluent's schema registry prefix: a zero byte, the schema id and, for Protobuf, the message indexes."""

import struct

MAGIC = 0
PREFIX_BYTES = 5
MAX_VARINT_BYTES = 10
MAX_NESTED_MESSAGES = 64
FIRST_MESSAGE = (0,)
"""Place of the first message type of a file."""


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


def schema_id_in(value: bytes) -> int:
    """Of a value with a prefix."""
    return int.from_bytes(value[1:PREFIX_BYTES], "big")


def after_message_indexes(value: bytes) -> bytes:
    return split_message_indexes(value)[1]


def split_message_indexes(value: bytes) -> tuple[tuple[int, ...], bytes]:
    """The place of the message type in its file, and the message.

    A count, then that many indexes, as zigzag varints. A count of 0 means the first message of the file."""
    count, position = _varint(value, PREFIX_BYTES)
    if not 0 <= count <= MAX_NESTED_MESSAGES:
        raise BadPrefix(
            f"the schema id is followed by {count} message indexes, at most {MAX_NESTED_MESSAGES} are valid"
        )
    indexes = []
    for _ in range(count):
        index, position = _varint(value, position)
        indexes.append(index)
    return tuple(indexes) or FIRST_MESSAGE, value[position:]


def message_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == FIRST_MESSAGE:
        return b"\0"
    return b"".join(map(_zigzag, (len(indexes), *indexes)))


def _zigzag(number: int) -> bytes:
    """Of a number that is not negative."""
    number <<= 1
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


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

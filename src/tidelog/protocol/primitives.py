"""Runtime functions of generated decoders and encoders: varints, long strings, tagged fields."""

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tidelog.protocol.errors import MalformedMessage, TooManyElements, UnencodableMessage
from tidelog.types import Buffer

MAX_TEXT_BYTES = 32767
SHORT_LENGTH_END = 128
"""Lengths below fit one byte of a variable-length integer."""

SMALL_ARRAY_END = 8
"""Arrays below have their own compiled struct: the replicas of a partition, mostly."""

TEXT_READERS: list[Callable[[Buffer, int], tuple[bytes]]] = [
    struct.Struct(f"{length}s").unpack_from for length in range(SHORT_LENGTH_END)
]
"""Structs by length. Unpacking copies bytes in one step, and raises where a slice would be too short."""

COMPACT_TEXT_READERS = [TEXT_READERS[0], *TEXT_READERS[:-1]]
"""Structs by length plus one, as in a compact string."""

SHORT_VARINTS = [bytes([value]) for value in range(SHORT_LENGTH_END)]


def finish_varint(view: Buffer, position: int, first_byte: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint. Its first byte, which is above 127, was read already."""
    value = first_byte & 0x7F
    shift = 7
    while shift < 35:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return value, position
        shift += 7
    raise MalformedMessage("a variable-length integer has more than 32 bits")


def read_varint(view: Buffer, position: int) -> tuple[int, int]:
    first_byte = view[position]
    if first_byte < 0x80:
        return first_byte, position + 1
    return finish_varint(view, position + 1, first_byte)


def varint(value: int) -> bytes:
    if value < 0x80:
        return SHORT_VARINTS[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    rest = bytearray()
    while value >= 0x80:
        rest.append(value & 0x7F | 0x80)
        value >>= 7
    rest.append(value)
    return bytes(rest)


def read_long_text(view: Buffer, position: int, length: int) -> tuple[str, int]:
    """A string of any length. Short ones are decoded inline."""
    if length < 0:
        raise MalformedMessage("null for a text that must not be null")
    if length > MAX_TEXT_BYTES:
        raise MalformedMessage(f"a text claims {length} bytes")
    end = position + length
    if end > len(view):
        raise cut_short()
    return str(view[position:end], "utf-8"), end


def read_long_compact_text(view: Buffer, position: int, first_byte: int) -> tuple[str, int]:
    length = first_byte
    if first_byte > 0x7F:
        length, position = finish_varint(view, position, first_byte)
    return read_long_text(view, position, length - 1)


def text_length(length_plus_one: int) -> bytes:
    """The length before a compact string."""
    if length_plus_one > MAX_TEXT_BYTES + 1:
        raise UnencodableMessage(f"a text has {length_plus_one - 1} bytes, {MAX_TEXT_BYTES} are allowed")
    return varint(length_plus_one)


@cache
def array_reader(code: str) -> Callable[[Buffer, int, int], list[Any]]:
    """Reads `count` values of one `struct` letter; the caller has checked that they are there."""
    readers = [struct.Struct(f">{count}{code}").unpack_from for count in range(SMALL_ARRAY_END)]

    def read_values(view: Buffer, position: int, count: int) -> list[Any]:
        if count < SMALL_ARRAY_END:
            return list(readers[count](view, position))
        return list(struct.unpack_from(f">{count}{code}", view, position))

    return read_values


@cache
def array_writer(code: str) -> Callable[[Sequence[Any]], bytes]:
    packers = [struct.Struct(f">{count}{code}").pack for count in range(SMALL_ARRAY_END)]

    def pack_values(values: Sequence[Any]) -> bytes:
        count = len(values)
        return packers[count](*values) if count < SMALL_ARRAY_END else struct.pack(f">{count}{code}", *values)

    return pack_values


def skip_tags(view: Buffer, position: int, count: int) -> int:
    """Skips unknown tagged fields, which newer peers may send."""
    for _ in range(count):
        _, position = read_varint(view, position)
        size_bytes, position = read_varint(view, position)
        position += size_bytes
        if position > len(view):
            raise cut_short()
    return position


def tagged_field(tag: int, parts: list[bytes]) -> bytes:
    content = b"".join(parts)
    if tag < 0x80 and len(content) < 0x80:
        return SHORT_VARINTS[tag] + SHORT_VARINTS[len(content)] + content
    return varint(tag) + varint(len(content)) + content


def cut_short() -> MalformedMessage:
    return MalformedMessage("the message ends inside a value")


def bad_count(count: int, remaining_bytes: int) -> MalformedMessage:
    if count < 0:
        return MalformedMessage("null for an array that must not be null")
    return MalformedMessage(f"an array claims {count} elements, {remaining_bytes} bytes remain")


def too_many_elements(count: int) -> TooManyElements:
    return TooManyElements(f"an array or a set of tagged fields claims {count} elements, more than are allowed in all")


def too_many_tags(count: int) -> MalformedMessage:
    return MalformedMessage(f"a struct claims {count} tagged fields")


def null_value() -> MalformedMessage:
    return MalformedMessage("null for a value that must not be null")


def bad_tag_size(tag: int) -> MalformedMessage:
    return MalformedMessage(f"the tagged field {tag} does not fill its size")

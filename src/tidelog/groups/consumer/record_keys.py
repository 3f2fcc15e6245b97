"""Keys of consumer group records: the version is the type of the record, the group and perhaps a second name follow.

Encoded and decoded by hand, as the keys of offsets are: a member that joins writes five of them.
"""

# Core: no clock, no I/O, no await.

import struct
from typing import Final

from tidelog.protocol.errors import MalformedMessage, UnencodableMessage

GROUP: Final = 3
MEMBER: Final = 5
ASSIGNMENT_EPOCH: Final = 6
TARGET: Final = 7
CURRENT_ASSIGNMENT: Final = 8
EXPRESSION: Final = 16
WITH_SECOND_NAME: Final = (MEMBER, TARGET, CURRENT_ASSIGNMENT, EXPRESSION)
"""The id of a member, or a regular expression."""

_MAX_STRING_BYTES: Final = 2**15 - 1
_START: Final = struct.Struct(">hh")
_LENGTH: Final = struct.Struct(">h")


def encode_key(version: int, group_id: str, second_name: str | None = None) -> bytes:
    """Raises UnencodableMessage."""
    group = group_id.encode()
    second = b"" if second_name is None else second_name.encode()
    if len(group) > _MAX_STRING_BYTES or len(second) > _MAX_STRING_BYTES:
        raise UnencodableMessage(
            f"a key has names of {_MAX_STRING_BYTES} bytes at most, not {len(group)} and {len(second)}"
        )
    start = _START.pack(version, len(group)) + group
    return start if second_name is None else start + _LENGTH.pack(len(second)) + second


def decode_key(version: int, key: bytes) -> tuple[str, str]:
    """The group and the second name, which is empty if there is none. Raises MalformedMessage."""
    try:
        _, length = _START.unpack_from(key)
        second_start = end = _START.size + length
        if version in WITH_SECOND_NAME:
            (second_length,) = _LENGTH.unpack_from(key, end)
            second_start += _LENGTH.size
            end = second_start + second_length
        if length < 0 or end < second_start or end != len(key):
            raise MalformedMessage(f"the names in the key of a consumer group end after {end} bytes, not {len(key)}")
        return str(key[_START.size : _START.size + length], "utf-8"), str(key[second_start:end], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"the key of a consumer group: {error}") from None

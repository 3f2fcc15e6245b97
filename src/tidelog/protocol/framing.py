"""Frames: every request and response is preceded by its length in four bytes."""

import struct

from tidelog.protocol.errors import MalformedMessage
from tidelog.types import Buffer

LENGTH_BYTES = 4
_LENGTH = struct.Struct(">i")


def frame_length(view: Buffer, position: int, max_bytes: int) -> int:
    """The length of the frame whose four length bytes are at `position`; the caller has made sure they are there."""
    length: int = _LENGTH.unpack_from(view, position)[0]
    if not 0 <= length <= max_bytes:
        raise MalformedMessage(f"a frame claims {length} bytes, {max_bytes} are allowed")
    return length


def length_prefix(length: int) -> bytes:
    return _LENGTH.pack(length)

"""Keys and values of internal topics: a version, then a message."""

from typing import TypeVar

from tidelog.protocol.codec import decode, encode
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.structs import Message
from tidelog.types import Buffer

M = TypeVar("M", bound=Message)

VERSION_BYTES = 2


def version_of(data: Buffer) -> int:
    if len(data) < VERSION_BYTES:
        raise MalformedMessage(f"{len(data)} bytes are less than a version")
    return int.from_bytes(data[:VERSION_BYTES], "big", signed=True)


def encode_versioned(message: Message, version: int) -> bytes:
    return version.to_bytes(VERSION_BYTES, "big", signed=True) + encode(message, version)


def decode_versioned(message: type[M], data: Buffer) -> M:
    """Raises MalformedMessage, or UnsupportedVersion for a version that the message does not have."""
    return decode(message, version_of(data), memoryview(data)[VERSION_BYTES:])

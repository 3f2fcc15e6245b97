"""Keys and values of internal topics: a version, then a message."""

from typing import Any, TypeVar

from tidelog.protocol.codec import decoder, encoder
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
    parts: list[Any] = [version.to_bytes(VERSION_BYTES, "big", signed=True)]
    encoder(type(message), version)(message, parts.append)
    return b"".join(parts)


def decode_versioned(message: type[M], data: Buffer) -> M:
    """Raises MalformedMessage, or UnsupportedVersion for a version that the message does not have."""
    return decoder(message, version_of(data))(memoryview(data), VERSION_BYTES)[0]

"""Message codec: decoders and encoders, compiled on first use."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from tidelog.errors import UnsupportedVersion
from tidelog.protocol.decoding import compile_decoder
from tidelog.protocol.encoding import compile_encoder
from tidelog.protocol.structs import Message
from tidelog.runtime.disk import FileSlice
from tidelog.types import Buffer

M = TypeVar("M", bound=Message)

Part: TypeAlias = Buffer | FileSlice
Decoder: TypeAlias = Callable[..., tuple[M, int]]
"""Arguments: the frame, the position and, optionally, another limit of array elements."""
Encoder: TypeAlias = Callable[[M, Callable[[Part], object]], None]

_decoders: dict[tuple[type[Message], int], Decoder[Any]] = {}
_encoders: dict[tuple[type[Message], int], Encoder[Any]] = {}


def decoder(message: type[M], version: int) -> Decoder[M]:
    """Reads a message at a position of a frame. Returns it and the position after it. Raises MalformedMessage.

    Records are views into the frame. Bytes after the message are ignored.
    """
    found = _decoders.get((message, version))
    return found if found is not None else _compile_decoder(message, version)


def encoder(message: type[M], version: int) -> Encoder[M]:
    """Passes the encoded parts of a message to `write`, in order. Records are not copied. Raises UnencodableMessage."""
    found = _encoders.get((message, version))
    return found if found is not None else _compile_encoder(message, version)


def encode(message: Message, version: int) -> bytes:
    parts: list[Part] = []
    encoder(type(message), version)(message, parts.append)
    return b"".join([part.read() if isinstance(part, FileSlice) else part for part in parts])


def decode(message: type[M], version: int, frame: Buffer) -> M:
    return decoder(message, version)(memoryview(frame), 0)[0]


def _compile_decoder(message: type[M], version: int) -> Decoder[M]:
    _check_version(message, version)
    compiled = _decoders[message, version] = compile_decoder(message, version)
    return compiled


def _compile_encoder(message: type[M], version: int) -> Encoder[M]:
    _check_version(message, version)
    compiled = _encoders[message, version] = compile_encoder(message, version)
    return compiled


def _check_version(message: type[Message], version: int) -> None:
    if version not in message.__versions__:
        raise UnsupportedVersion(f"{message.__name__} has versions {message.__versions__}, not {version}")

"""Request and response headers; their version depends on the API and its version."""

import struct
from collections.abc import Callable
from typing import NamedTuple

from tidelog.protocol.apis import API_KEYS, API_VERSIONS_KEY
from tidelog.protocol.errors import MalformedMessage, UnknownApi
from tidelog.protocol.fields import LAST_VERSION
from tidelog.protocol.primitives import SHORT_LENGTH_END, TEXT_READERS, read_long_text, skip_tags, too_many_tags
from tidelog.types import Buffer

MAX_HEADER_TAGS = 127
"""Maximum number of tagged fields whose count fits in one byte; no header has any today."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


_FIXED_PART = struct.Struct(">hhih")
_FIXED_PART_BYTES = 10
_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AND_NO_TAGS = struct.Struct(">ix")

_unpack_fixed_part = _FIXED_PART.unpack_from

_FLEXIBLE_FROM = {key: api.flexible_from for key, api in API_KEYS.items()}

# Always header version 0: a client that does not know the broker's versions yet must be able to read the response.
_RESPONSE_FLEXIBLE_FROM = _FLEXIBLE_FROM | {API_VERSIONS_KEY: LAST_VERSION + 1}


def read_request_header(view: Buffer) -> tuple[RequestHeader, int]:
    """The header and the position after it. Raises MalformedMessage, or UnknownApi for an unknown API key."""
    *fields, position = parse_request_header(view)
    return RequestHeader._make(fields), position


def parse_request_header(view: Buffer) -> tuple[int, int, int, str | None, int]:
    """The fields of the header and the position after it, without an object for every request of a broker."""
    try:
        api_key, api_version, correlation_id, length = _unpack_fixed_part(view, 0)
        flexible_from = _FLEXIBLE_FROM.get(api_key)
        if flexible_from is None:
            raise UnknownApi(api_key, api_version, correlation_id)
        # In both header versions the client id has a length of two bytes, unlike all other texts of flexible messages.
        position = _FIXED_PART_BYTES
        client_id: str | None
        if 0 <= length < SHORT_LENGTH_END:
            client_id = TEXT_READERS[length](view, position)[0].decode()
            position += length
        elif length < 0:
            client_id = None
        else:
            client_id, position = read_long_text(view, position, length)
        if api_version >= flexible_from:
            tags = view[position]
            position += 1
            if tags:
                position = _skip_tags(view, position, tags)
        return api_key, api_version, correlation_id, client_id, position
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"request header: {error}") from None


def _skip_tags(view: Buffer, position: int, count: int) -> int:
    if count > MAX_HEADER_TAGS:
        raise too_many_tags(count)
    return skip_tags(view, position, count)


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    client = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(client)
    tags = b"\0" if api_version >= _FLEXIBLE_FROM[api_key] else b""
    return _FIXED_PART.pack(api_key, api_version, correlation_id, length) + client + tags


def response_header_writer(api_key: int, api_version: int) -> Callable[[int], bytes]:
    """Takes the correlation id, returns the response header."""
    if api_version >= _RESPONSE_FLEXIBLE_FROM[api_key]:
        return _CORRELATION_ID_AND_NO_TAGS.pack
    return _CORRELATION_ID.pack


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    return response_header_writer(api_key, api_version)(correlation_id)


def read_response_header(view: Buffer, api_key: int, api_version: int) -> tuple[int, int]:
    """The correlation id and the position after the header."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(view, 0)
        if api_version < _RESPONSE_FLEXIBLE_FROM[api_key]:
            return correlation_id, 4
        return correlation_id, _skip_tags(view, 5, view[4])
    except (struct.error, IndexError) as error:
        raise MalformedMessage(f"response header: {error}") from None

"""JSON of znodes: checked fields, and the error for malformed content."""

# Core: no clock, no I/O, no await.

import json
from collections.abc import Mapping
from typing import Any

INT32 = range(-(2**31), 2**31 - 1)
"""Range of ids and epochs on the wire; the upper end leaves room for the next epoch."""
INT64 = range(-(2**63), 2**63)


class MalformedNode(Exception):
    """A node does not have the content that Kafka writes."""


def text_or_none(value: object) -> str | None:
    if isinstance(value, str):
        value.encode()
    elif value is not None:
        raise TypeError(f"not a string: {value!r}")
    return value


def int32(value: object) -> int:
    if isinstance(value, int) and value in INT32:
        return value
    raise ValueError(f"not an id or epoch: {value!r}")


def int64(value: object) -> int:
    if isinstance(value, int) and value in INT64:
        return value
    raise ValueError(f"not a broker epoch: {value!r}")


def node_name(value: object) -> str:
    if isinstance(value, str) and value and "/" not in value and value not in (".", ".."):
        value.encode()
        return value
    raise ValueError(f"not the id of a log directory: {value!r}")


def decode_field(data: bytes, path: str, name: str) -> Any:
    try:
        return decode_json(data, path)[name]
    except KeyError as error:
        raise MalformedNode(f"{path}: no {name}") from error


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
"""Made once: `json.dumps` would make one for every state of a failover."""


def encode_json(content: Mapping[str, object]) -> bytes:
    return _ENCODER.encode(content).encode()


def decode_json(data: bytes, path: str) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedNode(f"{path}: not JSON") from error
    if not isinstance(content, dict):
        raise MalformedNode(f"{path}: not a JSON object")
    return content

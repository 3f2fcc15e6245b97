"""Output formats of `tidelog consume`: a format string with %-fields, or JSON."""

import base64
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.client.consumer.fetched_records import ConsumedRecord

NULL = b"null"

_FIELDS: "dict[str, Callable[[ConsumedRecord], bytes]]" = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: NULL if record.key is None else record.key,
    "v": lambda record: NULL if record.value is None else record.value,
    "h": lambda record: b",".join(
        name.encode() + b"=" + (NULL if value is None else value) for name, value in record.headers
    ),
}
_BACKSLASH_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
_BACKSLASH_ESCAPE = re.compile(r"\\[tnr0\\]")
_ESCAPES = {"%%": b"%", **{escape: text.encode() for escape, text in _BACKSLASH_ESCAPES.items()}}
_TOKEN = re.compile(r"%.?|\\[tnr0\\]|[^%\\]+|\\", re.DOTALL)


class BadFormat(ValueError):
    """Unknown field in a format string; the message names it."""


def unescaped(text: str) -> str:
    """The same backslash escapes as in a format; shells pass '\\t' as two characters."""
    return _BACKSLASH_ESCAPE.sub(lambda found: _BACKSLASH_ESCAPES[found[0]], text)


def check_format(text: str) -> str:
    for token in _TOKEN.findall(text):
        if token.startswith("%") and token not in _ESCAPES and token[1:] not in _FIELDS:
            known = " ".join(f"%{name}" for name in _FIELDS)
            raise BadFormat(f"unknown field {token}; fields are {known} %%")
    return text


def formatter(text: str, decode: "Callable[[bytes], Any] | None" = None) -> "Callable[[ConsumedRecord], bytes]":
    """`decode` makes the value something that JSON can write."""
    parts = [_part(token) for token in _TOKEN.findall(text)]
    if decode is not None:
        plain = _FIELDS["v"]
        parts = [_decoded_value(decode) if part is plain else part for part in parts]

    def line(record: "ConsumedRecord") -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(record) for part in parts]) + b"\n"

    return line


def _decoded_value(decode: "Callable[[bytes], Any]") -> "Callable[[ConsumedRecord], bytes]":
    def text(record: "ConsumedRecord") -> bytes:
        if record.value is None:
            return NULL
        try:
            return json.dumps(decode(record.value), ensure_ascii=False).encode()
        except Exception:  # noqa: BLE001
            return record.value

    return text


def _part(token: str) -> "bytes | Callable[[ConsumedRecord], bytes]":
    if token in _ESCAPES:
        return _ESCAPES[token]
    return _FIELDS[token[1:]] if token.startswith("%") else token.encode()


def json_line(record: "ConsumedRecord", decode: "Callable[[bytes], Any] | None" = None) -> bytes:
    """UTF-8 as text, other bytes as base64 under a key that says so. `decode` makes the value an object."""
    described = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **readable("key", record.key),
        **_value(record.value, decode),
        "headers": [{"key": name, **readable("value", value)} for name, value in record.headers],
    }
    return json.dumps(described, ensure_ascii=False).encode() + b"\n"


def _value(value: bytes | None, decode: "Callable[[bytes], Any] | None") -> dict[str, object]:
    if value is None or decode is None:
        return {**readable("value", value)}
    try:
        return {"value": decode(value)}
    except Exception as error:  # noqa: BLE001
        return {"value_base64": base64.b64encode(value).decode(), "value_error": f"{type(error).__name__}: {error}"}


def readable(name: str, value: bytes | None) -> dict[str, str | None]:
    """UTF-8 as text, other bytes as base64 under another name."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}

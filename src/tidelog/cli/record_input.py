"""Records from lines of JSON, as `tidelog consume --json` prints them."""

# Core: no clock, no I/O, no await.

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from tidelog.protocol.records import Headers

BYTES_FIELDS = ("key", "value")
MAX_NUMBER = 2**63 - 1
IGNORED = ("topic", "offset")
"""Fields that `tidelog consume --json` prints, so that its output can be produced again."""
FIELDS = ("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp")


class BadRecord(ValueError):
    """The message says what is wrong with the line."""


class InputRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    """None: a tombstone, which deletes the key in a compacted topic."""
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def json_record(line: bytes) -> InputRecord:
    try:
        found = json.loads(line, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise BadRecord('is not a JSON object such as {"key": "a", "value": "b"}')
    unknown = [name for name in found if name not in FIELDS and name not in IGNORED]
    if unknown:
        raise BadRecord(f"has the unknown field {unknown[0]!r}; fields are {', '.join(FIELDS)}")
    if "value" not in found and "value_base64" not in found:
        raise BadRecord('has no "value"; null is a tombstone')
    return InputRecord(
        _bytes(found, "key"),
        _bytes(found, "value"),
        _headers(found.get("headers")),
        _whole_number(found, "partition"),
        _timestamp(found.get("timestamp")),
    )


def _reject_constant(name: str) -> None:
    """Python reads NaN and Infinity, which JSON does not have."""
    raise ValueError(f"JSON has no {name}")


def _bytes(found: Mapping[str, object], name: str) -> bytes | None:
    """Text is taken as it is; anything else but null is written as JSON."""
    if f"{name}_base64" in found:
        try:
            return base64.b64decode(str(found[f"{name}_base64"]), validate=True)
        except binascii.Error as error:
            raise BadRecord(f"has a {name}_base64 that is not base64 ({error})") from None
    value = found.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode(errors="surrogatepass")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _headers(found: object) -> Headers:
    """An object, or a list of objects with `key` and `value` if a name occurs twice."""
    if found is None:
        return ()
    if isinstance(found, dict):
        return tuple((str(name), _bytes({"value": value}, "value")) for name, value in found.items())
    if isinstance(found, list) and all(isinstance(each, dict) and "key" in each for each in found):
        return tuple((str(each["key"]), _bytes(each, "value")) for each in found)
    raise BadRecord('has headers that are neither an object nor a list of {"key": ..., "value": ...}')


def _whole_number(found: Mapping[str, object], name: str) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_NUMBER:
        raise BadRecord(f"has {name} {value!r}; expected a number from 0 to {MAX_NUMBER}")
    return value


def _timestamp(found: object) -> int | None:
    """Milliseconds, or a time such as 2026-01-31T12:00:00Z."""
    if isinstance(found, str):
        try:
            return int(datetime.fromisoformat(found).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            raise BadRecord(
                f"has timestamp {found!r}; expected milliseconds or a time such as 2026-01-31T12:00:00Z"
            ) from None
    return _whole_number({"timestamp": found}, "timestamp")

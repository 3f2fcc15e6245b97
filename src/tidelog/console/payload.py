"""Keys, values and headers as the page shows them: text, JSON or hexadecimal. They are data, never markup."""

# Core: no clock, no I/O, no await.

import json

MAX_SHOWN_BYTES = 64 * 1024
"""A longer key, value or header is cut on the page. The download has all of it."""
_HEX_BYTES = 4096
_CONTROLS = bytes(each for each in range(32) if each not in b"\t\n\r")
"""Control characters that text does not have. In UTF-8, these bytes are never part of another character."""


def shown(data: bytes | None) -> dict[str, object] | None:
    """JSON of a key, value or header for the page. None stays None: a tombstone is not an empty value."""
    if data is None:
        return None
    cut = data[:MAX_SHOWN_BYTES]
    text = _text(cut, is_cut=len(data) > len(cut))
    found: dict[str, object] = {"size": len(data)}
    if len(data) > len(cut):
        found["cut"] = True
    if text is None:
        return found | {"format": "hex", "text": cut[:_HEX_BYTES].hex(" "), "cut": len(data) > _HEX_BYTES}
    return found | {"format": "json" if _is_json(text) else "text", "text": text}


def shown_decoded(data: bytes, kind: str, value: object) -> dict[str, object]:
    """JSON for the page of a value that was decoded with a schema."""
    text = json_of(value)
    found: dict[str, object] = {"size": len(data), "format": kind, "text": text[:MAX_SHOWN_BYTES]}
    return found | {"cut": True} if len(text) > MAX_SHOWN_BYTES else found


def json_of(value: object) -> str:
    """Of a value that was decoded with a schema."""
    return json.dumps(value, ensure_ascii=False, default=str)


def text_of(payload: object) -> str:
    """The text in a result of `shown`; empty for null."""
    return str(payload["text"]) if isinstance(payload, dict) else ""


def whole(data: bytes | None) -> str | None:
    """The whole data as text; None if it is not text."""
    return None if data is None else _text(data, is_cut=False)


def _text(data: bytes, *, is_cut: bool) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3:  # not just a character that was cut in two
            return None
        text = data[: error.start].decode()
    return None if len(data.translate(None, _CONTROLS)) < len(data) else text


def _is_json(text: str) -> bool:
    if text[:1] not in '{["' and text.strip() not in ("true", "false", "null"):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def at_path(text: str, path: str) -> object:
    """The value at a path such as `order.items[0].sku`; None if there is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for part in path.replace("[", ".").replace("]", "").removeprefix("$").strip(".").split("."):
        if isinstance(found, dict):
            found = found.get(part)
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found

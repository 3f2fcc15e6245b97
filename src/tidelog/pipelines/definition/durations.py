"""Durations and sizes in words: `10 minutes`, `1 hour 30 minutes`, `128 MB`."""

import re

_UNITS_MS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_SHORT = {"ms": "millisecond", "s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day"}
_PART = re.compile(r"\s*(\d+)\s*([A-Za-z]+)\s*")
_SIZE = re.compile(r"\s*(\d+)\s*([A-Za-z]*)\s*")
_SIZE_UNITS = {"": 1, "b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}


class BadQuantity(ValueError):
    """The message says what was expected."""


def duration_ms(text: str) -> int:
    return sum(count * _UNITS_MS[unit] for count, unit in _parts(text))


def interval(text: str) -> str:
    """The duration as a Spark interval; Spark does not accept short units."""
    return " ".join(f"{count} {unit}{'' if count == 1 else 's'}" for count, unit in _parts(text))


def positive_interval(text: str) -> str:
    """The same, greater than zero."""
    if not duration_ms(text):
        raise BadQuantity(f"expected a duration greater than zero, found '{text}'")
    return interval(text)


def size_bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise BadQuantity(f"expected a size such as '128 MB', found '{text}'")
    return int(match[1]) * _SIZE_UNITS[match[2].lower()]


def _parts(text: str) -> list[tuple[int, str]]:
    parts = []
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        unit = _unit(match[2]) if match else None
        if match is None or unit is None:
            break
        parts.append((int(match[1]), unit))
        position = match.end()
    if not parts or position < len(text):
        raise BadQuantity(f"expected a duration such as '10 seconds' or '1 hour 30 minutes', found '{text}'")
    return parts


def _unit(word: str) -> str | None:
    lower = word.lower()
    singular = _SHORT.get(lower) or lower.removesuffix("s")
    return singular if singular in _UNITS_MS else None

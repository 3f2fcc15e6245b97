"""Sizes, numbers, times and keys as text for people."""

from datetime import UTC, datetime

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
MAX_KEY_LENGTH = 60


def size_text(size_bytes: int) -> str:
    size, unit = float(size_bytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size_bytes} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def count_text(count: int) -> str:
    return f"{count:,}"


def time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def key_text(key: bytes) -> str:
    """A key as text if it is UTF-8, else as a Python bytes literal."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = repr(key)[2:-1]
    if not text.isprintable():
        text = repr(key)[2:-1]
    return text if len(text) <= MAX_KEY_LENGTH else f"{text[: MAX_KEY_LENGTH - 1]}…"

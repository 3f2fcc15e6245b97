"""Log formatter that keeps each event on one line: control characters in names that clients choose are escaped."""

import logging
from typing import Final

MAX_LENGTH: Final = 4_000
_VISIBLE: Final = {number: repr(chr(number))[1:-1] for number in (*range(32), 127)}
"""Escapes for line breaks and for control characters that terminals interpret."""


class SingleLineFormatter(logging.Formatter):
    """Escapes the message only: tracebacks keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        line = super().formatMessage(record)
        if len(line) > MAX_LENGTH:
            line = f"{line[:MAX_LENGTH]}..."
        return line if line.isprintable() else line.translate(_VISIBLE)

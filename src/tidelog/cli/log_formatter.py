"""Log formatters that keep each event on one line: control characters in names that clients choose are escaped."""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Final

MAX_LENGTH: Final = 4_000
_VISIBLE: Final = {number: repr(chr(number))[1:-1] for number in (*range(32), 127)}
"""Escapes for line breaks and for control characters that terminals interpret."""


_PAIR: Final = re.compile(r" ([a-z][a-z0-9_]*)=")


class SingleLineFormatter(logging.Formatter):
    """Escapes the message only: tracebacks keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        line = super().formatMessage(record)
        if len(line) > MAX_LENGTH:
            line = f"{line[:MAX_LENGTH]}..."
        return line if line.isprintable() else line.translate(_VISIBLE)


class JsonFormatter(logging.Formatter):
    """One JSON object per event; the `key=value` pairs of the message become fields."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        text, fields = message_fields(message[:MAX_LENGTH])
        event: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": text,
        }
        if fields:
            event["fields"] = fields
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False)


def message_fields(message: str) -> tuple[str, dict[str, str]]:
    """The constant text of a message, and the pairs after it. The last value may contain spaces."""
    first = _PAIR.search(message)
    if first is None:
        return message, {}
    pairs = list(_PAIR.finditer(message))
    ends = [each.start() for each in pairs[1:]] + [len(message)]
    return message[: first.start()], {pair[1]: message[pair.end() : end] for pair, end in zip(pairs, ends, strict=True)}

"""One line for each event: clients choose names of groups and members, and may put anything into them."""

import logging
from typing import Final

MAX_LENGTH: Final = 4_000
_VISIBLE: Final = {number: repr(chr(number))[1:-1] for number in (*range(32), 127)}
"""Line breaks, and what terminals would take for commands."""


class LogLines(logging.Formatter):
    """Tracebacks, which are ours, keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        line = super().formatMessage(record)
        if len(line) > MAX_LENGTH:
            line = f"{line[:MAX_LENGTH]}..."
        return line if line.isprintable() else line.translate(_VISIBLE)

"""A picture in a terminal that is drawn over itself, below everything that was said so far."""

import contextlib
import os
import shutil
from collections.abc import Sequence
from typing import TextIO

CLEAR_LINE = "\x1b[K"
CLEAR_BELOW = "\x1b[J"


class Drawing:
    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._drawn_lines = 0

    def say(self, line: str) -> None:
        """Something that stays."""
        self._draw([])
        write_line(self._output, line)

    def show(self, lines: Sequence[str]) -> None:
        columns, rows = shutil.get_terminal_size()
        self._draw(fitted(lines, columns, rows - 1))

    def _draw(self, lines: Sequence[str]) -> None:
        up = f"\x1b[{self._drawn_lines}A" if self._drawn_lines else ""
        text = "".join(f"{line}{CLEAR_LINE}\n" for line in lines)
        _write(self._output, f"{up}\r{text}{CLEAR_BELOW}")
        self._drawn_lines = len(lines)


def can_be_drawn_on(output: TextIO) -> bool:
    return output.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def fitted(lines: Sequence[str], columns: int, rows: int) -> list[str]:
    """A line that wraps, or more lines than there are, would break the drawing in place."""
    return [line[: columns - 1] for line in lines[:rows]]


def write_line(output: TextIO, line: str) -> None:
    _write(output, line + "\n")


def _write(output: TextIO, text: str) -> None:
    """What is shown goes on even if the terminal is gone."""
    with contextlib.suppress(OSError):
        output.write(text)
        output.flush()

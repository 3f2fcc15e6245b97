"""Live display in a terminal: a block of lines redrawn in place, below the lines printed so far."""

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from typing import TextIO

CLEAR_LINE = "\x1b[K"
CLEAR_BELOW = "\x1b[J"


class LiveDisplay:
    def __init__(self, output: TextIO, paint: Callable[[str], str] = str) -> None:
        """`paint` adds colours to a line that was cut to the width of the screen."""
        self._output = output
        self._paint = paint
        self._drawn_lines = 0

    def say(self, line: str) -> None:
        """Prints a line that stays above the display."""
        self._draw([])
        write_line(self._output, line)

    def show(self, lines: Sequence[str]) -> None:
        columns, rows = shutil.get_terminal_size()
        self._draw(fitted(lines, columns, rows - 1))

    def _draw(self, lines: Sequence[str]) -> None:
        up = f"\x1b[{self._drawn_lines}A" if self._drawn_lines else ""
        text = "".join(f"{self._paint(line)}{CLEAR_LINE}\n" for line in lines)
        _write(self._output, f"{up}\r{text}{CLEAR_BELOW}")
        self._drawn_lines = len(lines)


def supports_live_display(output: TextIO) -> bool:
    return output.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def fitted(lines: Sequence[str], columns: int, rows: int) -> list[str]:
    """Cut to the terminal's size: a wrapped line, or too many lines, would break redrawing in place."""
    return [line[: columns - 1] for line in lines[:rows]]


def write_line(output: TextIO, line: str) -> None:
    _write(output, line + "\n")


def _write(output: TextIO, text: str) -> None:
    """Ignores errors: the program goes on if the terminal is gone."""
    with contextlib.suppress(OSError):
        output.write(text)
        output.flush()

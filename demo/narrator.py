"""Narrator of the tour: headings with the time, short explanations, commands as one would type them, tables."""

import os
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

WIDTH = 100
INDENT = "   "
BOLD, DIM, RED, GREEN, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[0m"


class Narrator:
    def __init__(self, output: TextIO = sys.stdout) -> None:
        self._output = output
        self._began = time.monotonic()
        self._has_colours = output.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def heading(self, title: str) -> None:
        time_text = f" {self.elapsed_s:.0f} s"
        line = f"── {title} ".ljust(WIDTH - len(time_text), "─") + time_text
        self._line("")
        self._line(self._in(BOLD, line))

    def text(self, paragraph: str) -> None:
        for line in textwrap.wrap(paragraph, WIDTH - len(INDENT)):
            self._line(INDENT + line)

    def command(self, words: str) -> None:
        self._line(INDENT + self._in(BOLD, f"$ {words}"))

    def block(self, lines: Iterable[str]) -> None:
        """Text that others wrote."""
        for line in lines:
            for part in self._wrapped(line) or [""]:
                self._line(INDENT + self._in(DIM, f"| {part}".rstrip()))

    def _wrapped(self, line: str) -> list[str]:
        return textwrap.wrap(line, WIDTH - len(INDENT) - 2, subsequent_indent="    ", break_on_hyphens=False)

    def to_paste(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._line(INDENT + line)

    def row(self, cells: Sequence[str], widths: Sequence[int]) -> None:
        parts = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        self._line(INDENT + "  ".join(parts))

    def verdict(self, claim: str, figures: str, holds: bool) -> None:
        mark = self._in(GREEN, "held  ") if holds else self._in(RED, "BROKEN")
        self._line(f"{INDENT}{mark}  {claim}: {figures}")

    def _in(self, style: str, text: str) -> str:
        return f"{style}{text}{PLAIN}" if self._has_colours else text

    def _line(self, text: str) -> None:
        self._output.write(text + "\n")
        self._output.flush()

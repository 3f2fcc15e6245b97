"""Plain text tables: a line of titles, columns as wide as their longest cell."""

import re
from collections.abc import Iterable, Sequence

NUMBER = re.compile(r"\d+(,\d{3})*(\.\d+)?( [A-Za-z]{1,2})?( \([^)]*\))?")
"""An optional unit, and an optional second number in brackets."""
ABSENT = ("-", "?", "none")
"""What stands for a number that is not there."""


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Columns of numbers are aligned to the right, all others to the left."""
    cells = [[str(value) for value in row] for row in rows]
    is_number = [all(_is_number(row[index]) for row in cells) for index in range(len(titles))]
    widths = [max(len(row[index]) for row in [list(titles), *cells]) for index in range(len(titles))]
    return [_line(row, widths, is_number) for row in [list(titles), *cells]]


def _is_number(text: str) -> bool:
    return text in ABSENT or NUMBER.fullmatch(text) is not None


def _line(row: Sequence[str], widths: Sequence[int], is_number: Sequence[bool]) -> str:
    parts = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(row, widths, is_number, strict=True)
    ]
    return "  ".join(parts).rstrip()

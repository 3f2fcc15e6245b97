"""Mistakes in a pipeline file: line, field and one sentence."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.config.nearest import did_you_mean


class Mistake(NamedTuple):
    line: int | None
    """Counted from 1; None if the mistake has no line."""
    where: str
    """The field, as in `sources.orders.topic`; empty for the whole file."""
    sentence: str
    is_warning: bool = False

    def text(self, file: Path | str) -> str:
        """In the format of compilers, so that editors can jump to the line."""
        place = f"{file}:{self.line}" if self.line else f"{file}"
        kind = "warning: " if self.is_warning else ""
        field = f"{self.where}: " if self.where else ""
        return f"{place}: {kind}{field}{self.sentence}"


class Mistakes(Exception):
    """All mistakes of a file at once."""

    def __init__(self, file: Path | str, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(mistake.text(file) for mistake in mistakes))
        self.file = file
        self.mistakes = list(mistakes)


def nearest(name: str, valid: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or an empty string if no valid name is similar."""
    return did_you_mean(name, valid, quote="'")


def listed(names: Iterable[str], conjunction: str = "or") -> str:
    """`a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} {conjunction} {last}" if others else last

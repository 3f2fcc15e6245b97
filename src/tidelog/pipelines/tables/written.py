"""Result of writing one batch to a table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Written:
    rows: int
    files: int
    was_already_there: bool

"""Facts about the data files of a table, passed between tasks, driver and maintenance."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

PartitionValue: TypeAlias = str | int | None
Partition: TypeAlias = tuple[PartitionValue, ...]


class FileFacts(NamedTuple):
    """A data file written by a task; it becomes part of the table with a commit."""

    path: str
    """Relative to the directory of the layout."""
    rows: int
    bytes: int
    partition: Partition
    statistics: str
    """minValues, maxValues and nullCount by column, as JSON in Delta's form."""


class TableFile(NamedTuple):
    """A file that is part of the table."""

    path: str
    partition: Partition
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class TableFacts:
    rows: int
    files: int
    bytes: int
    last_batch: int | None

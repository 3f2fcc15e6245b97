"""Plain facts about the files of a table, as tasks, driver and maintenance hand them on."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

PartitionValue: TypeAlias = str | int | None
Partition: TypeAlias = tuple[PartitionValue, ...]


class FileFacts(NamedTuple):
    """A data file that a task wrote; it belongs to the table only once a commit names it."""

    path: str
    """Below the directory of the layout."""
    rows: int
    bytes: int
    partition: Partition
    statistics: str
    """minValues, maxValues and nullCount by column, as JSON in Delta's form."""


class TableFile(NamedTuple):
    """A file of the table as it stands."""

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

"""What the writer needs of a table, whatever its kind."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import pyarrow as pa

from tidelog.pipelines.definition import Compaction
from tidelog.pipelines.tables.facts import FileFacts, TableFile
from tidelog.pipelines.tables.files import FileLayout
from tidelog.pipelines.tables.schema import Evolve

Before: TypeAlias = Callable[[str], None]
"""Told the name of each step that is about to change the table: tests crash there."""


class TableError(Exception):
    """The table cannot be used as the sink declares it; the sentence says why and what to do."""


class Table(Protocol):
    def last_batch(self) -> int | None:
        """The last batch of this application that the table holds."""
        ...

    def has_another_checkpoint(self) -> bool:
        """Whether it holds batches of this application's owner under another checkpoint (see `continuity`)."""
        ...

    def schema(self) -> pa.Schema | None:
        """None: there is no table yet."""
        ...

    def create(self, schema: pa.Schema) -> None: ...

    def evolve(self, change: Evolve) -> None: ...

    def layout(self, batch_id: int) -> FileLayout:
        """Where and how the tasks of a batch write their files."""
        ...

    def commit(self, files: Sequence[FileFacts], batch_id: int) -> bool:
        """Make the files part of the table, all or none; False if the table already held the batch."""
        ...

    def files(self) -> list[TableFile]: ...

    def compact(self, compaction: Compaction) -> int:
        """Put small files together; how many were replaced."""
        ...

    def sweep(self, older_than_s: float) -> int:
        """Remove files that no commit names, left by tasks that failed; how many."""
        ...

    def read(self) -> pa.Table: ...

    def row_count(self) -> int: ...

    def close(self) -> None: ...


def nothing(step: str) -> None:
    """No crash."""

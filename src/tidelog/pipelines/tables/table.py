"""What the writer needs of a table, whatever its kind."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from tidelog.pipelines.definition.model import Compaction
from tidelog.pipelines.tables.facts import FileFacts, TableFile
from tidelog.pipelines.tables.files import FileLayout
from tidelog.pipelines.tables.schema_changes import Evolve

Before: TypeAlias = Callable[[str], None]
"""Told the name of each step that is about to change the table: tests crash there."""


class TableError(Exception):
    """The table cannot be used as the sink declares it; the sentence says why and what to do."""


class Contents(NamedTuple):
    """What a table holds at one moment."""

    files: frozenset[str]
    last_batch: int | None


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

    def other_owners(self) -> list[str]:
        """Whose rows the table holds beside those of this application's owner (see `continuity`)."""
        ...

    def contents(self) -> Contents: ...

    def replacement_layout(self, schema: pa.Schema, batch_id: int) -> FileLayout:
        """Where and how to write files that are to take the place of others, with columns of their own."""
        ...

    def replace(
        self, old: Contents, files: Sequence[FileFacts], layout: FileLayout, batch_id: int, *, keeps_later: bool
    ) -> bool:
        """Put the files, and their columns, in the place of the old ones, all or nothing: the table then holds the
        batches up to that one, and files that came after the old ones if they may be kept. False, and nothing is
        changed: old files were rewritten meanwhile, or later ones may not be kept or have other columns."""
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


def can_replace(old: Contents, now: Contents, *, keeps_later: bool) -> bool:
    """As long as the old files are all there, what is there besides holds rows that came later, and only those."""
    return old.files <= now.files if keeps_later else old == now

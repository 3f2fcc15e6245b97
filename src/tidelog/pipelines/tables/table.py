"""Interface of a table to its writer, common to all kinds of tables."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeGuard

import pyarrow as pa

from tidelog.pipelines.definition.model import Compaction
from tidelog.pipelines.tables.file_facts import FileFacts, TableFile
from tidelog.pipelines.tables.files import FileLayout
from tidelog.pipelines.tables.schema_changes import Evolve

Before: TypeAlias = Callable[[str], None]
"""Called with the name of each step before it changes the table; tests inject crashes here."""


class TableError(Exception):
    """The table cannot be used as the sink declares it; the message says why and what to do."""


class Contents(NamedTuple):
    """Contents of a table at one moment."""

    files: frozenset[str]
    last_batch: int | None


class Table(Protocol):
    def last_batch(self) -> int | None:
        """The last batch of this application that the table holds."""
        ...

    def has_another_checkpoint(self) -> bool:
        """True if it holds batches of this application's owner from another checkpoint (see `continuity`)."""
        ...

    def schema(self) -> pa.Schema | None:
        """None if the table does not exist."""
        ...

    def create(self, schema: pa.Schema) -> None: ...

    def evolve(self, change: Evolve) -> None: ...

    def layout(self, batch_id: int) -> FileLayout:
        """Where and how the tasks of a batch write their files."""
        ...

    def commit(self, files: Sequence[FileFacts], batch_id: int) -> bool:
        """Adds the files to the table atomically; False if the table already held the batch."""
        ...

    def other_owners(self) -> list[str]:
        """Other owners whose rows the table holds (see `continuity`)."""
        ...

    def contents(self) -> Contents: ...

    def replacement_layout(self, schema: pa.Schema, batch_id: int) -> FileLayout:
        """Where and how to write replacement files, which have their own columns."""
        ...

    def replace(
        self, old: Contents, files: Sequence[FileFacts], layout: FileLayout, batch_id: int, *, keeps_later: bool
    ) -> bool:
        """Replaces the old files and columns atomically. The table then holds the batches up to `batch_id`, and files
        that were added after the old ones if they may be kept. Returns False and changes nothing if old files were
        rewritten meanwhile, or if later files may not be kept or have other columns."""
        ...

    def files(self) -> list[TableFile]: ...

    def compact(self, compaction: Compaction) -> int:
        """Merges small files; returns the number of replaced files."""
        ...

    def sweep(self, older_than_s: float) -> int:
        """Removes files without a commit, left by failed tasks; returns their number."""
        ...

    def read(self) -> pa.Table: ...

    def row_count(self) -> int: ...

    def close(self) -> None: ...


class MergeTable(Table, Protocol):
    """A table whose files can be exchanged for others: Delta and Iceberg."""

    conflict: type[Exception]
    """Raised by `exchange` if another writer has changed the table since it was read."""

    def before(self, step: str) -> None:
        """Calls the hook of tests."""
        ...

    def side_directory(self) -> str:
        """Where files beside the table may be kept; readers of the table ignore it."""
        ...

    def address(self, path: str) -> str:
        """Full path or URL of one of `files()`."""
        ...

    def files_and_last_batch(self) -> tuple[list[TableFile], int | None]:
        """Both of one version of the table, the one that `exchange` changes."""
        ...

    def read_file(self, path: str) -> pa.Table:
        """All columns of one of these files."""
        ...

    def exchange(self, removed: Sequence[str], files: Sequence[FileFacts], batch_id: int) -> None:
        """Removes and adds files in one commit with the batch id, if the version is still the last."""
        ...


def is_mergeable(table: Table) -> TypeGuard[MergeTable]:
    return hasattr(table, "exchange")


def nothing(step: str) -> None:
    """No hook."""


def can_replace(old: Contents, now: Contents, *, keeps_later: bool) -> bool:
    """True if all old files are still there: then the other files hold only later rows."""
    return old.files <= now.files if keeps_later else old == now

"""Delta tables through `deltalake`: each batch is one commit with the batch id as the application's transaction.

If two writers commit the same batch, Delta's conflict rules reject the second commit at the same table version, and
a later one finds the batch id in the table.
"""

import json
import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, PostCommitHookProperties, RemoveAction

from tidelog.pipelines.definition.model import Compaction, TableSink
from tidelog.pipelines.tables.commit_retries import COMMITS_MAX, REPLACEMENTS_MAX, commit_batch, retry_on_conflict
from tidelog.pipelines.tables.compaction import groups_to_compact
from tidelog.pipelines.tables.continuity import other_owners, owner_of
from tidelog.pipelines.tables.delta_log import applications_of
from tidelog.pipelines.tables.file_facts import FileFacts, Partition, PartitionValue, TableFile
from tidelog.pipelines.tables.files import FileLayout, filesystem_of, write_files
from tidelog.pipelines.tables.partitions import PartitionColumn
from tidelog.pipelines.tables.schema_changes import Evolve, evolved, plain_schema, replacing
from tidelog.pipelines.tables.table import Before, Contents, TableError, can_replace, nothing

logger = logging.getLogger(__name__)

CLEAN_UP_EVERY = 64
"""Batches between two clean-ups of old log files: a clean-up costs more than a commit."""

DELTA_RETENTION_HOURS = 7 * 24
CONFIGURATION = {
    # Every read of the table lists its log, which grows by a file per batch: delete old files after an hour, not
    # after thirty days. A day of files, one batch per second, would cost a third of a second per batch.
    "delta.logRetentionDuration": "interval 1 hours",
}


class DeltaLakeTable:
    conflict: type[Exception] = CommitFailedError

    def __init__(self, sink: TableSink, application_id: str, before: Before = nothing) -> None:
        self._location = sink.location
        self._application_id = application_id
        self._owner = owner_of(application_id)
        self._before = before
        self._partition_by = tuple(PartitionColumn(field.name, field.name) for field in sink.partition_by)
        self._table: DeltaTable | None = None
        self._known_files: list[TableFile] = []
        """As last listed."""

    def last_batch(self) -> int | None:
        table = self._current()
        return None if table is None else table.transaction_version(self._application_id)

    def has_another_checkpoint(self) -> bool:
        """`deltalake` finds transactions by exact id only, so every batch also has a transaction of its owner."""
        table = self._current()
        if table is None or not self._owner or table.transaction_version(self._owner) is None:
            return False
        return table.transaction_version(self._application_id) is None

    def schema(self) -> pa.Schema | None:
        return None if self._current() is None else self._cached_schema()

    def create(self, schema: pa.Schema) -> None:
        self._before("create the table")
        DeltaTable.create(
            self._location,
            plain_schema(schema),
            mode="ignore",
            partition_by=self._partition_names(),
            configuration=CONFIGURATION,
        )
        self._check_partitions(self._existing())

    def evolve(self, change: Evolve) -> None:
        """Adds columns by metadata only. Delta cannot widen a column in place: its files are rewritten."""
        if change.widened:
            self._rewrite(evolved(self._cached_schema(), change))
        elif change.added:
            self._before("add columns")
            self._existing().alter.add_columns(DeltaSchema.from_arrow(pa.schema(change.added)).fields)
        self._current()

    def layout(self, batch_id: int) -> FileLayout:
        self._check_partitions(self._cached())
        return self._layout_of(self._cached_schema(), f"part-{batch_id}")

    def commit(self, files: Sequence[FileFacts], batch_id: int) -> bool:
        what = f"commit table={self._location} batch={batch_id}"
        commit = partial(self._commit, files, batch_id)
        return commit_batch(batch_id, self.last_batch, commit, CommitFailedError, COMMITS_MAX, what)

    def before(self, step: str) -> None:
        self._before(step)

    def side_directory(self) -> str:
        return f"{self._location.rstrip('/')}/_tidelog"

    def address(self, path: str) -> str:
        return f"{self._location.rstrip('/')}/{unquote(path)}"

    def files_and_last_batch(self) -> tuple[list[TableFile], int | None]:
        files = self.files()
        return files, self._cached().transaction_version(self._application_id)

    def read_file(self, path: str) -> pa.Table:
        filesystem, full_path = filesystem_of(self.address(path))
        rows = pq.ParquetFile(full_path, filesystem=filesystem).read()
        schema = self._cached_schema()
        partition = next(file.partition for file in self._known_files if file.path == path)
        for column, value in zip(self._partition_by, partition, strict=True):
            constant = _partition_value(value, schema.field(column.name).type)
            rows = rows.append_column(column.name, pa.repeat(constant, rows.num_rows))
        return rows

    def exchange(self, removed: Sequence[str], files: Sequence[FileFacts], batch_id: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [self._add_action(file, now_ms) for file in files]
        actions += [RemoveAction(unquote(path), True, now_ms) for path in removed]
        self._before("commit")
        self._cached().create_write_transaction(
            actions,
            "append",
            self._cached().schema(),
            self._partition_names(),
            commit_properties=CommitProperties(max_commit_retries=0, app_transactions=self._transactions(batch_id)),
            post_commithook_properties=_after_commit(batch_id),
        )
        self._before("after the commit")

    def other_owners(self) -> list[str]:
        return other_owners(applications_of(self._existing()), self._application_id)

    def contents(self) -> Contents:
        files = frozenset(file.path for file in self.files())
        return Contents(files, self._cached().transaction_version(self._application_id))

    def replacement_layout(self, schema: pa.Schema, batch_id: int) -> FileLayout:
        self._check_partitions(self._existing())
        return self._layout_of(replacing(self._cached_schema(), schema), f"part-{batch_id}")

    def replace(
        self, old: Contents, files: Sequence[FileFacts], layout: FileLayout, batch_id: int, *, keeps_later: bool
    ) -> bool:
        def attempt() -> bool:
            now = self.contents()
            has_same_columns = self._cached_schema() == layout.schema
            if not can_replace(old, now, keeps_later=keeps_later and has_same_columns):
                return False
            self._replace(old, now, files, layout.schema, batch_id)
            return True

        return retry_on_conflict(attempt, CommitFailedError, REPLACEMENTS_MAX, f"replacement table={self._location}")

    def files(self) -> list[TableFile]:
        actions = pa.table(self._existing().get_add_actions(flatten=False)).to_pylist()
        self._known_files = [
            TableFile(action["path"], self._partition_of(action), action["size_bytes"], action["num_records"] or 0)
            for action in actions
        ]
        return self._known_files

    def compact(self, compaction: Compaction) -> int:
        replaced = 0
        for partition in {group[0].partition for group in groups_to_compact(self.files(), compaction)}:
            self._before("compact")
            metrics = self._existing().optimize.compact(
                partition_filters=self._filter(partition), target_size=compaction.target_bytes
            )
            replaced += int(metrics["numFilesRemoved"])
        return replaced

    def sweep(self, older_than_s: float) -> int:
        """Limited by the retention of the table: a week by default."""
        hours = int(older_than_s // 3600)
        retention_hours = hours if hours > DELTA_RETENTION_HOURS else None
        return len(self._existing().vacuum(retention_hours, dry_run=False, full=True))

    def read(self) -> pa.Table:
        # Threads of Arrow that still hold the table's file system abort a process which ends right after this.
        return self._existing().to_pyarrow_dataset().to_table(use_threads=False)

    def row_count(self) -> int:
        return sum(file.rows for file in self.files())

    def close(self) -> None:
        """No resources to release."""

    def _commit(self, files: Sequence[FileFacts], batch_id: int) -> None:
        table = self._cached()
        now_ms = time.time_ns() // 1_000_000
        self._before("commit")
        table.create_write_transaction(
            [self._add_action(file, now_ms) for file in files],
            "append",
            table.schema(),
            self._partition_names(),
            commit_properties=CommitProperties(app_transactions=self._transactions(batch_id)),
            post_commithook_properties=_after_commit(batch_id),
        )
        self._before("after the commit")

    def _replace(
        self, old: Contents, now: Contents, files: Sequence[FileFacts], schema: pa.Schema, batch_id: int
    ) -> None:
        """Fails if another commit was made since the table was read. An overwrite removes all files and columns."""
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [self._add_action(file, now_ms) for file in files]
        is_complete = now.files == old.files
        if not is_complete:
            actions += [RemoveAction(unquote(path), True, now_ms) for path in old.files]
        is_new_batch = now.last_batch is None or now.last_batch < batch_id
        self._before("replace the files")
        self._cached().create_write_transaction(
            actions,
            "overwrite" if is_complete else "append",
            DeltaSchema.from_arrow(schema),
            self._partition_names(),
            commit_properties=CommitProperties(
                max_commit_retries=0, app_transactions=self._transactions(batch_id) if is_new_batch else None
            ),
        )
        self._before("after the replacement")

    def _transactions(self, batch_id: int) -> list[Transaction]:
        return [Transaction(name, batch_id) for name in (self._application_id, self._owner) if name]

    def _add_action(self, file: FileFacts, now_ms: int, *, is_new: bool = True) -> AddAction:
        values = {
            column.name: None if value is None else str(value)
            for column, value in zip(self._partition_by, file.partition, strict=True)
        }
        statistics = json.dumps({"numRecords": file.rows, **json.loads(file.statistics)})
        return AddAction(file.path, file.bytes, values, now_ms, is_new, statistics)

    def _rewrite(self, schema: pa.Schema) -> None:
        table = self._existing()
        facts = write_files(self._layout_of(schema, "part-widened"), table.to_pyarrow_dataset().to_batches())
        self._before("replace the files")
        now_ms = time.time_ns() // 1_000_000
        table.create_write_transaction(
            [self._add_action(fact, now_ms) for fact in facts],
            "overwrite",
            DeltaSchema.from_arrow(schema),
            self._partition_names(),
        )

    def _layout_of(self, schema: pa.Schema, name_prefix: str) -> FileLayout:
        return FileLayout(self._location, schema, name_prefix, self._partition_by)

    def _partition_names(self) -> list[str]:
        return [column.name for column in self._partition_by]

    def _partition_of(self, action: dict[str, Any]) -> Partition:
        values = action.get("partition") or {}
        return tuple(None if value is None else str(value) for value in values.values())

    def _filter(self, partition: Partition) -> list[tuple[str, str, Any]] | None:
        """`deltalake` writes null as an empty string."""
        names = self._partition_names()
        return [(name, "=", str(value or "")) for name, value in zip(names, partition, strict=True)] or None

    def _check_partitions(self, table: DeltaTable) -> None:
        there = table.metadata().partition_columns
        if there != self._partition_names():
            raise TableError(
                f"Table {self._location} is partitioned by {there or 'nothing'}, but the sink by "
                f"{self._partition_names() or 'nothing'}: change partition_by, or write to another table"
            )

    def _current(self) -> DeltaTable | None:
        """The current table; only new log entries are read."""
        if self._table is not None:
            try:
                self._table.update_incremental()
            except DeltaError:
                self._table = None
        if self._table is None or self._is_gone(self._table):
            is_there = DeltaTable.is_deltatable(self._location)
            self._table = DeltaTable(self._location) if is_there else None
        return self._table

    def _is_gone(self, table: DeltaTable) -> bool:
        """An update of a deleted table finds nothing new, so ask the file system. Not supported for object stores."""
        log = Path(self._location, "_delta_log")
        return "://" not in self._location and not (log / f"{table.version():020}.json").exists()

    def _existing(self) -> DeltaTable:
        table = self._current()
        if table is None:
            raise TableError(f"No Delta table at {self._location}: nothing has been written yet")
        return table

    def _cached(self) -> DeltaTable:
        """The table as last read: reading it again lists its log."""
        return self._table or self._existing()

    def _cached_schema(self) -> pa.Schema:
        return plain_schema(pa.schema(self._cached().schema().to_arrow()))


def _partition_value(text: PartitionValue, kind: pa.DataType) -> pa.Scalar:
    """From Delta's spelling."""
    if text is None:
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind):
        return pa.scalar(str(text)).cast(pa.timestamp("us")).cast(kind)
    return pa.scalar(str(text)).cast(kind)


def _after_commit(batch_id: int) -> PostCommitHookProperties:
    return PostCommitHookProperties(cleanup_expired_logs=None if batch_id % CLEAN_UP_EVERY == 0 else False)

"""Exactly-once upserts and deletes by key: each micro-batch is merged into the table by one commit with its number.

Copy on write: files with rows of changed keys are rewritten. A batch that Spark runs again is found by its number.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.pipelines.definition.model import TableSink, Upsert
from tidelog.pipelines.tables.change_merge import (
    IS_DELETE,
    VALID_FROM,
    VALID_TO,
    Merged,
    affected_rows,
    distinct_keys,
    events_of_changes,
    merge,
    split,
)
from tidelog.pipelines.tables.commit_retries import COMMITS_MAX, retry_on_conflict
from tidelog.pipelines.tables.continuity import reject_break
from tidelog.pipelines.tables.file_facts import FileFacts
from tidelog.pipelines.tables.files import conform, filesystem_of, write_files
from tidelog.pipelines.tables.maintenance import maintain
from tidelog.pipelines.tables.remembered_deletes import RememberedDeletes, without_expired
from tidelog.pipelines.tables.row_preparation import evaluate, with_columns_of
from tidelog.pipelines.tables.schema_changes import Evolve, check_column_types, decide, difference, plain_schema
from tidelog.pipelines.tables.table import MergeTable, TableError
from tidelog.pipelines.tables.written import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

OFFSET = "_offset"
DELETED = "_deleted"
INTERNAL_COLUMNS = ("_key", "_topic", "_partition", OFFSET, "_timestamp", DELETED, "_op", "_changed_at", "_source")
"""Columns of parsed records that are not written, unless they are keys or the sequence."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a micro-batch in order of arrival."""

    rows: pa.Table
    is_delete: pa.ChunkedArray


class UpsertWriter:
    def __init__(self, sink: TableSink, table: MergeTable, application_id: str) -> None:
        assert sink.upsert is not None
        self._sink = sink
        self._upsert: Upsert = sink.upsert
        self._table = table
        self._application_id = application_id
        self._bounds: dict[str, tuple[Any, Any] | None] = {}
        """Of the first key column, by file; files do not change."""

    def write(self, rows: "DataFrame", batch_id: int) -> Written:
        last = self._table.last_batch()
        if last == batch_id:
            evaluate(rows)
            return Written(0, 0, was_already_there=True)
        return self.write_changes(collect(with_columns_of(self._sink, rows), self._upsert), batch_id)

    def write_changes(self, changes: Changes, batch_id: int) -> Written:
        last = self._table.last_batch()
        is_there = last is not None or self._table.schema() is not None
        reject_break(self._sink.location, batch_id, last, is_there=is_there)
        if last == batch_id or not changes.rows.num_rows:
            return Written(0, 0, was_already_there=last == batch_id)
        reject_nulls(changes, self._upsert, self._sink.location)
        self._fit(changes.rows.schema)
        written: list[FileFacts] = []

        def attempt() -> bool:
            written[:] = self._merge(changes, batch_id)
            return True

        what = f"merge table={self._sink.location} batch={batch_id}"
        retry_on_conflict(attempt, self._table.conflict, COMMITS_MAX, what)
        maintain(self._table, self._sink, batch_id)
        return Written(changes.rows.num_rows, len(written), was_already_there=False)

    def _fit(self, rows: pa.Schema) -> None:
        """Creates or evolves the table for the columns of the rows."""
        check_column_types(rows)
        wanted = plain_schema(with_versions(rows, self._upsert))
        table = self._table.schema()
        if table is None:
            self._table.create(wanted)
            return
        match decide(difference(table, wanted), self._sink.schema_changes, self._sink.location):
            case Evolve() as change:
                self._table.evolve(change)
                self._bounds.clear()

    def _merge(self, changes: Changes, batch_id: int) -> list[FileFacts]:
        """One attempt, on the table as it is now. Raises the table's conflict if another writer was faster."""
        schema = self._table.schema()
        assert schema is not None
        files, last = self._table.files_and_last_batch()
        if last is not None and last >= batch_id:
            return []
        now_s = int(time.time())
        rows = conform(changes.rows, without_versions(schema, self._upsert))
        events = events_of_changes(rows, changes.is_delete, now_s)
        keys = distinct_keys(events, self._upsert.keys)
        memory = RememberedDeletes(self._table.side_directory(), self._application_id)
        old_deletes = memory.load(last) if self._upsert.sequence_by else None
        merging = Merging(self._table, self._upsert, schema, keys, self._bounds)
        layout = self._table.layout(batch_id)
        if self._sink.compaction is not None:
            layout = replace(layout, max_file_bytes=self._sink.compaction.target_bytes)
        existing = merging.affected(file.path for file in files)
        merged = merging.merged(existing, old_deletes, events)
        if not merged.has_effect:
            return []
        if self._upsert.sequence_by:
            self._remember(memory, old_deletes, merged, keys, batch_id, now_s)
        written = write_files(layout, merging.batches(merged.rows))
        self._table.exchange(merging.touched, written, batch_id)
        if self._upsert.sequence_by:
            memory.forget_old_files(batch_id)
        return written

    def _remember(
        self,
        memory: RememberedDeletes,
        old: pa.Table | None,
        merged: Merged,
        keys: pa.Table,
        batch_id: int,
        now_s: int,
    ) -> None:
        """Before the commit, which makes the file valid."""
        parts = [merged.deletes]
        if old is not None:
            parts.append(split(old, keys)[1].cast(merged.deletes.schema))
        deletes = without_expired(pa.concat_tables(parts), now_s)
        if deletes.num_rows or old is not None:
            self._table.before("write the deletes")
            memory.save(deletes, batch_id)


class Merging:
    """Files of the table with rows of changed keys: read once for those rows, and once more to rewrite the others."""

    def __init__(
        self,
        table: MergeTable,
        upsert: Upsert,
        schema: pa.Schema,
        keys: pa.Table,
        bounds: dict[str, tuple[Any, Any] | None],
    ) -> None:
        self._table = table
        self._upsert = upsert
        self._schema = schema
        self._keys = keys
        self._bounds = bounds
        extremes = pc.min_max(keys[upsert.keys[0]]).as_py()
        self._low, self._high = extremes["min"], extremes["max"]
        self.touched: list[str] = []

    def affected(self, paths: Iterable[str]) -> pa.Table:
        found = [self._schema.empty_table()]
        for path in paths:
            if self._may_have_changed_keys(path):
                rows, _ = split(conform(self._table.read_file(path), self._schema), self._keys)
                if rows.num_rows:
                    self.touched.append(path)
                    found.append(rows)
        return pa.concat_tables(found)

    def merged(self, existing: pa.Table, deletes: pa.Table | None, events: pa.Table) -> Merged:
        if deletes is not None:
            deletes = split(deletes, self._keys)[0]
        return merge(existing, deletes, events, self._upsert)

    def batches(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """All rows of the new files: those of changed keys, and the others of the files that are replaced."""
        yield from rows.to_batches()
        for path in self.touched:
            others = split(conform(self._table.read_file(path), self._schema), self._keys)[1]
            yield from others.to_batches()

    def _may_have_changed_keys(self, path: str) -> bool:
        filesystem, full_path = filesystem_of(self._table.address(path))
        names = list(self._upsert.keys)
        with filesystem.open_input_file(full_path) as opened:
            file = pq.ParquetFile(opened)
            if path not in self._bounds:
                self._bounds[path] = _bounds_of(file.metadata, names[0])
            if not self._overlaps(self._bounds[path]):
                return False
            if not set(names) <= set(file.schema_arrow.names):
                return True
            types = pa.schema([self._schema.field(name) for name in names])
            return len(affected_rows(conform(file.read(columns=names), types), self._keys)) > 0

    def _overlaps(self, bounds: tuple[Any, Any] | None) -> bool:
        if bounds is None:
            return True
        try:
            return bool(bounds[0] <= self._high and self._low <= bounds[1])
        except TypeError:
            return True


def _bounds_of(metadata: pq.FileMetaData, column: str) -> tuple[Any, Any] | None:
    """None if the file does not have it."""
    index = next((at for at in range(metadata.num_columns) if metadata.schema.column(at).path == column), None)
    if index is None:
        return None
    parts = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
    if not parts or any(part is None or not part.has_min_max for part in parts):
        return None
    return min(part.min for part in parts), max(part.max for part in parts)


def with_versions(rows: pa.Schema, upsert: Upsert) -> pa.Schema:
    """The columns of the table for these rows."""
    if not upsert.has_history:
        return rows
    for name in (VALID_FROM, VALID_TO):
        if name in rows.names:
            raise TableError(f"A table with history = true has a column '{name}' of its own: rename it in a step")
    kind = rows.field(upsert.sequence_by[0]).type
    return pa.schema([*rows, pa.field(VALID_FROM, kind), pa.field(VALID_TO, kind)])


def without_versions(table: pa.Schema, upsert: Upsert) -> pa.Schema:
    own = (VALID_FROM, VALID_TO) if upsert.has_history else ()
    return pa.schema([field for field in table if field.name not in own])


def reject_nulls(changes: Changes, upsert: Upsert, location: str) -> None:
    """A delete may be without a sequence, except in a history, which would not know the end of the version."""
    sequenced = changes.rows if upsert.has_history else changes.rows.filter(pc.invert(changes.is_delete))
    for name in (*upsert.keys, *upsert.sequence_by):
        if (changes.rows if name in upsert.keys else sequenced)[name].null_count:
            what = "keys" if name in upsert.keys else "sequence_by"
            raise TableError(
                f"A row for table '{location}' has no {name}, which is among its {what}: leave such rows out in a step,"
                f" or with expect = {{ has_{name} = '{name} IS NOT NULL' }} and on_violation = 'drop'"
            )


def collect(rows: "DataFrame", upsert: Upsert) -> Changes:
    """The changes of a batch on the driver, in order of arrival: by offset if the rows have it."""
    names = written_columns(rows.columns, upsert)
    arrived = changes_of(rows, upsert).toArrow()
    if OFFSET in arrived.column_names:
        arrived = arrived.take(pc.sort_indices(arrived, sort_keys=[(OFFSET, "ascending")]))
    return Changes(arrived.select(names), arrived[IS_DELETE])


def changes_of(rows: "DataFrame", upsert: Upsert) -> "DataFrame":
    """The columns to write, whether the row is a delete, and its offset if there is one. Raises TableError."""
    from pyspark.sql import functions as F  # noqa: N812

    condition = upsert.delete_when or (f"`{DELETED}`" if DELETED in rows.columns else "false")
    names = written_columns(rows.columns, upsert)
    missing = [name for name in (*upsert.keys, *upsert.sequence_by) if name not in names]
    if missing:
        raise TableError(f"The rows have no column '{missing[0]}'; they have {', '.join(names)}")
    flagged = rows.withColumn(IS_DELETE, F.coalesce(F.expr(condition), F.lit(False)))
    kept = [*names, IS_DELETE, *([OFFSET] if OFFSET in rows.columns and OFFSET not in names else [])]
    return flagged.select(*(F.col(f"`{name}`") for name in kept))


def written_columns(columns: Sequence[str], upsert: Upsert) -> list[str]:
    needed = (*upsert.keys, *upsert.sequence_by)
    left_out = {*INTERNAL_COLUMNS, *upsert.omit}.difference(needed)
    return [name for name in columns if name not in left_out]

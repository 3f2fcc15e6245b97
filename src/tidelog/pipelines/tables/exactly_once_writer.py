"""Exactly-once writer of micro-batches to tables, for `foreachBatch`.

Tasks write files that are not visible; one commit of the driver adds them to the table together with the batch id.
A batch that Spark runs again after a crash is found by its id and not written again.
"""

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidelog.pipelines.definition.model import TableKind, TableSink
from tidelog.pipelines.tables.continuity import reject_another_checkpoint, reject_break
from tidelog.pipelines.tables.file_facts import FileFacts, TableFacts
from tidelog.pipelines.tables.files import FACTS_SCHEMA, FileLayout, facts_from_rows, task_writer, write_files
from tidelog.pipelines.tables.maintenance import maintain
from tidelog.pipelines.tables.row_preparation import (
    evaluate,
    fitting,
    map_in_arrow,
    split_by_fit,
    with_columns_of,
)
from tidelog.pipelines.tables.schema_changes import Evolve, SetAside, check_column_types, decide, difference
from tidelog.pipelines.tables.table import Before, Table, is_mergeable, nothing
from tidelog.pipelines.tables.upsert_writer import UpsertWriter
from tidelog.pipelines.tables.written import Written
from tidelog.spark.arrow_schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

SMALL_BATCH_ROWS = 10_000
SMALL_BATCH_BYTES = 16 * 1024 * 1024
"""After a batch of at most this size the next is expected to be small as well, and the driver writes it."""

SendDeadLetters = Callable[["DataFrame", str], None]


class TableWriter(Protocol):
    def write(self, rows: "DataFrame", batch_id: int) -> Written: ...


class ExactlyOnceWriter:
    def __init__(self, sink: TableSink, table: Table, send_dead_letters: SendDeadLetters) -> None:
        self._sink = sink
        self._table = table
        self._send_dead_letters = send_dead_letters
        self._driver_rows = 0
        """Rows that the driver writes itself, without tasks; 0 before the first batch."""

    def write(self, rows: "DataFrame", batch_id: int) -> Written:
        last = self._table.last_batch()
        is_there = last is not None or self._table.schema() is not None
        reject_break(self._sink.location, batch_id, last, is_there=is_there)
        if last == batch_id:
            logger.info("batch already written table=%s batch=%d last=%d", self._sink.location, batch_id, last)
            evaluate(rows)
            return Written(0, 0, was_already_there=True)
        rows = self._fitted(with_columns_of(self._sink, rows))
        files = self._write_files(rows, self._table.layout(batch_id))
        written = sum(file.rows for file in files)
        self._driver_rows = driver_rows(written, sum(file.bytes for file in files))
        if files and not self._table.commit(files, batch_id):
            return Written(0, 0, was_already_there=True)
        maintain(self._table, self._sink, batch_id)
        return Written(written, len(files), was_already_there=False)

    def _fitted(self, rows: "DataFrame") -> "DataFrame":
        columns = columns_of(rows)
        table = self._table.schema()
        if table is None:
            self._table.create(columns)
            return rows
        match decide(difference(table, columns), self._sink.schema_changes, self._sink.location):
            case Evolve() as change:
                logger.info("table schema changed table=%s change=%s", self._sink.location, difference(table, columns))
                self._table.evolve(change)
            case SetAside() as change:
                rows, misfits = split_by_fit(rows, change)
                self._send_dead_letters(misfits, change.reason)
                return fitting(rows, change)
        return rows

    def _write_files(self, rows: "DataFrame", layout: FileLayout) -> list[FileFacts]:
        """A small batch needs no Python worker and makes one file per partition, not one per task."""
        if self._driver_rows:
            few = _few_rows(rows, self._driver_rows)
            if few is not None:
                return write_files(layout, few.to_batches())
        return write_by_tasks(rows, layout)


def columns_of(rows: "DataFrame") -> "pa.Schema":
    """Raises SchemaMismatch if a table cannot hold a column."""
    columns = arrow_schema(rows.schema)
    check_column_types(columns)
    return columns


def write_by_tasks(rows: "DataFrame", layout: FileLayout) -> list[FileFacts]:
    return facts_from_rows(map_in_arrow(rows, task_writer(layout), FACTS_SCHEMA).collect())


def driver_rows(written_rows: int, written_bytes: int) -> int:
    """Rows that the driver may write of the next batch, judged by the last one; 0: leave them to tasks."""
    row_bytes = written_bytes // max(1, written_rows)
    most = min(SMALL_BATCH_ROWS, SMALL_BATCH_BYTES // max(1, row_bytes))
    return most if written_rows <= most else 0


def _few_rows(rows: "DataFrame", most: int) -> "pa.Table | None":
    """All rows if they are few; None if they are too many for the driver's memory."""
    few = rows.limit(most + 1).toArrow()
    return few if few.num_rows <= most else None


def open_table(
    sink: TableSink, application_id: str, directory: Path, send_dead_letters: SendDeadLetters | None = None
) -> TableWriter:
    """`directory` is the pipeline's: the default Iceberg catalog is there."""
    from tidelog.pipelines.tables.table_dead_letters import dead_letter_sender

    table = table_of(sink, application_id, directory)
    if table.has_another_checkpoint():
        table.close()
        reject_another_checkpoint(sink.location, application_id)
    if table.last_batch() is None and table.schema() is not None and (others := table.other_owners()):
        logger.warning("table has rows of other writers table=%s others=%s", sink.location, ", ".join(others))
    if sink.upsert is not None:
        assert is_mergeable(table), "the parser accepts upserts only for Delta and Iceberg"
        return UpsertWriter(sink, table, application_id)
    return ExactlyOnceWriter(sink, table, send_dead_letters or dead_letter_sender(sink))


def table_of(sink: TableSink, application_id: str, directory: Path, before: Before = nothing) -> Table:
    match sink.kind:
        case TableKind.DELTA:
            from tidelog.pipelines.tables.delta import DeltaLakeTable

            return DeltaLakeTable(sink, application_id, before)
        case TableKind.ICEBERG:
            from tidelog.pipelines.tables.iceberg import IcebergTable

            return IcebergTable(sink, application_id, directory, before)
        case TableKind.PARQUET:
            from tidelog.pipelines.tables.parquet import ParquetTable

            return ParquetTable(sink, application_id, before)


def read_table(sink: TableSink, directory: Path) -> "pa.Table":
    """The whole table in memory; for small tables."""
    with closing(table_of(sink, "", directory)) as table:
        return table.read()


def table_facts(sink: TableSink, application_id: str, directory: Path) -> TableFacts:
    with closing(table_of(sink, application_id, directory)) as table:
        if table.schema() is None:
            return TableFacts(0, 0, 0, None)
        last_batch = table.last_batch()
        files = table.files()
        return TableFacts(table.row_count(), len(files), sum(file.bytes for file in files), last_batch)

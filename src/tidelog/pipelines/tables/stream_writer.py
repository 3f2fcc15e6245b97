"""Writer of `format("tidelog-table")`: tasks write files, the driver's commit adds them to the table.

Spark makes two writers per micro-batch: one is pickled for the tasks, the other only gets their messages. The first
prepares the table when it is pickled, on the driver.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from tidelog.pipelines.definition.model import SchemaChanges, TableKind, TableSink, Upsert
from tidelog.pipelines.tables.continuity import reject_another_checkpoint, reject_break
from tidelog.pipelines.tables.exactly_once_writer import table_of
from tidelog.pipelines.tables.file_facts import FileFacts
from tidelog.pipelines.tables.files import FileLayout, filesystem_of, write_files
from tidelog.pipelines.tables.foreach_batch import application_of_query
from tidelog.pipelines.tables.maintenance import maintain
from tidelog.pipelines.tables.partitions import iceberg_column
from tidelog.pipelines.tables.schema_changes import (
    Evolve,
    SchemaMismatch,
    check_column_types,
    decide,
    difference,
    plain_schema,
)
from tidelog.pipelines.tables.table import Table, TableError, is_mergeable
from tidelog.pipelines.tables.table_options import NAME, from_texts, relative_path, sink_of_options
from tidelog.pipelines.tables.upsert_writer import (
    DELETED,
    OFFSET,
    Changes,
    UpsertWriter,
    with_versions,
    written_columns,
)
from tidelog.spark.accelerators.error_texts import only_the_sentence
from tidelog.spark.arrow_schema import arrow_schema
from tidelog.spark.errors import SourceError
from tidelog.spark.options.values import OptionError
from tidelog.spark.session_directory import is_deleted_with_session, relative_path_sentence
from tidelog.spark.sink.task_messages import this_task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

NO_APPLICATION = ""
"""For opening a table before the query is known: the application is named by the tasks' messages."""


class TableSinkError(SourceError):
    """The table cannot take the rows; the message says why and what to do."""


@dataclass(frozen=True)
class TaskFiles(WriterCommitMessage):
    files: tuple[FileFacts, ...]
    directory: str
    query_id: str | None


def stream_writer(options: Mapping[str, str], schema: "StructType") -> "TableStreamWriter":
    given = from_texts(dict(options))
    sink = sink_of_options(given)
    reject_expressions(sink)
    relative = relative_path(given)
    if relative is not None and is_deleted_with_session():
        raise OptionError(relative_path_sentence(relative))
    return TableStreamWriter(sink, options.get(NAME), plain_schema(arrow_schema(schema)))


def reject_expressions(sink: TableSink) -> None:
    """A Python sink of Spark has no SQL."""
    computed = [
        field
        for field in sink.partition_by
        if field.expression is not None and (sink.kind is not TableKind.ICEBERG or iceberg_column(field) is None)
    ]
    if computed:
        raise OptionError(f"partition_by: add the column '{computed[0].name}' to the rows; this sink computes none")
    condition = None if sink.upsert is None else sink.upsert.delete_when
    if condition is not None and not condition.strip("`").isidentifier():
        raise OptionError("delete_when: name a column of type boolean; this sink computes no expressions")
    if sink.schema_changes is SchemaChanges.DEAD_LETTER:
        raise OptionError("schema_changes: this sink has no dead letters; use 'fail' or 'add_columns'")


class TableStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, sink: TableSink, name: str | None, rows: pa.Schema) -> None:
        self._sink = sink
        self._name = name
        self._rows = rows
        self._layout: FileLayout | None = None
        self._problem: str | None = None

    def __getstate__(self) -> dict[str, object]:
        if self._layout is None and self._problem is None:
            try:
                self._layout = self._prepared()
            except (TableError, SchemaMismatch) as error:
                self._problem = str(error)  # Spark would report an error here as one of pickling
        return self.__dict__.copy()

    def _prepared(self) -> FileLayout:
        """Creates or evolves the table; the layout for the files of tasks."""
        with closing(self._opened(NO_APPLICATION)) as table:
            if self._sink.upsert is not None:
                return self._staging(table, self._sink.upsert)
            check_column_types(self._rows)
            schema = table.schema()
            if schema is None:
                table.create(self._rows)
            else:
                change = decide(difference(schema, self._rows), self._sink.schema_changes, self._sink.location)
                if isinstance(change, Evolve):
                    table.evolve(change)
            return replace(table.layout(0), name_prefix="part")

    def _staging(self, table: Table, upsert: Upsert) -> FileLayout:
        """Changes are staged beside the table, in files that the commit merges and deletes."""
        assert is_mergeable(table)
        if table.schema() is None:
            names = written_columns(self._rows.names, upsert)
            columns = pa.schema([self._rows.field(name) for name in names if name != _flag_of(upsert)])
            table.create(plain_schema(with_versions(columns, upsert)))
        return FileLayout(f"{table.side_directory()}/staged", self._rows, "changes")

    def _opened(self, application_id: str) -> Table:
        return table_of(self._sink, application_id, Path())

    @only_the_sentence()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFiles:
        if self._problem is not None:
            raise TableSinkError(self._problem)
        assert self._layout is not None
        return TaskFiles(tuple(write_files(self._layout, iterator)), self._layout.directory, this_task().query_id)

    @only_the_sentence()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        written = [message for message in messages if isinstance(message, TaskFiles)]
        if not written:
            return
        application_id = application_of_query(self._name, written[0].query_id)
        with closing(self._opened(application_id)) as table:
            try:
                self._commit(table, application_id, written, batchId)
            except (TableError, SchemaMismatch) as error:
                raise TableSinkError(str(error)) from error

    def _commit(self, table: Table, application_id: str, written: Sequence[TaskFiles], batch_id: int) -> None:
        if table.has_another_checkpoint():
            reject_another_checkpoint(self._sink.location, application_id)
        files = [file for message in written for file in message.files]
        if self._sink.upsert is not None:
            assert is_mergeable(table)
            changes = self._staged(written, self._sink.upsert)
            UpsertWriter(self._sink, table, application_id).write_changes(changes, batch_id)
            _delete(written)
            return
        last = table.last_batch()
        reject_break(self._sink.location, batch_id, last, is_there=last is not None or table.schema() is not None)
        if last != batch_id and files and table.commit(files, batch_id):
            maintain(table, self._sink, batch_id)

    def _staged(self, written: Sequence[TaskFiles], upsert: Upsert) -> Changes:
        parts = [self._rows.empty_table()]
        for message in written:
            filesystem, directory = filesystem_of(message.directory)
            parts += [
                pq.ParquetFile(f"{directory}/{file.path}", filesystem=filesystem).read() for file in message.files
            ]
        rows = pa.concat_tables(parts)
        if OFFSET in rows.column_names:
            rows = rows.sort_by(OFFSET)
        flag = _flag_of(upsert)
        if flag is not None and upsert.delete_when is not None and flag not in rows.column_names:
            raise TableError(f"delete_when: the rows have no column '{flag}'")
        is_delete = rows[flag] if flag in rows.column_names else pa.chunked_array([pa.array([False] * rows.num_rows)])
        names = [name for name in written_columns(rows.column_names, upsert) if name != flag]
        return Changes(rows.select(names), is_delete.fill_null(False))

    @only_the_sentence()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Files of an aborted batch are not part of the table; compaction removes them after a week."""
        logger.info("batch aborted table=%s batch=%d", self._sink.location, batchId)
        if self._sink.upsert is not None:
            _delete([message for message in messages if isinstance(message, TaskFiles)])


def _flag_of(upsert: Upsert) -> str:
    return DELETED if upsert.delete_when is None else upsert.delete_when.strip("`")


def _delete(written: Sequence[TaskFiles]) -> None:
    for message in written:
        filesystem, directory = filesystem_of(message.directory)
        for file in message.files:
            filesystem.delete_file(f"{directory}/{file.path}")

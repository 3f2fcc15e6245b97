"""Iceberg tables through `pyiceberg`: each batch is one snapshot, with the batch id as a table property.

pyiceberg 0.12 has no compaction: small files are rewritten here and replaced in one overwrite.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import (
    ArrowScan,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.typedef import Record

from tidelog.pipelines.definition.model import Compaction, TableSink
from tidelog.pipelines.tables.commit_retries import COMMITS_MAX, REPLACEMENTS_MAX, commit_batch, retry_on_conflict
from tidelog.pipelines.tables.compaction import groups_to_compact
from tidelog.pipelines.tables.continuity import other_owners, owner_of
from tidelog.pipelines.tables.file_facts import FileFacts, Partition, TableFile
from tidelog.pipelines.tables.files import FileLayout, filesystem_of, write_files
from tidelog.pipelines.tables.partitions import PartitionColumn, Transform, iceberg_column
from tidelog.pipelines.tables.schema_changes import Evolve, difference, plain_schema
from tidelog.pipelines.tables.table import Before, Contents, TableError, can_replace, nothing

logger = logging.getLogger(__name__)

BATCH_PROPERTY = "tidelog.batch."
SNAPSHOTS_KEPT = 20
"""Minimum. pyiceberg copies the whole list several times per commit, so it must not grow with every batch."""
PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "5",
}


class IcebergTable:
    conflict: type[Exception] = CommitFailedException

    def __init__(self, sink: TableSink, application_id: str, directory: Path, before: Before = nothing) -> None:
        self._identifier = sink.location
        self._batch_property = f"{BATCH_PROPERTY}{application_id}"
        self._application_id = application_id
        self._before = before
        self._catalog = catalog_of(sink, directory)
        self._table: Table | None = None
        self._tasks: dict[str, FileScanTask] = {}
        """Files as last listed."""
        columns = [(field, iceberg_column(field)) for field in sink.partition_by]
        self._partition_by = tuple(column or PartitionColumn(field.name, field.name) for field, column in columns)

    def last_batch(self) -> int | None:
        table = self._current()
        batch = None if table is None else table.properties.get(self._batch_property)
        return None if batch is None else int(batch)

    def has_another_checkpoint(self) -> bool:
        table = self._current()
        owner = owner_of(self._application_id)
        if table is None or not owner or self._batch_property in table.properties:
            return False
        return any(name.startswith(f"{BATCH_PROPERTY}{owner}/") for name in table.properties)

    def schema(self) -> pa.Schema | None:
        table = self._table or self._current()
        return None if table is None else plain_schema(schema_to_pyarrow(table.schema()))

    def create(self, schema: pa.Schema) -> None:
        self._before("create the table")
        self._catalog.create_namespace_if_not_exists(Catalog.namespace_from(self._identifier))
        try:
            with (
                self._catalog.create_table_transaction(
                    self._identifier, schema=plain_schema(schema), properties=PROPERTIES
                ) as transaction,
                transaction.update_spec() as spec,
            ):
                for column in self._partition_by:
                    spec.add_field(column.source, _transform(column), self._field_name(column, schema))
        except TableAlreadyExistsError:
            self._check_partitions(self._existing())

    def evolve(self, change: Evolve) -> None:
        table = self._existing()
        widened = [pa.field(widened.name, widened.rows_type) for widened in change.widened]
        self._before("change the schema")
        with table.update_schema() as update:
            update.union_by_name(pa.schema([*widened, *change.added]))

    def layout(self, batch_id: int) -> FileLayout:
        table = self._cached()
        self._check_partitions(table)
        return self._layout_of(table.metadata, f"part-{batch_id}")

    def commit(self, files: Sequence[FileFacts], batch_id: int) -> bool:
        def commit() -> None:
            self._commit(files, batch_id)
            self._expire_snapshots()

        what = f"commit table={self._identifier} batch={batch_id}"
        return commit_batch(batch_id, self.last_batch, commit, CommitFailedException, COMMITS_MAX, what)

    def before(self, step: str) -> None:
        self._before(step)

    def side_directory(self) -> str:
        return f"{self._cached().metadata.location.rstrip('/')}/_tidelog"

    def address(self, path: str) -> str:
        return path

    def files_and_last_batch(self) -> tuple[list[TableFile], int | None]:
        files = self.files()
        batch = self._cached().properties.get(self._batch_property)
        return files, None if batch is None else int(batch)

    def read_file(self, path: str) -> pa.Table:
        table = self._cached()
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        return scan.to_table([self._tasks[path]])

    def exchange(self, removed: Sequence[str], files: Sequence[FileFacts], batch_id: int) -> None:
        table = self._cached()
        added = [_data_file(table.metadata, file, _data_directory(table.metadata)) for file in files]
        properties = {"tidelog.application": self._application_id, "tidelog.batch": str(batch_id)}
        with table.transaction() as transaction:
            transaction.set_properties({self._batch_property: str(batch_id)})
            if removed or added:
                with transaction.update_snapshot(snapshot_properties=properties).overwrite() as overwrite:
                    for path in removed:
                        overwrite.delete_data_file(self._tasks[path].file)
                    for data_file in added:
                        overwrite.append_data_file(data_file)
            self._before("commit")
        self._before("after the commit")
        self._expire_snapshots()

    def other_owners(self) -> list[str]:
        names = [name for name in self._existing().properties if name.startswith(BATCH_PROPERTY)]
        return other_owners((name.removeprefix(BATCH_PROPERTY) for name in names), self._application_id)

    def contents(self) -> Contents:
        return self._contents_of(self._existing())

    def replacement_layout(self, schema: pa.Schema, batch_id: int) -> FileLayout:
        """The new columns already have the field ids that the replacement will assign."""
        table = self._existing()
        self._check_partitions(table)
        change = table.transaction()
        _replace_columns(change, schema)
        return self._layout_of(change.table_metadata, f"part-{batch_id}")

    def replace(
        self, old: Contents, files: Sequence[FileFacts], layout: FileLayout, batch_id: int, *, keeps_later: bool
    ) -> bool:
        def attempt() -> bool:
            table = self._existing()
            has_same_columns = schema_to_pyarrow(table.schema()).equals(layout.schema, check_metadata=True)
            if not can_replace(old, self._contents_of(table), keeps_later=keeps_later and has_same_columns):
                return False
            self._replace(table, old, files, layout, batch_id)
            self._expire_snapshots()
            return True

        return retry_on_conflict(
            attempt, CommitFailedException, REPLACEMENTS_MAX, f"replacement table={self._identifier}"
        )

    def files(self) -> list[TableFile]:
        self._tasks = {task.file.file_path: task for task in self._existing().scan().plan_files()}
        return [_table_file(task.file) for task in self._tasks.values()]

    def compact(self, compaction: Compaction) -> int:
        replaced = 0
        for _ in range(COMMITS_MAX):
            try:
                replaced += self._compact(compaction)
                break
            except CommitFailedException as error:
                logger.info("commit conflict, retrying compaction table=%s reason=%s", self._identifier, error)
        return replaced

    def sweep(self, older_than_s: float) -> int:
        table = self._existing()
        filesystem, directory = filesystem_of(_data_directory(table.metadata))
        limit = datetime.now(UTC) - timedelta(seconds=older_than_s)
        named = {filesystem_of(path)[1] for path in table.inspect.all_files()["file_path"].to_pylist()}
        found = filesystem.get_file_info(FileSelector(directory, allow_not_found=True, recursive=True))
        old = [file.path for file in found if file.is_file and file.path not in named and file.mtime < limit]
        for path in old:
            filesystem.delete_file(path)
        return len(old)

    def read(self) -> pa.Table:
        return self._existing().scan().to_arrow()

    def row_count(self) -> int:
        return sum(file.rows for file in self.files())

    def close(self) -> None:
        self._catalog.close()

    def _commit(self, files: Sequence[FileFacts], batch_id: int) -> None:
        table = self._cached()
        data_files = [_data_file(table.metadata, file, _data_directory(table.metadata)) for file in files]
        properties = {"tidelog.application": self._application_id, "tidelog.batch": str(batch_id)}
        with table.transaction() as transaction:
            transaction.set_properties({self._batch_property: str(batch_id)})
            with transaction.update_snapshot(snapshot_properties=properties).merge_append() as append:
                for data_file in data_files:
                    append.append_data_file(data_file)
            self._before("commit")
        self._before("after the commit")

    def _contents_of(self, table: Table) -> Contents:
        batch = table.properties.get(self._batch_property)
        paths = frozenset(task.file.file_path for task in table.scan().plan_files())
        return Contents(paths, None if batch is None else int(batch))

    def _replace(
        self, table: Table, old: Contents, files: Sequence[FileFacts], layout: FileLayout, batch_id: int
    ) -> None:
        replaced = [task.file for task in table.scan().plan_files() if task.file.file_path in old.files]
        last = int(table.properties.get(self._batch_property, -1))
        with table.transaction() as transaction:
            _replace_columns(transaction, layout.schema)
            changed = transaction.table_metadata
            if not schema_to_pyarrow(changed.schema()).equals(layout.schema, check_metadata=True):
                raise TableError(
                    f"Another writer changed the columns of table {self._identifier} while new files were written for"
                    " it: "
                    "start the replay again"
                )
            transaction.set_properties({self._batch_property: str(max(last, batch_id))})
            with transaction.update_snapshot().overwrite() as overwrite:
                for data_file in replaced:
                    overwrite.delete_data_file(data_file)
                for file in files:
                    overwrite.append_data_file(_data_file(changed, file, layout.directory))
            self._before("replace the files")
        self._before("after the replacement")

    def _compact(self, compaction: Compaction) -> int:
        table = self._existing()
        tasks = {task.file.file_path: task for task in table.scan().plan_files()}
        current = [_table_file(task.file) for task in tasks.values() if task.file.spec_id == table.spec().spec_id]
        groups = groups_to_compact(current, compaction)
        if not groups:
            return 0
        rewritten = [self._rewritten(table, [tasks[file.path] for file in group]) for group in groups]
        self._before("exchange the files")
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
            for file in (file for group in groups for file in group):
                overwrite.delete_data_file(tasks[file.path].file)
            for data_file in (file for files in rewritten for file in files):
                overwrite.append_data_file(data_file)
        return sum(len(group) for group in groups)

    def _rewritten(self, table: Table, tasks: Sequence[FileScanTask]) -> list[DataFile]:
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        layout = self._layout_of(table.metadata, "compacted")
        facts = write_files(layout, scan.to_record_batches(tasks))
        return [_data_file(table.metadata, fact, layout.directory) for fact in facts]

    def _expire_snapshots(self) -> None:
        """Files of expired snapshots are removed by `sweep`."""
        times_ms = sorted(snapshot.timestamp_ms for snapshot in self._cached().snapshots())
        if len(times_ms) < 2 * SNAPSHOTS_KEPT:
            return
        limit = datetime.fromtimestamp(times_ms[-SNAPSHOTS_KEPT] / 1000, UTC)
        try:
            self._cached().maintenance.expire_snapshots().older_than(limit).commit()
        except CommitFailedException as error:
            logger.info("snapshots not expired, retrying after next batch table=%s reason=%s", self._identifier, error)

    def _layout_of(self, metadata: TableMetadata, name_prefix: str) -> FileLayout:
        return FileLayout(
            directory=_data_directory(metadata),
            schema=schema_to_pyarrow(metadata.schema()),
            name_prefix=name_prefix,
            partition_by=self._partition_by,
            has_text_values=False,
            leaves_out_partition_columns=False,
        )

    def _field_name(self, column: PartitionColumn, schema: pa.Schema) -> str:
        """A partition field must not have the name of a column."""
        is_taken = column.transform is not Transform.IDENTITY and column.name in schema.names
        return f"{column.name}_{column.transform}" if is_taken else column.name

    def _check_partitions(self, table: Table) -> None:
        wanted = [(column.source, str(_transform(column))) for column in self._partition_by]
        there = [
            (table.schema().find_field(field.source_id).name, str(field.transform)) for field in table.spec().fields
        ]
        if wanted != there:
            raise TableError(
                f"Table {self._identifier} is partitioned by {_named(there)}, but the sink by {_named(wanted)}: "
                "change partition_by, or write to another table"
            )

    def _cached(self) -> Table:
        """The table as last read: reading it again loads its whole metadata."""
        return self._table or self._existing()

    def _current(self) -> Table | None:
        try:
            table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            self._table = None
            return None
        # Only here, not in the catalog: pyiceberg would retry a commit by itself on top of another writer's commit,
        # which may be the same batch.
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        self._table = table
        return table

    def _existing(self) -> Table:
        table = self._current()
        if table is None:
            raise TableError(f"No Iceberg table {self._identifier}: nothing has been written yet")
        return table


def catalog_of(sink: TableSink, directory: Path) -> Catalog:
    if sink.catalog:
        properties = dict(sink.catalog)
        return load_catalog(properties.pop("name", "default"), **properties)
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{directory / 'iceberg.db'}"
    return load_catalog("tidelog", type="sql", uri=uri, warehouse=(directory / "warehouse").as_uri())


def _transform(column: PartitionColumn) -> Any:
    simple = {
        Transform.IDENTITY: IdentityTransform,
        Transform.YEAR: YearTransform,
        Transform.MONTH: MonthTransform,
        Transform.DAY: DayTransform,
        Transform.HOUR: HourTransform,
    }
    if column.transform in simple:
        return simple[column.transform]()
    return (BucketTransform if column.transform is Transform.BUCKET else TruncateTransform)(column.width)


def _named(fields: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{transform}({source})" for source, transform in fields) or "nothing"


def _replace_columns(transaction: Transaction, schema: pa.Schema) -> None:
    """Keeps columns whose type is the same or can be promoted; drops the table's other columns."""
    found = difference(plain_schema(schema_to_pyarrow(transaction.table_metadata.schema())), plain_schema(schema))
    gone = [*found.missing, *(change.name for change in found.changed)]
    if gone:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in gone:
                update.delete_column(name)
    changed = {change.name for change in (*found.widened, *found.changed)}
    new = [field for field in plain_schema(schema) if field.name in changed | {field.name for field in found.added}]
    if new:
        with transaction.update_schema() as update:
            update.union_by_name(pa.schema(new))


def _data_directory(metadata: TableMetadata) -> str:
    return f"{metadata.location.rstrip('/')}/data"


def _data_file(table: TableMetadata, file: FileFacts, directory: str) -> DataFile:
    path = f"{directory}/{file.path}"
    filesystem, local = filesystem_of(path)
    with filesystem.open_input_file(local) as opened:
        metadata = pq.read_metadata(opened)
    statistics = data_file_statistics_from_parquet_metadata(
        metadata,
        compute_statistics_plan(table.schema(), table.properties),
        parquet_path_to_id_mapping(table.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        file_size_in_bytes=file.bytes,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _table_file(file: DataFile) -> TableFile:
    partition: Partition = tuple(file.partition[index] for index in range(len(file.partition)))
    return TableFile(file.file_path, partition, file.file_size_in_bytes, file.record_count)

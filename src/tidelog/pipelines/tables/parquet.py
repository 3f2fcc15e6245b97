"""A directory of Parquet files as a table: files are staged, listed in a manifest, then moved into place.

Readers do not see manifests (names that begin with `_` are hidden from Spark, Arrow and DuckDB). They may read a
batch or a compaction while its files are being moved; once the writer has finished, or was restarted after a crash,
they see every batch exactly once.
"""

import logging
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote, unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipelines.definition.model import Compaction, TableSink
from tidelog.pipelines.tables.compaction import groups_to_compact
from tidelog.pipelines.tables.continuity import other_owners, owner_of
from tidelog.pipelines.tables.file_facts import FileFacts, TableFile
from tidelog.pipelines.tables.files import FileLayout, conform, write_files
from tidelog.pipelines.tables.manifests import Manifest, Manifests, replace_file
from tidelog.pipelines.tables.partitions import PartitionColumn
from tidelog.pipelines.tables.schema_changes import Evolve, evolved, plain_schema, replacing
from tidelog.pipelines.tables.table import Before, Contents, TableError, can_replace, nothing

logger = logging.getLogger(__name__)

SCHEMA_PATH = "_tidelog/schema"


class ParquetTable:
    def __init__(self, sink: TableSink, application_id: str, before: Before = nothing) -> None:
        self._sink = sink
        self._location = local_path(sink.location)
        self._application_id = application_id
        self._has_owner = bool(owner_of(application_id))
        self._application = quote(application_id.rpartition("/")[2], safe="")
        self._before = before
        self._manifests = Manifests(self._location, quote(application_id), before)
        self._schema_path = self._location / SCHEMA_PATH
        self._partition_by = tuple(PartitionColumn(field.name, field.name) for field in sink.partition_by)

    def last_batch(self) -> int | None:
        return self._manifests.last_batch()

    def has_another_checkpoint(self) -> bool:
        if not self._has_owner or self._manifests.last_batch() is not None:
            return False
        return self._manifests.siblings_with_batches()

    def schema(self) -> pa.Schema | None:
        if not self._schema_path.exists():
            return None
        return pa.ipc.read_schema(pa.py_buffer(self._schema_path.read_bytes()))

    def create(self, schema: pa.Schema) -> None:
        self._before("write the schema")
        _write_schema(self._schema_path, schema)

    def evolve(self, change: Evolve) -> None:
        """Added columns are null in older files. Readers fail on files of different types, so widening rewrites."""
        schema = evolved(self._cached_schema(), change)
        with self._manifests.exclusive():
            if change.widened:
                self._widen(schema)
            self.create(schema)

    def layout(self, batch_id: int) -> FileLayout:
        return self._layout_of(str(batch_id), self._cached_schema(), batch_id)

    def _layout_of(self, staged: str, schema: pa.Schema, batch_id: int) -> FileLayout:
        return FileLayout(
            directory=str(self._manifests.staging_directory(staged)),
            schema=schema,
            name_prefix=f"part-{self._application}-{batch_id}",
            partition_by=self._partition_by,
            has_exact_directories=True,
            is_synced=True,
        )

    def commit(self, files: Sequence[FileFacts], batch_id: int) -> bool:
        last = self.last_batch()
        if last is not None and last >= batch_id:
            return False
        manifest = self._manifests.manifest(str(batch_id), (file.path for file in files))
        is_first = self._manifests.publish(manifest)
        self._before("finish the manifest")
        self.last_batch()
        return is_first

    def other_owners(self) -> list[str]:
        return other_owners(map(unquote, Manifests.applications(self._location)), self._application_id)

    def contents(self) -> Contents:
        """Summarises all manifests first, so that none lists the files."""
        for application in set(Manifests.applications(self._location)) - {quote(self._application_id)}:
            Manifests(self._location, application).summarise()
        return self._contents()

    def _contents(self) -> Contents:
        with self._manifests.exclusive():
            self._manifests.summarise()
            return Contents(frozenset(map(str, self._data_paths())), self._manifests.last_batch())

    def replacement_layout(self, schema: pa.Schema, batch_id: int) -> FileLayout:
        return self._layout_of(f"replay-{uuid.uuid4().hex}", replacing(self._cached_schema(), schema), batch_id)

    def replace(
        self, old: Contents, files: Sequence[FileFacts], layout: FileLayout, batch_id: int, *, keeps_later: bool
    ) -> bool:
        self._before("replace the files")
        with self._manifests.exclusive():
            now = self._contents()
            has_same_columns = self._cached_schema() == layout.schema
            if not can_replace(old, now, keeps_later=keeps_later and has_same_columns):
                return False
            paths = [file.path for file in files]
            if not has_same_columns:
                _write_schema(Path(layout.directory) / SCHEMA_PATH, layout.schema)
                paths.append(SCHEMA_PATH)
            is_new_batch = now.last_batch is None or now.last_batch < batch_id
            staged = Path(layout.directory)
            name = str(batch_id) if is_new_batch else staged.name
            is_first = self._manifests.publish(
                Manifest(name, str(staged.relative_to(self._location)), tuple(paths), tuple(old.files))
            )
            self._before("finish the replacement")
            self.last_batch()
            return is_first

    def files(self) -> list[TableFile]:
        return [
            TableFile(str(path), (str(path.parent),), (self._location / path).stat().st_size, 0)
            for path in self._data_paths()
        ]

    def compact(self, compaction: Compaction) -> int:
        """Only files of this application: manifests of others may still list theirs."""
        with self._manifests.exclusive():
            self._manifests.summarise()
            groups = groups_to_compact(filter(self._is_ours, self.files()), compaction)
            if groups:
                self._exchange(groups, self._cached_schema())
        return sum(len(group) for group in groups)

    def sweep(self, older_than_s: float) -> int:
        limit_s = time.time() - older_than_s
        old = [path for path in self._manifests.unfinished_staging() if path.stat().st_mtime < limit_s]
        for path in old:
            shutil.rmtree(path, ignore_errors=True)
        return len(old)

    def read(self) -> pa.Table:
        import pyarrow.dataset as ds

        schema = self._cached_schema()
        fields = pa.schema([schema.field(column.name) for column in self._partition_by])
        dataset = ds.dataset(
            [str(self._location / path) for path in self._data_paths()],
            schema=schema,
            format="parquet",
            partitioning=ds.partitioning(fields, flavor="hive"),
            partition_base_dir=str(self._location),
        )
        return dataset.to_table()

    def row_count(self) -> int:
        return sum(pq.read_metadata(self._location / path).num_rows for path in self._data_paths())

    def close(self) -> None:
        """No resources to release."""

    def _cached_schema(self) -> pa.Schema:
        schema = self.schema()
        if schema is None:
            raise TableError(f"No table at {self._location}: nothing has been written yet")
        return schema

    def _data_paths(self) -> list[Path]:
        found = (path.relative_to(self._location) for path in self._location.rglob("*.parquet"))
        return sorted(path for path in found if not any(map(_is_hidden, path.parts)))

    def _is_ours(self, file: TableFile) -> bool:
        name = rf"part-{re.escape(self._application)}-\d+-[0-9a-f]{{32}}\.parquet"
        return re.fullmatch(name, Path(file.path).name) is not None

    def _widen(self, schema: pa.Schema) -> None:
        self._manifests.summarise()
        files = self.files()
        if not all(map(self._is_ours, files)):
            raise TableError(
                f"Table {self._location} has files of other writers, so its columns cannot be widened: "
                "cast the columns in a step"
            )
        self._exchange([[file] for file in files], schema)

    def _exchange(self, groups: Sequence[Sequence[TableFile]], schema: pa.Schema) -> None:
        """One new file per group; the manifest makes the exchange atomic."""
        name = f"compaction-{uuid.uuid4().hex}"
        staged = self._manifests.staging_directory(name)
        facts = [fact for group in groups for fact in self._rewritten(group, schema, staged)]
        replaced = (file.path for group in groups for file in group)
        self._manifests.publish(self._manifests.manifest(name, (fact.path for fact in facts), replaced))
        self._before("finish the compaction")
        self._manifests.last_batch()

    def _rewritten(self, group: Sequence[TableFile], schema: pa.Schema, staged: Path) -> list[FileFacts]:
        partition = Path(group[0].path).parent
        prefix = str(partition / f"part-{self._application}-{self._manifests.last_batch() or 0}")
        names = {column.name for column in self._partition_by}
        stored = pa.schema([field for field in schema if field.name not in names])
        layout = FileLayout(str(staged), stored, prefix, is_synced=True)
        return write_files(layout, _batches_of(self._location, group, stored))


def _batches_of(location: Path, group: Iterable[TableFile], schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    for file in group:
        with pq.ParquetFile(location / file.path) as opened:
            for batch in opened.iter_batches():
                yield from conform(pa.Table.from_batches([batch]), schema).to_batches()


def _is_hidden(name: str) -> bool:
    """Spark's rule: `_topic=orders` is a partition, not hidden."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _write_schema(path: Path, schema: pa.Schema) -> None:
    replace_file(path, plain_schema(schema).serialize().to_pybytes())


def local_path(location: str) -> Path:
    address = urlparse(location)
    if address.scheme not in ("", "file"):
        raise TableError(
            f"A Parquet table must be a local directory, not '{location}': use delta or iceberg for object stores"
        )
    return Path(unquote(address.path) if address.scheme else location).absolute()

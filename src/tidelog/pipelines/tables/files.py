"""Parquet files written by tasks. They become part of the table only with the driver's commit."""

import json
import os
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

from tidelog.pipelines.tables.file_facts import FileFacts, Partition
from tidelog.pipelines.tables.partitions import (
    PartitionColumn,
    partition_directory,
    rows_by_partition,
    safe_directory_name,
)

COMPRESSION = "zstd"
COMPRESSION_LEVEL = 1
"""Half the size of snappy for a third more time; higher levels cost much and gain nothing on event data."""
ROW_GROUP_BYTES = 32 * 1024 * 1024
MAX_BUFFERED_BYTES = 128 * 1024 * 1024
MAX_OPEN_FILES = 64
"""A task with more partitions closes the least recently used file."""
MAX_STATISTICS_TEXT_LENGTH = 64
FACTS_SCHEMA = "path string, rows bigint, bytes bigint, partition string, statistics string"
FACTS_ARROW_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("partition", pa.string()),
        ("statistics", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Directory, schema and naming of the files of one batch; sent to the tasks."""

    directory: str
    """A path, or a URL of one of Arrow's file systems."""
    schema: pa.Schema
    """The table's columns, partition columns included, in order."""
    name_prefix: str
    partition_by: tuple[PartitionColumn, ...] = ()
    has_text_values: bool = True
    """Partition values as text; otherwise as Iceberg stores them."""
    has_exact_directories: bool = False
    """Directory names have the exact partition values, because readers take the values from them."""
    leaves_out_partition_columns: bool = True
    """Files do not contain partition columns."""
    is_synced: bool = False
    max_file_bytes: int = 512 * 1024 * 1024

    def file_schema(self) -> pa.Schema:
        left_out = {column.name for column in self.partition_by} if self.leaves_out_partition_columns else set()
        return pa.schema([field for field in self.schema if field.name not in left_out])

    def new_path(self, partition: Partition) -> str:
        directory = partition_directory(self.partition_by, partition)
        name = f"{self.name_prefix}-{uuid.uuid4().hex}.parquet"
        return "/".join(
            filter(None, (directory if self.has_exact_directories else safe_directory_name(directory), name))
        )


def task_writer(layout: FileLayout) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: rows in, facts about files out."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield facts_batch(write_files(layout, batches))

    return write


def write_files(layout: FileLayout, batches: Iterable[pa.RecordBatch]) -> list[FileFacts]:
    files = OpenFiles(layout)
    for batch in batches:
        files.add(pa.Table.from_batches([batch]))
    return files.close()


def facts_batch(facts: Iterable[FileFacts]) -> pa.RecordBatch:
    rows = [fact._replace(partition=json.dumps(fact.partition))._asdict() for fact in facts]  # type: ignore[arg-type]
    return pa.RecordBatch.from_pylist(rows, schema=FACTS_ARROW_SCHEMA)


def facts_from_rows(rows: Iterable[Any]) -> list[FileFacts]:
    return [FileFacts(row[0], row[1], row[2], tuple(json.loads(row[3])), row[4]) for row in rows]


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the table's columns, types and order; missing columns are null."""
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


class OpenFiles:
    """Files that a task is writing, one per partition."""

    def __init__(self, layout: FileLayout) -> None:
        self._layout = layout
        self._filesystem, self._directory = filesystem_of(layout.directory)
        self._open: OrderedDict[Partition, OpenFile] = OrderedDict()
        self._facts: list[FileFacts] = []

    def add(self, rows: pa.Table) -> None:
        layout = self._layout
        if not rows.num_rows:
            return
        rows = conform(rows, layout.schema)
        for partition, part in rows_by_partition(rows, layout.partition_by, as_text=layout.has_text_values):
            self._file(partition).add(part.select(layout.file_schema().names))
            if self._open[partition].written_bytes() > layout.max_file_bytes:
                self._close(partition)
        if sum(file.buffered_bytes for file in self._open.values()) > MAX_BUFFERED_BYTES:
            for file in self._open.values():
                file.flush()

    def close(self) -> list[FileFacts]:
        for partition in list(self._open):
            self._close(partition)
        return self._facts

    def _file(self, partition: Partition) -> "OpenFile":
        if partition not in self._open:
            if len(self._open) >= MAX_OPEN_FILES:
                self._close(next(iter(self._open)))
            self._open[partition] = OpenFile(self._layout, self._filesystem, self._directory, partition)
        self._open.move_to_end(partition)
        return self._open[partition]

    def _close(self, partition: Partition) -> None:
        self._facts.append(self._open.pop(partition).close())


class OpenFile:
    """Collects rows into large row groups: Spark passes ten thousand rows at a time."""

    def __init__(self, layout: FileLayout, filesystem: FileSystem, directory: str, partition: Partition) -> None:
        self._layout = layout
        self._filesystem = filesystem
        self._partition = partition
        self._path = layout.new_path(partition)
        self._full_path = f"{directory}/{self._path}"
        filesystem.create_dir(os.path.dirname(self._full_path), recursive=True)
        self._stream = filesystem.open_output_stream(self._full_path)
        self._writer = pq.ParquetWriter(
            self._stream, layout.file_schema(), compression=COMPRESSION, compression_level=COMPRESSION_LEVEL
        )
        self._buffered: list[pa.Table] = []
        self.buffered_bytes = 0

    def add(self, rows: pa.Table) -> None:
        self._buffered.append(rows)
        self.buffered_bytes += rows.nbytes
        if self.buffered_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._buffered:
            rows = pa.concat_tables(self._buffered)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._buffered = []
        self.buffered_bytes = 0

    def written_bytes(self) -> int:
        return int(self._stream.tell())

    def close(self) -> FileFacts:
        self.flush()
        self._writer.close()
        self._stream.close()
        if self._layout.is_synced:
            sync_path(self._full_path)
        size = self._filesystem.get_file_info(self._full_path).size
        with self._filesystem.open_input_file(self._full_path) as file:
            metadata = pq.read_metadata(file)
        return FileFacts(self._path, metadata.num_rows, size, self._partition, json.dumps(statistics_of(metadata)))


def filesystem_of(directory: str) -> tuple[FileSystem, str]:
    if "://" in directory:
        filesystem, path = FileSystem.from_uri(directory)
        return filesystem, path.rstrip("/")
    return LocalFileSystem(), os.path.abspath(directory)


def sync_path(path: str) -> None:
    """Syncs a file, or the entries of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def statistics_of(metadata: pq.FileMetaData) -> dict[str, dict[str, Any]]:
    """Statistics for data skipping; nested columns, and bounds that would mislead, are left out."""
    found: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        parts = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
        if "." in name or not parts or any(part is None or not part.has_null_count for part in parts):
            continue
        found["nullCount"][name] = sum(part.null_count for part in parts)
        with_bounds = [part for part in parts if part.has_min_max]
        if with_bounds and len(with_bounds) == sum(part.num_values > 0 for part in parts):
            low, high = min(part.min for part in with_bounds), max(part.max for part in with_bounds)
            if _is_useful_bound(low) and _is_useful_bound(high):
                found["minValues"][name], found["maxValues"][name] = _spelled(low), _spelled(high)
    return found


def _is_useful_bound(bound: Any) -> bool:
    """False for floats with NaN, which Parquet's bounds ignore but Spark sorts last, and for long strings, which
    cost more than they save."""
    if isinstance(bound, str):
        return len(bound) <= MAX_STATISTICS_TEXT_LENGTH
    return isinstance(bound, int | date) and not isinstance(bound, bool)


def _spelled(bound: Any) -> Any:
    if isinstance(bound, datetime):
        utc = bound.astimezone(UTC) if bound.tzinfo else bound
        return utc.strftime("%Y-%m-%dT%H:%M:%S.%f") + ("Z" if bound.tzinfo else "")
    return bound.isoformat() if isinstance(bound, date) else bound

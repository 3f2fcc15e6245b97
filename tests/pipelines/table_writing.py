"""Writes batches to tables without Spark, as the tasks and the driver do it between them."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tidelog.pipelines.definition.model import Compaction, PartitionField, SchemaChanges, TableKind, TableSink
from tidelog.pipelines.tables.exactly_once_writer import table_of
from tidelog.pipelines.tables.files import write_files
from tidelog.pipelines.tables.table import Before, Table, nothing

SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string()), ("amount", pa.float64())])
APPLICATION = "a1b2-c3"
COMPACTION = Compaction(files=2, target_bytes=1_000_000)


class Crash(Exception):
    """The process dies here."""


class CrashAt:
    """Counts the steps and dies before the chosen one."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.seen: list[str] = []

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if len(self.seen) == self.step:
            raise Crash(name)


def sink_of(kind: TableKind, directory: Path, partition_by: Sequence[str] = ("country",)) -> TableSink:
    location = "shop.orders" if kind is TableKind.ICEBERG else str(directory / "orders")
    fields = tuple(PartitionField(*(part.strip() for part in field.split("=", 1))) for field in partition_by)
    return TableSink("orders", "orders", kind, location, fields, SchemaChanges.FAIL, compaction=COMPACTION)


def opened(sink: TableSink, directory: Path, before: Before = nothing, application: str = APPLICATION) -> Table:
    return table_of(sink, application, directory, before)


def batch_rows(batch_id: int, rows: int = 4) -> pa.RecordBatch:
    ids = [batch_id * 100 + row for row in range(rows)]
    countries = [("CH", "DE", None, "a/b ä%")[row % 4] for row in range(rows)]
    return pa.RecordBatch.from_pydict({"id": ids, "country": countries, "amount": [0.5] * rows}, schema=SCHEMA)


def write_batch(table: Table, batch_id: int, rows: pa.RecordBatch | None = None) -> bool:
    """False if the table already held the batch."""
    last = table.last_batch()
    if last is not None and last >= batch_id:
        return False
    if table.schema() is None:
        table.create(SCHEMA)
    facts = write_files(table.layout(batch_id), [batch_rows(batch_id) if rows is None else rows])
    return table.commit(facts, batch_id)


def ids_of(table: Table) -> list[int]:
    return sorted(table.read()["id"].to_pylist())


def expected_ids(*batch_ids: int) -> list[int]:
    return sorted(row_id for batch_id in batch_ids for row_id in batch_rows(batch_id)["id"].to_pylist())

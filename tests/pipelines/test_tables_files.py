"""Rows are divided by partition, written to files and listed; small files are chosen for compaction."""

import json
from datetime import UTC, date, datetime
from pathlib import Path

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipelines.definition.model import Compaction, PartitionField
from tidelog.pipelines.tables import files
from tidelog.pipelines.tables.compaction import groups_to_compact
from tidelog.pipelines.tables.exactly_once_writer import driver_rows
from tidelog.pipelines.tables.file_facts import TableFile
from tidelog.pipelines.tables.files import FileLayout, facts_batch, facts_from_rows, write_files
from tidelog.pipelines.tables.maintenance import is_due
from tidelog.pipelines.tables.partitions import (
    PartitionColumn,
    Transform,
    iceberg_column,
    murmur3_of_longs,
    partition_directory,
    partition_values,
    rows_by_partition,
    safe_directory_name,
)

MOMENT = datetime(1969, 12, 31, 23, 30, tzinfo=UTC)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(0, 3)))))
def test_every_row_is_in_the_partition_of_its_values_and_keeps_its_order(keys: list[tuple[str, int]]) -> None:
    rows = pa.table(
        {"a": pa.array([key[0] for key in keys], pa.string()), "b": pa.array([key[1] for key in keys], pa.int32())}
    ).append_column("row", pa.array(range(len(keys)), pa.int64()))
    columns = [PartitionColumn("a", "a"), PartitionColumn("b", "b")]
    parts = list(rows_by_partition(rows, columns, as_text=False)) if keys else []
    assert sorted(row for _, part in parts for row in part["row"].to_pylist()) == list(range(len(keys)))
    assert len({partition for partition, _ in parts}) == len(parts)
    for partition, part in parts:
        assert {(row["a"], row["b"]) for row in part.to_pylist()} == {partition}
        assert part["row"].to_pylist() == sorted(part["row"].to_pylist())


def test_values_are_spelled_as_directories_and_as_iceberg_stores_them() -> None:
    rows = pa.table({"day": [date(1970, 1, 2)], "at": pa.array([MOMENT], pa.timestamp("us", "UTC")), "ok": [True]})
    columns = [PartitionColumn(name, name) for name in rows.column_names]
    [(text, _)] = rows_by_partition(rows, columns, as_text=True)
    [(stored, _)] = rows_by_partition(rows, columns, as_text=False)
    assert text == ("1970-01-02", "1969-12-31 23:30:00.000000", "true")
    assert stored == (1, -1_800_000_000, True)


def test_directories_escape_what_a_file_system_or_a_reader_would_misread() -> None:
    columns = (PartitionColumn("day", "day"), PartitionColumn("name", "name"))
    directory = partition_directory(columns, ("2026-01-31", "a/b=%ä"))
    assert directory == "day=2026-01-31/name=a%2Fb%3D%25%C3%A4"
    assert partition_directory(columns, (None, "")).count("__HIVE_DEFAULT_PARTITION__") == 2
    assert "%" not in safe_directory_name(directory)
    assert max(map(len, safe_directory_name(partition_directory(columns, ("..", "ä" * 1000))).split("/"))) <= 255


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        (None, PartitionColumn("p", "p")),
        ("days(at)", PartitionColumn("p", "at", Transform.DAY)),
        ("hour(at)", PartitionColumn("p", "at", Transform.HOUR)),
        ("bucket(16, id)", PartitionColumn("p", "id", Transform.BUCKET, 16)),
        ("truncate(name, 4)", PartitionColumn("p", "name", Transform.TRUNCATE, 4)),
        ("date(at)", None),
        ("day(at) + 1", None),
    ],
)
def test_expressions_that_iceberg_knows_become_its_transforms(
    expression: str | None, column: PartitionColumn | None
) -> None:
    assert iceberg_column(PartitionField("p", expression)) == column


SAMPLES: dict[str, tuple[pa.DataType, list[object]]] = {
    "long": (pa.int64(), [0, 1, -1, 34, 2**62, -(2**63), None]),
    "int": (pa.int32(), [34, -7, None]),
    "date": (pa.date32(), [date(2017, 11, 16), date(1969, 12, 31), None]),
    "timestamptz": (pa.timestamp("us", "UTC"), [datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), MOMENT, None]),
    "string": (pa.string(), ["iceberg", "", "grüezi", None]),
}
CASES = [
    (Transform.BUCKET, 16, list(SAMPLES)),
    (Transform.TRUNCATE, 3, ["long", "int", "string"]),
    (Transform.YEAR, 0, ["date", "timestamptz"]),
    (Transform.MONTH, 0, ["date", "timestamptz"]),
    (Transform.DAY, 0, ["date", "timestamptz"]),
    (Transform.HOUR, 0, ["timestamptz"]),
]


def as_stored(value: object) -> object:
    from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

    if isinstance(value, datetime):
        return datetime_to_micros(value)
    return date_to_days(value) if isinstance(value, date) else value


@pytest.mark.parametrize(
    ("transform", "width", "name"), [(case[0], case[1], name) for case in CASES for name in case[2]]
)
def test_transforms_give_what_iceberg_defines(transform: Transform, width: int, name: str) -> None:
    from pyiceberg.transforms import parse_transform
    from pyiceberg.types import DateType, IntegerType, LongType, StringType, TimestamptzType

    types = {"long": LongType(), "int": IntegerType(), "date": DateType(), "string": StringType()}
    source_type = types.get(name, TimestamptzType())
    data_type, values = SAMPLES[name]
    if transform is Transform.TRUNCATE:
        values = [value for value in values if value != -(2**63)]
    theirs = parse_transform(f"{transform}[{width}]" if width else str(transform)).transform(source_type)
    column = PartitionColumn("p", "p", transform, width)
    ours = partition_values(pa.chunked_array([pa.array(values, data_type)]), column)
    assert ours.to_pylist() == [theirs(as_stored(value)) for value in values]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_hashes_of_numbers_are_murmur3(numbers: list[int]) -> None:
    expected = [mmh3.hash(number.to_bytes(8, "little", signed=True), signed=False) for number in numbers]
    assert murmur3_of_longs(np.array(numbers, dtype=np.int64)).tolist() == expected


def layout(directory: Path, schema: pa.Schema, *columns: str) -> FileLayout:
    return FileLayout(str(directory), schema, "part", tuple(PartitionColumn(name, name) for name in columns))


def test_facts_have_rows_bytes_partition_and_bounds(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "day": [date(2026, 1, 31)] * 3,
            "id": [3, 1, None],
            "at": pa.array([MOMENT, None, None], pa.timestamp("us", "UTC")),
            "text": ["a", "b" * 100, "a"],
            "share": [1.0, float("nan"), 2.0],
        }
    )
    [fact] = write_files(layout(tmp_path, rows.schema, "day"), [rows])
    path = tmp_path / fact.path
    assert (fact.rows, fact.bytes, fact.partition) == (3, path.stat().st_size, ("2026-01-31",))
    assert fact.path.startswith("day=2026-01-31/part-")
    assert json.loads(fact.statistics) == {
        "minValues": {"id": 1, "at": "1969-12-31T23:30:00.000000Z"},
        "maxValues": {"id": 3, "at": "1969-12-31T23:30:00.000000Z"},
        "nullCount": {"id": 1, "at": 2, "text": 0, "share": 0},
    }
    assert pq.ParquetFile(path).schema_arrow.names == ["id", "at", "text", "share"]
    assert facts_from_rows(tuple(row.values()) for row in facts_batch([fact]).to_pylist()) == [fact]


def test_many_small_batches_become_one_row_group(tmp_path: Path) -> None:
    batches = [pa.RecordBatch.from_pydict({"id": [number]}) for number in range(50)]
    [fact] = write_files(layout(tmp_path, batches[0].schema), batches)
    with pq.ParquetFile(tmp_path / fact.path) as file:
        assert file.metadata.num_row_groups == 1
        assert file.read()["id"].to_pylist() == list(range(50))


def test_more_partitions_than_open_files_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_OPEN_FILES", 3)
    batches = [pa.RecordBatch.from_pydict({"p": [f"p{number % 7}"], "id": [number]}) for number in range(40)]
    facts = write_files(layout(tmp_path, batches[0].schema, "p"), batches)
    found = [row for fact in facts for row in pq.ParquetFile(tmp_path / fact.path).read()["id"].to_pylist()]
    assert sorted(found) == list(range(40))


def test_an_empty_batch_writes_no_file(tmp_path: Path) -> None:
    empty = pa.RecordBatch.from_pydict({"id": pa.array([], pa.int64())})
    assert write_files(layout(tmp_path, empty.schema), [empty]) == []
    assert list(tmp_path.rglob("*.parquet")) == []


def file(name: str, size: int, partition: str | None = "p") -> TableFile:
    return TableFile(name, (partition,), size, 1)


def test_the_driver_writes_small_batches_of_small_rows_itself() -> None:
    assert driver_rows(0, 0) == 10_000
    assert driver_rows(10, 10 * 100) == 10_000
    assert driver_rows(10_001, 10_001 * 100) == 0
    assert driver_rows(10, 10 * 1024 * 1024) == 16
    assert driver_rows(17, 17 * 1024 * 1024) == 0


def test_maintenance_comes_with_every_so_many_batches_of_any_writer() -> None:
    assert [batch_id for batch_id in range(100) if is_due(batch_id, 32)] == [31, 63, 95]
    assert is_due(0, 1)


def test_small_files_of_one_partition_are_put_together_once_there_are_enough() -> None:
    small = [file(str(number), 30) for number in range(5)]
    large, other = file("large", 80), file("other", 10, None)
    groups = groups_to_compact([*small, large, other], Compaction(files=5, target_bytes=100))
    assert [[each.path for each in group] for group in groups] == [["0", "1", "2"], ["3", "4"]]
    assert groups_to_compact(small, Compaction(files=6, target_bytes=100)) == []


@given(st.lists(st.integers(1, 150), max_size=60))
def test_groups_hold_each_small_file_at_most_once_and_stay_below_the_target(sizes: list[int]) -> None:
    there = [file(f"{number:03}", size) for number, size in enumerate(sizes)]
    groups = groups_to_compact(there, Compaction(files=2, target_bytes=100))
    chosen = [each.path for group in groups for each in group]
    assert len(chosen) == len(set(chosen))
    assert all(len(group) > 1 and sum(each.bytes for each in group) <= 100 for group in groups)

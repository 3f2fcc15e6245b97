"""Rows whose columns are not those of the table."""

from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from tests.pipelines.table_writing import Crash, CrashAt, batch_rows, expected_ids, ids_of, opened, sink_of, write_batch
from tidelog.pipelines.definition.model import SchemaChanges, TableKind
from tidelog.pipelines.tables.schema_changes import (
    Difference,
    Evolve,
    SchemaMismatch,
    SetAside,
    TypeChange,
    check_column_types,
    decide,
    difference,
    evolved,
    fits,
    spark_name,
)
from tidelog.pipelines.tables.table import Table

TABLE = pa.schema([("id", pa.int32()), ("name", pa.string()), ("price", pa.float32())])


def test_equal_columns_in_another_order_are_no_difference() -> None:
    assert not difference(TABLE, pa.schema(list(reversed(list(TABLE)))))


def test_a_narrower_column_of_the_rows_fits() -> None:
    assert not difference(pa.schema([("id", pa.int64())]), pa.schema([("id", pa.int16())]))


def test_large_strings_and_other_spellings_of_utc_are_no_difference() -> None:
    assert fits(pa.string(), pa.large_string())
    assert fits(pa.timestamp("us", "Etc/UTC"), pa.timestamp("us", "UTC"))
    assert fits(pa.list_(pa.field("item", pa.string())), pa.large_list(pa.field("element", pa.large_string())))
    assert not fits(pa.timestamp("us"), pa.timestamp("us", "UTC"))


def test_a_difference_names_added_missing_and_changed_columns() -> None:
    rows = pa.schema([("id", pa.string()), ("price", pa.float64()), ("note", pa.list_(pa.string()))])
    assert str(difference(TABLE, rows)) == (
        "added: note array<string>; missing: name; "
        "changed: price (float in the table, double in the rows), id (int in the table, string in the rows)"
    )


def test_fail_refuses_every_difference_in_one_sentence() -> None:
    found = difference(TABLE, pa.schema([*TABLE, ("note", pa.string())]))
    with pytest.raises(SchemaMismatch, match=r"do not fit table 'orders': added: note string.*add_columns"):
        decide(found, SchemaChanges.FAIL, "orders")
    with pytest.raises(SchemaMismatch, match="missing: price"):
        decide(difference(TABLE, pa.schema(list(TABLE)[:2])), SchemaChanges.FAIL, "orders")


def test_add_columns_adds_and_widens() -> None:
    rows = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("note", pa.string())])
    change = decide(difference(TABLE, rows), SchemaChanges.ADD_COLUMNS, "orders")
    assert isinstance(change, Evolve)
    after = evolved(TABLE, change)
    assert after.names == ["id", "name", "price", "note"]
    assert after.types == [pa.int64(), pa.string(), pa.float64(), pa.string()]


def test_add_columns_lets_columns_be_missing() -> None:
    assert decide(difference(TABLE, pa.schema([("id", pa.int32())])), SchemaChanges.ADD_COLUMNS, "orders") is None


def test_add_columns_refuses_another_type() -> None:
    found = difference(TABLE, pa.schema([("id", pa.string())]))
    with pytest.raises(SchemaMismatch, match=r"id \(int in the table, string in the rows\)"):
        decide(found, SchemaChanges.ADD_COLUMNS, "orders")


def test_dead_letter_sets_aside_what_the_table_cannot_hold() -> None:
    found = difference(TABLE, pa.schema([("id", pa.string()), ("price", pa.float64()), ("note", pa.string())]))
    change = decide(found, SchemaChanges.DEAD_LETTER, "orders")
    assert isinstance(change, SetAside)
    assert change.added == ("note",)
    assert [changed.name for changed in change.changed] == ["price", "id"]
    assert decide(Difference(missing=("name",)), SchemaChanges.DEAD_LETTER, "orders") is None


def test_types_are_shown_in_the_words_of_spark() -> None:
    nested = pa.struct([("at", pa.timestamp("us", "UTC")), ("tags", pa.map_(pa.string(), pa.decimal128(10, 2)))])
    assert spark_name(nested) == "struct<at: timestamp, tags: map<string, decimal(10,2)>>"
    assert str(TypeChange("id", pa.int32(), pa.date32())) == "id (int in the table, date in the rows)"


def test_columns_of_no_type_are_refused_by_name() -> None:
    with pytest.raises(SchemaMismatch, match="Column 'nothing' is void"):
        check_column_types(pa.schema([("id", pa.int64()), ("nothing", pa.null())]))


@pytest.mark.parametrize("kind", list(TableKind))
def test_a_change_of_columns_that_dies_at_any_step_is_made_when_it_is_tried_again(
    kind: TableKind, tmp_path: Path
) -> None:
    narrow = pa.schema([("id", pa.int32()), ("country", pa.string()), ("amount", pa.float32())])
    wide = pa.schema([("id", pa.int64()), ("country", pa.string()), ("note", pa.string())])

    def change(table: Table) -> None:
        there = table.schema()
        assert there is not None
        found = difference(there, wide)
        if found.added or found.widened:
            table.evolve(Evolve(found.added, found.widened))

    for step in range(1, 100):
        directory = tmp_path / str(step)
        directory.mkdir()
        with closing(opened(sink_of(kind, directory), directory)) as table:
            table.create(narrow)
            write_batch(table, 0, batch_rows(0).cast(narrow))
        crash = CrashAt(step)
        with closing(opened(sink_of(kind, directory), directory, crash)) as table, suppress(Crash):
            change(table)
        with closing(opened(sink_of(kind, directory), directory)) as table:
            assert table.last_batch() == 0
            change(table)
            assert ids_of(table) == expected_ids(0)
            assert table.read().schema.field("id").type == pa.int64()
        if len(crash.seen) < step:
            break
    assert 1 < step < 99


@pytest.mark.parametrize("kind", list(TableKind))
def test_columns_are_added_and_widened_in_a_table_that_has_rows(kind: TableKind, tmp_path: Path) -> None:
    narrow = pa.schema([("id", pa.int32()), ("country", pa.string()), ("amount", pa.float32())])
    with closing(opened(sink_of(kind, tmp_path), tmp_path)) as table:
        table.create(narrow)
        write_batch(table, 0, batch_rows(0).cast(narrow))
        wide = pa.schema([("id", pa.int64()), ("country", pa.string()), ("note", pa.struct([("x", pa.string())]))])
        table.evolve(Evolve(difference(narrow, wide).added, ()))
        widening = difference(narrow, wide).widened
        table.evolve(Evolve((), widening))
        rows = pa.RecordBatch.from_pylist([{"id": 2**40, "country": "CH", "note": {"x": "y"}}], schema=wide)
        write_batch(table, 1, rows)
        there = table.read()
    assert sorted(there["id"].to_pylist()) == [0, 1, 2, 3, 2**40]
    assert there.schema.field("id").type == pa.int64()
    assert sorted(there["note"].to_pylist(), key=bool) == [None] * 4 + [{"x": "y"}]
    assert there["amount"].null_count == 1

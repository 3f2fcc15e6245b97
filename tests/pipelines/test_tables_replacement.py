"""The contents of a table are exchanged in one step, while others write to it, and whatever happens in between."""

from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from tests.pipelines.table_writing import (
    COMPACTION,
    SCHEMA,
    Crash,
    CrashAt,
    batch_rows,
    expected_ids,
    ids_of,
    opened,
    sink_of,
    write_batch,
)
from tidelog.pipelines.definition.model import TableKind
from tidelog.pipelines.tables.files import write_files
from tidelog.pipelines.tables.schema_changes import plain_schema
from tidelog.pipelines.tables.table import Contents, Table

KINDS = list(TableKind)
WITH_TAX = SCHEMA.append(pa.field("tax", pa.float64()))
NEW = 50
"""Stands for the rows that take the place of others."""


def rows_with(schema: pa.Schema, batch_id: int) -> pa.RecordBatch:
    rows = batch_rows(batch_id)
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.schema.names else pa.nulls(4, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def replace(
    table: Table, old: Contents, batch_id: int, schema: pa.Schema = SCHEMA, *, new: int = NEW, keeps_later: bool = True
) -> bool:
    layout = table.replacement_layout(schema, batch_id)
    return table.replace(old, write_files(layout, [rows_with(schema, new)]), layout, batch_id, keeps_later=keeps_later)


def during(step_to_meet: str, work: Callable[[], None]) -> Callable[[str], None]:
    """Does the work once, when the step is about to be taken."""
    is_done = False

    def meet(step: str) -> None:
        nonlocal is_done
        if step == step_to_meet and not is_done:
            is_done = True
            work()

    return meet


@pytest.mark.parametrize("schema", [SCHEMA, WITH_TAX], ids=["same-columns", "new-column"])
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_crash_at_any_step_the_table_is_the_old_one_or_the_new_one(
    kind: TableKind, schema: pa.Schema, tmp_path: Path
) -> None:
    seen: set[bool] = set()
    for step in count(1):
        directory = tmp_path / str(step)
        directory.mkdir()
        sink = sink_of(kind, directory)
        with closing(opened(sink, directory)) as table:
            write_batch(table, 0)
            write_batch(table, 1)
        crash, has_crashed = CrashAt(step), False
        with closing(opened(sink, directory, crash)) as table:
            try:
                assert replace(table, table.contents(), 1, schema)
            except Crash:
                has_crashed = True
        with closing(opened(sink, directory)) as table:
            assert table.last_batch() == 1
            is_new = ids_of(table) == expected_ids(NEW)
            assert is_new or ids_of(table) == expected_ids(0, 1)
            expected = schema if is_new else SCHEMA
            assert table.schema() is not None
            assert sorted(table.schema().names) == sorted(expected.names)  # type: ignore[union-attr]
            assert not write_batch(table, 1)
            assert write_batch(table, 2)
            seen.add(is_new)
            assert replace(table, table.contents(), 2, schema, new=NEW + 1)
            assert ids_of(table) == expected_ids(NEW + 1)
        if not has_crashed:
            break
    assert seen == {True, False}


@pytest.mark.parametrize("kind", KINDS)
def test_batches_that_arrive_meanwhile_stay(kind: TableKind, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path)

    def append() -> None:
        with closing(opened(sink, tmp_path)) as running:
            assert write_batch(running, 3)

    with closing(opened(sink, tmp_path, during("replace the files", append))) as table:
        write_batch(table, 0)
        write_batch(table, 1)
        old = table.contents()
        write_batch(table, 2)
        assert replace(table, old, 1)
        assert ids_of(table) == expected_ids(NEW, 2, 3)
        assert table.last_batch() == 3
        assert not write_batch(table, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_were_compacted_meanwhile_are_not_replaced(kind: TableKind, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path)

    def compact() -> None:
        with closing(opened(sink, tmp_path)) as running:
            write_batch(running, 2)
            assert running.compact(COMPACTION)

    with closing(opened(sink, tmp_path, during("replace the files", compact))) as table:
        write_batch(table, 0)
        write_batch(table, 1)
        assert not replace(table, table.contents(), 1)
        assert ids_of(table) == expected_ids(0, 1, 2)
        assert replace(table, table.contents(), 2)
        assert ids_of(table) == expected_ids(NEW)


@pytest.mark.parametrize("kind", KINDS)
def test_compaction_of_batches_that_arrived_meanwhile_does_no_harm(kind: TableKind, tmp_path: Path) -> None:
    with closing(opened(sink_of(kind, tmp_path, ()), tmp_path)) as table:
        write_batch(table, 0)
        table.compact(COMPACTION)
        old = table.contents()
        layout = table.replacement_layout(SCHEMA, 0)
        files = write_files(layout, [batch_rows(NEW)])
        assert table.replace(old, files, layout, 0, keeps_later=True)
        write_batch(table, 1)
        write_batch(table, 2)
        table.compact(COMPACTION)
        assert ids_of(table) == expected_ids(NEW, 1, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_change_only_when_nothing_arrived_meanwhile(kind: TableKind, tmp_path: Path) -> None:
    other_type = pa.schema([("id", pa.int64()), ("country", pa.string()), ("amount", pa.string())])
    with closing(opened(sink_of(kind, tmp_path), tmp_path)) as table:
        write_batch(table, 0)
        old = table.contents()
        write_batch(table, 1)
        for schema in (WITH_TAX, other_type):
            assert not replace(table, old, 0, schema)
        assert ids_of(table) == expected_ids(0, 1)
        for schema in (WITH_TAX, other_type, SCHEMA.remove(2)):
            assert replace(table, table.contents(), 1, schema)
            assert plain_schema(table.read().select(schema.names).schema).types == schema.types
            assert sorted(table.read().column_names) == sorted(schema.names)
            assert ids_of(table) == expected_ids(NEW)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_the_new_files_hold_is_not_written_again(kind: TableKind, tmp_path: Path) -> None:
    with closing(opened(sink_of(kind, tmp_path), tmp_path, application="shop/orders/lost")) as table:
        write_batch(table, 7)
    with closing(opened(sink_of(kind, tmp_path), tmp_path, application="shop/orders/new")) as table:
        assert table.last_batch() is None
        assert replace(table, table.contents(), 0, keeps_later=False)
        assert ids_of(table) == expected_ids(NEW)
        assert not table.has_another_checkpoint()
        assert not write_batch(table, 0)
        assert write_batch(table, 1)
        assert ids_of(table) == expected_ids(NEW, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_the_new_files_hold_may_not_arrive_meanwhile(kind: TableKind, tmp_path: Path) -> None:
    with closing(opened(sink_of(kind, tmp_path), tmp_path)) as table:
        table.create(SCHEMA)
        old = table.contents()
        write_batch(table, 0)
        assert not replace(table, old, 0, keeps_later=False)
        assert ids_of(table) == expected_ids(0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_may_become_empty_and_fill_again(kind: TableKind, tmp_path: Path) -> None:
    with closing(opened(sink_of(kind, tmp_path), tmp_path)) as table:
        write_batch(table, 0)
        assert table.replace(table.contents(), [], table.replacement_layout(SCHEMA, 0), 0, keeps_later=True)
        assert ids_of(table) == []
        assert replace(table, table.contents(), 0)
        assert ids_of(table) == expected_ids(NEW)


@pytest.mark.parametrize("kind", KINDS)
def test_partitions_whose_names_begin_like_hidden_ones_are_part_of_the_table(kind: TableKind, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("_topic", pa.string())])
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "_topic": ["a", "b"]}, schema=schema)
    with closing(opened(sink_of(kind, tmp_path, ("_topic",)), tmp_path)) as table:
        table.create(schema)
        assert write_batch(table, 0, rows)
        assert ids_of(table) == [1, 2]
        layout = table.replacement_layout(schema, 0)
        assert table.replace(table.contents(), write_files(layout, [rows.slice(1)]), layout, 0, keeps_later=True)
        assert ids_of(table) == [2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_shows_who_else_has_written_to_it(kind: TableKind, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path)
    for batch_id, application in enumerate(("shop/orders/1", "shop/orders/2", "stock/all goods/1", "by-hand")):
        with closing(opened(sink, tmp_path, application=application)) as table:
            write_batch(table, 0, batch_rows(batch_id))
    with closing(opened(sink, tmp_path, application="shop/orders/2")) as table:
        assert table.other_owners() == ["by-hand", "stock/all goods"]
    with closing(opened(sink, tmp_path, application="by-hand")) as table:
        assert table.other_owners() == ["shop/orders", "stock/all goods"]


def test_the_applications_of_a_delta_table_are_found_in_its_checkpoint_too(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    sink = sink_of(TableKind.DELTA, tmp_path)
    for application in ("first", "second"):
        write_batch(opened(sink, tmp_path, application=application), 0)
        DeltaTable(sink.location).create_checkpoint()
    write_batch(opened(sink, tmp_path, application="third"), 0)
    assert opened(sink, tmp_path, application="third").other_owners() == ["first", "second"]

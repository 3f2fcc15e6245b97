"""Upserts into Delta and Iceberg: as the model says, once, whatever happens between two steps."""

import multiprocessing
import os
import signal
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipelines.change_model import ARRIVAL, HISTORY, LATEST, Change, Model, arrow, rows_of
from tests.pipelines.table_writing import APPLICATION, Crash, CrashAt, sink_of
from tests.pipelines.test_change_merge import BATCHES
from tidelog.pipelines.definition.model import Compaction, SchemaChanges, TableKind, TableSink, Upsert
from tidelog.pipelines.tables.exactly_once_writer import table_of
from tidelog.pipelines.tables.table import Before, TableError, is_mergeable, nothing
from tidelog.pipelines.tables.upsert_writer import Changes, UpsertWriter, written_columns

KINDS = [TableKind.DELTA, TableKind.ICEBERG]


def upsert_sink(kind: TableKind, directory: Path, upsert: Upsert) -> TableSink:
    return replace(sink_of(kind, directory), upsert=upsert, compaction=Compaction(files=4, target_bytes=100_000))


def write(sink: TableSink, directory: Path, changes: Changes, batch_id: int, before: Before = nothing) -> bool:
    """False if the table already held the batch."""
    with closing(table_of(sink, APPLICATION, directory, before)) as table:
        assert is_mergeable(table)
        return not UpsertWriter(sink, table, APPLICATION).write_changes(changes, batch_id).was_already_there


def content(sink: TableSink, directory: Path) -> list[tuple[object, ...]]:
    with closing(table_of(sink, APPLICATION, directory)) as table:
        return rows_of(table.read())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("upsert", [LATEST, ARRIVAL, HISTORY], ids=["latest", "arrival", "history"])
@given(batches=BATCHES.filter(bool), data=st.data())
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_tables_are_what_the_model_says(
    kind: TableKind,
    upsert: Upsert,
    batches: list[list[Change]],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Each batch is written again now and then, after a crash or without one."""
    directory = tmp_path_factory.mktemp("upserts")
    sink, model = upsert_sink(kind, directory, upsert), Model(upsert)
    for batch_id, changes in enumerate(batches):
        crash = data.draw(st.integers(0, 6))
        with suppress(Crash):
            write(sink, directory, arrow(changes), batch_id, CrashAt(crash) if crash else nothing)
        write(sink, directory, arrow(changes), batch_id)
        model.apply(changes)
        assert content(sink, directory) == model.rows()


FIRST = [Change(number, "CH" if number % 2 else "DE", 1.0, 1) for number in range(20)]
SECOND = [Change(3, "DE", 2.0, 2), Change(4, "", 0.0, 3, is_delete=True), Change(50, "CH", 2.0, 2)]
LATE = [Change(4, "CH", 9.0, 2), Change(3, "CH", 9.0, 1)]


def die(step_to_die_at: int) -> Before:
    seen = count(1)

    def before(_step: str) -> None:
        if next(seen) == step_to_die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    return before


def _write_and_die(sink: TableSink, directory: Path, batch_id: int, step: int) -> None:
    write(sink, directory, arrow([FIRST, SECOND, LATE][batch_id]), batch_id, die(step))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("upsert", [LATEST, HISTORY], ids=["latest", "history"])
def test_a_process_that_is_killed_at_any_step_neither_loses_nor_repeats_a_change(
    kind: TableKind, upsert: Upsert, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # one import of the libraries for all deaths, not one for each
    deaths = 0
    for batch_id, changes in enumerate([FIRST, SECOND, LATE]):
        for step in count(1):
            directory = tmp_path / f"{batch_id}-{step}"
            sink, model = upsert_sink(kind, directory, upsert), Model(upsert)
            for earlier, before in enumerate([FIRST, SECOND][:batch_id]):
                write(sink, directory, arrow(before), earlier)
                model.apply(before)
            process = context.Process(target=_write_and_die, args=(sink, directory, batch_id, step))
            process.start()
            process.join(120)
            write(sink, directory, arrow(changes), batch_id)
            model.apply(changes)
            assert content(sink, directory) == model.rows(), step
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL
            deaths += 1
    assert deaths >= 6


@pytest.mark.parametrize("kind", KINDS)
def test_another_writer_between_reading_and_commit_is_not_overwritten(kind: TableKind, tmp_path: Path) -> None:
    sink = upsert_sink(kind, tmp_path, LATEST)
    write(sink, tmp_path, arrow(FIRST), 0)
    other = iter([True])

    def interfere(step: str) -> None:
        if step == "commit" and next(other, False):
            with closing(table_of(sink, "another application", tmp_path)) as table:
                assert is_mergeable(table)
                writer = UpsertWriter(sink, table, "another application")
                writer.write_changes(arrow([Change(3, "CH", 77.0, 9), Change(60, "CH", 7.0, 1)]), 0)

    write(sink, tmp_path, arrow(SECOND), 1, interfere)
    model = Model(LATEST)
    for changes in (FIRST, [Change(3, "CH", 77.0, 9), Change(60, "CH", 7.0, 1)], SECOND):
        model.apply(changes)
    assert content(sink, tmp_path) == model.rows()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_batch_from_two_processes_is_merged_once(kind: TableKind, tmp_path: Path) -> None:
    sink = upsert_sink(kind, tmp_path, ARRIVAL)
    write(sink, tmp_path, arrow(FIRST), 0)
    again = iter([True])

    def interfere(step: str) -> None:
        if step == "commit" and next(again, False):
            write(sink, tmp_path, arrow(SECOND), 1)
            write(sink, tmp_path, arrow([Change(3, "CH", 99.0, 3)]), 2)

    write(sink, tmp_path, arrow(SECOND), 1, interfere)
    assert (3, "CH", 99.0, 3) in content(sink, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_only_files_with_changed_keys_are_rewritten(kind: TableKind, tmp_path: Path) -> None:
    sink = replace(upsert_sink(kind, tmp_path, LATEST), compaction=None, partition_by=())
    for batch_id in range(3):
        changes = [Change(batch_id * 100 + number, "CH", 1.0, 1) for number in range(10)]
        write(sink, tmp_path, arrow(changes), batch_id)
    with closing(table_of(sink, APPLICATION, tmp_path)) as table:
        before = {file.path for file in table.files()}
        write(sink, tmp_path, arrow([Change(105, "CH", 2.0, 2)]), 3)
        after = {file.path for file in table.files()}
    assert (len(before), len(before & after), len(after)) == (3, 2, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_added_and_nulls_are_refused(kind: TableKind, tmp_path: Path) -> None:
    sink = replace(upsert_sink(kind, tmp_path, LATEST), schema_changes=SchemaChanges.ADD_COLUMNS)
    write(sink, tmp_path, arrow(FIRST[:2]), 0)
    changes = arrow([Change(1, "CH", 3.0, 5)])
    more = Changes(changes.rows.append_column("note", pa.array(["new"])), changes.is_delete)
    write(sink, tmp_path, more, 1)
    with closing(table_of(sink, APPLICATION, tmp_path)) as table:
        assert {row["id"]: row["note"] for row in table.read().to_pylist()} == {0: None, 1: "new"}
    bad = Changes(changes.rows.set_column(0, "id", pa.array([None], pa.int64())), changes.is_delete)
    with pytest.raises(TableError, match="has no id, which is among its keys"):
        write(sink, tmp_path, bad, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_delete_is_remembered_through_a_restart_but_not_for_ever(
    kind: TableKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = upsert_sink(kind, tmp_path, LATEST)
    write(sink, tmp_path, arrow([Change(7, "CH", 0.0, 5, is_delete=True)]), 0)
    write(sink, tmp_path, arrow([Change(7, "CH", 1.0, 4)]), 1)
    assert content(sink, tmp_path) == []
    later_s = 4_000_000_000.0
    monkeypatch.setattr("time.time", lambda: later_s)
    write(sink, tmp_path, arrow([Change(8, "CH", 1.0, 4)]), 2)
    write(sink, tmp_path, arrow([Change(7, "CH", 1.0, 4)]), 3)
    assert [row[0] for row in content(sink, tmp_path)] == [7, 8]


def test_merge_of_the_table_library_says_the_same(tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    rows, changes = arrow(FIRST).rows, arrow([change for change in SECOND if not change.is_delete]).rows
    write_deltalake(tmp_path / "library", rows)
    merge = DeltaTable(tmp_path / "library").merge(changes, "s.id = t.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all(predicate="s.at > t.at").when_not_matched_insert_all().execute()
    DeltaTable(tmp_path / "library").delete("id = 4")
    sink = upsert_sink(TableKind.DELTA, tmp_path, LATEST)
    write(sink, tmp_path, arrow(FIRST), 0)
    write(sink, tmp_path, arrow(SECOND), 1)
    assert content(sink, tmp_path) == rows_of(pa.table(DeltaTable(tmp_path / "library").to_pyarrow_table()))


def test_internal_columns_are_not_written_unless_they_are_needed() -> None:
    columns = ["id", "op", "_key", "_offset", "_deleted", "_timestamp"]
    assert written_columns(columns, Upsert(("id",), omit=("op",))) == ["id"]
    assert written_columns(columns, Upsert(("_key",), ("_offset",))) == ["id", "op", "_key", "_offset"]

"""Every kind of table holds a batch once, whatever happens between two steps of writing it."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest

from tests.pipelines.table_writing import (
    COMPACTION,
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
from tidelog.pipelines.tables.exactly_once_writer import table_facts
from tidelog.pipelines.tables.files import write_files
from tidelog.pipelines.tables.table import Table, TableError

KINDS = list(TableKind)
WEEK_S = 7 * 24 * 3600.0


def crashes_at_every_step(work: Callable[[CrashAt], None]) -> Iterator[str]:
    """Does the work again and again, dying one step later each time, until it comes through."""
    for step in count(1):
        crash = CrashAt(step)
        try:
            work(crash)
            assert step > 1, "no step was ever announced"
            return
        except Crash as died:
            yield str(died)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_written_again_after_a_crash_at_any_step_is_there_once(kind: TableKind, tmp_path: Path) -> None:
    batch_id = 0

    def work(crash: CrashAt) -> None:
        with closing(opened(sink_of(kind, tmp_path), tmp_path, crash)) as table:
            write_batch(table, batch_id)

    for _ in crashes_at_every_step(work):
        with closing(opened(sink_of(kind, tmp_path), tmp_path)) as table:
            write_batch(table, batch_id)
            assert ids_of(table) == expected_ids(*range(batch_id + 1))
            assert table.last_batch() == batch_id
        batch_id += 1
    with closing(opened(sink_of(kind, tmp_path), tmp_path)) as table:
        assert ids_of(table) == expected_ids(*range(batch_id + 1))
        assert not write_batch(table, batch_id)


@pytest.mark.parametrize("kind", KINDS)
def test_a_compaction_that_dies_at_any_step_neither_loses_nor_repeats_a_row(kind: TableKind, tmp_path: Path) -> None:
    batch_ids = count()
    written: list[int] = []

    def add_batches(table: Table) -> None:
        for _ in range(2):
            written.append(next(batch_ids))
            write_batch(table, written[-1])

    def work(crash: CrashAt) -> None:
        with closing(opened(sink_of(kind, tmp_path), tmp_path)) as table:
            add_batches(table)
        with closing(opened(sink_of(kind, tmp_path), tmp_path, crash)) as table:
            table.compact(COMPACTION)

    for _ in crashes_at_every_step(work):
        with closing(opened(sink_of(kind, tmp_path), tmp_path)) as table:
            table.last_batch()
            assert ids_of(table) == expected_ids(*written)
            assert not write_batch(table, written[-1])
    with closing(opened(sink_of(kind, tmp_path), tmp_path)) as table:
        assert ids_of(table) == expected_ids(*written)
        assert len(table.files()) == 4
        assert table.last_batch() == written[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_of_one_batch_add_it_once(kind: TableKind, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path)
    with closing(opened(sink, tmp_path)) as table:
        write_batch(table, 0)
    other_is_done = False

    def other_commits_first(step: str) -> None:
        nonlocal other_is_done
        if step in ("commit", "publish the manifest") and not other_is_done:
            other_is_done = True
            with closing(opened(sink, tmp_path)) as other:
                assert write_batch(other, 1)

    with closing(opened(sink, tmp_path, other_commits_first)) as late:
        assert not write_batch(late, 1)
        assert other_is_done
        assert ids_of(late) == expected_ids(0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_two_applications_write_to_one_table_at_the_same_time(kind: TableKind, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path)

    def other_commits_first(step: str) -> None:
        if step in ("commit", "publish the manifest"):
            with closing(opened(sink, tmp_path, application="other")) as other:
                write_batch(other, 0, batch_rows(7))

    with closing(opened(sink, tmp_path, other_commits_first)) as table:
        assert write_batch(table, 0)
        assert ids_of(table) == expected_ids(0, 7)
        assert table.last_batch() == 0


@pytest.mark.parametrize("kind", [TableKind.DELTA, TableKind.ICEBERG])
def test_a_compaction_goes_on_when_a_batch_arrives_meanwhile(kind: TableKind, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path)
    batch_ids = count(2)

    def other_commits_first(step: str) -> None:
        if step in ("compact", "exchange the files") and (batch_id := next(batch_ids)) < 4:
            with closing(opened(sink, tmp_path)) as other:
                write_batch(other, batch_id)

    with closing(opened(sink, tmp_path, other_commits_first)) as table:
        write_batch(table, 0)
        write_batch(table, 1)
        assert table.compact(COMPACTION) >= 8
        assert ids_of(table) == expected_ids(0, 1, 2, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_tasks_that_failed_are_never_part_of_the_table_and_are_swept_when_old(
    kind: TableKind, tmp_path: Path
) -> None:
    with closing(opened(sink_of(kind, tmp_path), tmp_path)) as table:
        write_batch(table, 0)
        committed = set(tmp_path.rglob("*.parquet"))
        write_files(table.layout(1), [batch_rows(1)])
        left_behind = set(tmp_path.rglob("*.parquet")) - committed
        assert ids_of(table) == expected_ids(0)
        assert table.sweep(WEEK_S) == 0
        assert all(path.exists() for path in left_behind)
        for path in tmp_path.rglob("*"):
            os.utime(path, (0, 0))
        assert table.sweep(WEEK_S) > 0
        assert not any(path.exists() for path in left_behind)
        assert all(path.exists() for path in committed)
        assert ids_of(table) == expected_ids(0)


def test_snapshots_of_an_iceberg_table_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.pipelines.tables import iceberg

    monkeypatch.setattr(iceberg, "SNAPSHOTS_KEPT", 2)
    with closing(opened(sink_of(TableKind.ICEBERG, tmp_path, ()), tmp_path)) as table:
        for batch_id in range(9):
            write_batch(table, batch_id)
        assert isinstance(table, iceberg.IcebergTable)
        assert len(table._existing().snapshots()) <= 4
        assert ids_of(table) == expected_ids(*range(9))
        assert table.last_batch() == 8


@pytest.mark.parametrize("kind", KINDS)
def test_facts_of_a_table_count_rows_files_and_batches(kind: TableKind, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path)
    assert table_facts(sink, "app", tmp_path).rows == 0
    with closing(opened(sink, tmp_path, application="app")) as table:
        write_batch(table, 5)
    facts = table_facts(sink, "app", tmp_path)
    assert (facts.rows, facts.files, facts.last_batch) == (4, 4, 5)
    assert facts.bytes > 0


@pytest.mark.parametrize("kind", [TableKind.DELTA, TableKind.ICEBERG])
def test_a_table_that_is_partitioned_otherwise_is_refused_in_one_sentence(kind: TableKind, tmp_path: Path) -> None:
    with closing(opened(sink_of(kind, tmp_path), tmp_path)) as table:
        write_batch(table, 0)
    with (
        closing(opened(sink_of(kind, tmp_path, ()), tmp_path)) as table,
        pytest.raises(TableError, match=r"is partitioned by .*country.*, but the sink by nothing"),
    ):
        write_batch(table, 1)


def test_old_files_of_a_delta_log_go_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.pipelines.tables.delta.CLEAN_UP_EVERY", 120)
    sink = sink_of(TableKind.DELTA, tmp_path, ())
    log = tmp_path / "orders" / "_delta_log"
    with closing(opened(sink, tmp_path)) as table:
        for batch_id in range(110):
            write_batch(table, batch_id, batch_rows(batch_id, 1))
        for file in log.iterdir():
            os.utime(file, (0, 0))
        for batch_id in range(110, 120):
            write_batch(table, batch_id, batch_rows(batch_id, 1))
        assert len(list(log.glob("*.json"))) > 110
        write_batch(table, 120, batch_rows(120, 1))
        assert len(list(log.glob("*.json"))) < 30
        assert len(ids_of(table)) == 121
    with closing(opened(sink, tmp_path)) as again:
        assert again.last_batch() == 120


def test_manifests_of_a_parquet_table_do_not_pile_up(tmp_path: Path) -> None:
    table = opened(sink_of(TableKind.PARQUET, tmp_path), tmp_path)
    for batch_id in range(40):
        write_batch(table, batch_id, batch_rows(batch_id, 1))
    assert len(list(tmp_path.rglob("*.json"))) < 17
    assert len(ids_of(opened(sink_of(TableKind.PARQUET, tmp_path), tmp_path))) == 40
    assert not write_batch(opened(sink_of(TableKind.PARQUET, tmp_path), tmp_path), 3)


def test_a_parquet_table_that_was_moved_after_a_crash_is_finished_in_its_new_place(tmp_path: Path) -> None:
    def die(step: str) -> None:
        if step.startswith("move"):
            raise Crash(step)

    (tmp_path / "old").mkdir()
    with suppress(Crash):
        write_batch(opened(sink_of(TableKind.PARQUET, tmp_path / "old"), tmp_path, die), 0)
    (tmp_path / "old").rename(tmp_path / "new")
    table = opened(sink_of(TableKind.PARQUET, tmp_path / "new"), tmp_path)
    assert table.last_batch() == 0
    assert ids_of(table) == expected_ids(0)

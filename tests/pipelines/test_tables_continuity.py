"""A table goes on with the checkpoint that wrote it, and with no other: rows would be lost, or there twice."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.table_writing import SCHEMA, opened, sink_of, write_batch
from tidelog.pipelines.definition.model import TableKind
from tidelog.pipelines.tables.continuity import application_of
from tidelog.pipelines.tables.exactly_once_writer import ExactlyOnceWriter, open_table
from tidelog.pipelines.tables.table import Table, TableError

OURS = application_of("shop", "orders", "1111-aaaa")
LOST: Any = None
"""Rows that must not be looked at."""


@pytest.fixture(params=list(TableKind))
def kind(request: pytest.FixtureRequest) -> TableKind:
    return TableKind(request.param)


@pytest.fixture
def written(kind: TableKind, tmp_path: Path) -> Iterator[Table]:
    """With the batches 0 to 2."""
    with closing(opened(sink_of(kind, tmp_path), tmp_path, application=OURS)) as table:
        for batch_id in range(3):
            assert write_batch(table, batch_id)
        yield table


@pytest.mark.usefixtures("written")
def test_a_checkpoint_that_begins_again_is_refused_and_writes_nothing(kind: TableKind, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="shop/orders wrote with another checkpoint"):
        open_table(sink_of(kind, tmp_path), application_of("shop", "orders", "2222-bbbb"), tmp_path)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize(
    "application",
    [OURS, application_of("shop", "orders2", "3333"), application_of("shop.eu", "orders", "4444"), "nobody's"],
)
def test_the_same_checkpoint_and_other_sinks_may_write_to_the_table(
    kind: TableKind, tmp_path: Path, application: str, caplog: pytest.LogCaptureFixture
) -> None:
    open_table(sink_of(kind, tmp_path), application, tmp_path)
    logged = [record.message for record in caplog.records if "rows of other writers" in record.message]
    assert [line.endswith("others=shop/orders") for line in logged] == ([] if application == OURS else [True])


def test_a_checkpoint_that_never_wrote_anything_is_no_reason_to_refuse(kind: TableKind, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path)
    with closing(opened(sink, tmp_path, application=OURS)) as table:
        table.create(SCHEMA)
        assert table.last_batch() is None
    open_table(sink, application_of("shop", "orders", "2222-bbbb"), tmp_path)


def test_batches_are_still_known_after_many_of_them(kind: TableKind, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path, ())
    with closing(opened(sink, tmp_path, application=OURS)) as table:
        for batch_id in range(20):
            write_batch(table, batch_id)
    with pytest.raises(TableError, match="another checkpoint"):
        open_table(sink, application_of("shop", "orders", "2222-bbbb"), tmp_path)


def test_a_checkpoint_that_is_older_than_the_table_is_refused(kind: TableKind, tmp_path: Path, written: Table) -> None:
    writer = ExactlyOnceWriter(sink_of(kind, tmp_path), written, lambda rows, reason: None)
    with pytest.raises(TableError, match="already holds batch 2, but the checkpoint continues with batch 1"):
        writer.write(LOST, 1)


def test_a_table_that_is_gone_is_not_begun_again_in_the_middle(kind: TableKind, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path)
    with closing(opened(sink, tmp_path, application=OURS)) as table:
        write_batch(table, 0)
        if kind is TableKind.ICEBERG:
            table._catalog.drop_table("shop.orders")  # type: ignore[attr-defined]
        else:
            shutil.rmtree(tmp_path / "orders")
    writer = open_table(sink, OURS, tmp_path)
    with pytest.raises(TableError, match="is gone, but the checkpoint continues with batch 1"):
        writer.write(LOST, 1)


def test_a_table_that_disappears_under_its_writer_is_reported_as_gone(kind: TableKind, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path)
    with closing(opened(sink, tmp_path, application=OURS)) as table:
        write_batch(table, 0)
        writer = ExactlyOnceWriter(sink, table, lambda rows, reason: None)
        if kind is TableKind.ICEBERG:
            table._catalog.drop_table("shop.orders")  # type: ignore[attr-defined]
        else:
            shutil.rmtree(tmp_path / "orders")
        with pytest.raises(TableError, match="is gone, but the checkpoint continues with batch 1"):
            writer.write(LOST, 1)

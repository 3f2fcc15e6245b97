"""A rebuilt table holds every record once, whatever its pipeline does meanwhile. Without Spark: a log of numbers."""

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from tests.pipelines.table_writing import COMPACTION, SCHEMA, Crash, CrashAt, opened, sink_of
from tidelog.pipelines.definition.model import TableKind, TableSink
from tidelog.pipelines.replay import table_rebuild as rebuilding
from tidelog.pipelines.replay.query_checkpoint import BadCheckpoint
from tidelog.pipelines.replay.table_rebuild import TableState, rebuild, table_state
from tidelog.pipelines.running.failures import PipelineFailed
from tidelog.pipelines.tables.file_facts import FileFacts
from tidelog.pipelines.tables.files import FileLayout, write_files
from tidelog.pipelines.tables.table import Before, Contents, Table, nothing
from tidelog.spark.offset_json import Positions
from tidelog.types import TopicPartition

KINDS = list(TableKind)
P0 = TopicPartition("orders", 0)
OLD, NEW = 1.0, 2.0
"""What the steps make of every record: before their mistake was corrected, and after."""
WITH_TAX = SCHEMA.append(pa.field("tax", pa.float64()))


def rows_of(offsets: range, amount: float, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    countries = [("CH", "DE")[offset % 2] for offset in offsets]
    columns: dict[str, list[object]] = {
        "id": list(offsets),
        "country": list(countries),
        "amount": [amount] * len(offsets),
        "tax": [amount] * len(offsets),
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names}, schema=schema)


class Query:
    """A running pipeline and its checkpoint: each batch is planned, written to the table, and committed."""

    def __init__(self, sink: TableSink, directory: Path) -> None:
        self._sink = sink
        self._directory = directory
        self.ends: list[int] = []
        self.committed: int | None = None
        self.amount = OLD
        self.schema = SCHEMA

    def last_committed(self) -> int | None:
        return self.committed

    def last_planned(self) -> int | None:
        return len(self.ends) - 1 if self.ends else None

    def end_of(self, batch_id: int) -> Positions:
        return Positions({P0: self.ends[batch_id]}, {})

    def plan(self, records: int) -> None:
        self.ends.append((self.ends[-1] if self.ends else 0) + records)

    def write(self) -> None:
        batch_id = len(self.ends) - 1
        offsets = range(self.ends[-2] if batch_id else 0, self.ends[-1])
        with closing(opened(self._sink, self._directory)) as table:
            if table.schema() is None:
                table.create(self.schema)
            last = table.last_batch()
            if last is None or last < batch_id:
                files = write_files(table.layout(batch_id), [rows_of(offsets, self.amount, self.schema)])
                if files:
                    table.commit(files, batch_id)

    def commit(self) -> None:
        self.committed = len(self.ends) - 1

    def batch(self, records: int = 3) -> None:
        self.plan(records)
        self.write()
        self.commit()

    def compact(self) -> None:
        with closing(opened(self._sink, self._directory)) as table:
            assert table.compact(COMPACTION)


class Bench:
    """One table, its query, and a replay of it."""

    def __init__(self, kind: TableKind, directory: Path) -> None:
        self.directory = directory
        self.sink = sink_of(kind, directory)
        self.query = Query(self.sink, directory)
        self.reads: list[tuple[int, int]] = []
        self.schema = SCHEMA
        self.while_reading: Callable[[], None] = lambda: None

    def replay(self, before: Before = nothing) -> None:
        with closing(opened(self.sink, self.directory, before)) as table:
            if table.schema() is None:
                table.create(self.schema)
            begun = table_state(table, self.query)
            layout = table.replacement_layout(self.schema, begun.batch_id)
            rebuild(table, layout, self.query, begun, lambda after, until: self._write(layout, after, until))

    def _write(self, layout: FileLayout, after: Positions | None, until: Positions) -> list[FileFacts]:
        start = 0 if after is None else after.offsets[P0]
        self.reads.append((start, until.offsets[P0]))
        files = write_files(layout, [rows_of(range(start, until.offsets[P0]), NEW, layout.schema)])
        self.while_reading()
        return files

    def rows(self) -> list[tuple[int, float]]:
        with closing(opened(self.sink, self.directory)) as table:
            table.last_batch()
            found = table.read()
            return sorted(zip(found["id"].to_pylist(), found["amount"].to_pylist(), strict=True))


def rows(new: int, end: int) -> list[tuple[int, float]]:
    return [(offset, NEW if offset < new else OLD) for offset in range(end)]


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(request.param, tmp_path)


def test_all_rows_are_rewritten_and_the_query_goes_on(bench: Bench) -> None:
    bench.query.batch()
    bench.query.batch()
    bench.replay()
    assert bench.rows() == rows(6, 6)
    bench.query.batch()
    assert bench.rows() == rows(6, 9)


def test_batches_that_arrive_while_records_are_read_stay_and_nothing_is_read_twice(bench: Bench) -> None:
    bench.query.batch()
    bench.while_reading = bench.query.batch
    bench.replay()
    assert bench.reads == [(0, 3)]
    assert bench.rows() == rows(3, 6)


def test_a_batch_that_is_in_the_table_but_not_committed_counts(bench: Bench) -> None:
    bench.query.batch()
    bench.query.plan(4)
    bench.query.write()
    bench.replay()
    assert bench.rows() == rows(7, 7)
    bench.query.write()
    bench.query.commit()
    assert bench.rows() == rows(7, 7)


def test_a_batch_that_is_planned_but_not_in_the_table_comes_later(bench: Bench) -> None:
    bench.query.batch()
    bench.query.plan(4)
    bench.replay()
    assert bench.rows() == rows(3, 3)
    bench.query.write()
    assert bench.rows() == rows(3, 7)


def test_batches_that_gave_no_rows_are_read_again_too(bench: Bench) -> None:
    """The corrected steps may give rows where there were none, of batches that are never carried out again."""
    bench.query.batch()
    bench.query.plan(5)
    bench.query.commit()
    bench.replay()
    assert bench.rows() == rows(8, 8)
    bench.query.batch()
    assert bench.rows() == rows(8, 11)


def test_a_compaction_in_between_makes_the_replay_catch_up(bench: Bench) -> None:
    bench.query.batch()
    bench.query.batch()
    work: Iterator[Callable[[], None]] = iter([bench.query.batch, bench.query.batch])

    def batch_and_compact() -> None:
        if next(work, None) is not None:
            bench.query.batch()
            bench.query.compact()

    bench.while_reading = batch_and_compact
    bench.replay()
    assert bench.reads == [(0, 6), (6, 9), (9, 12)]
    assert bench.rows() == rows(12, 12)
    bench.query.batch()
    assert bench.rows() == rows(12, 15)


def test_a_table_that_is_rewritten_all_the_time_is_left_as_it_is(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "MAX_CATCH_UPS", 2)
    bench.query.batch()

    def batch_and_compact() -> None:
        bench.query.batch()
        bench.query.compact()

    bench.while_reading = batch_and_compact
    with pytest.raises(PipelineFailed, match="rewrote it during every attempt"):
        bench.replay()
    assert len(bench.reads) == 4
    assert bench.rows() == rows(0, bench.query.ends[-1])


def test_new_columns_take_the_place_of_rows_that_arrived_meanwhile(bench: Bench) -> None:
    bench.query.batch()
    bench.schema = WITH_TAX
    arrivals = iter([bench.query.batch])
    bench.while_reading = lambda: next(arrivals, lambda: None)()
    bench.replay()
    assert bench.reads == [(0, 3), (3, 6)]
    assert bench.rows() == rows(6, 6)
    bench.query.schema, bench.query.amount = WITH_TAX, NEW
    bench.query.batch()
    with closing(opened(bench.sink, bench.directory)) as table:
        assert sorted(table.read()["tax"].to_pylist()) == [NEW] * 9


def test_a_table_that_is_gone_is_rebuilt(bench: Bench) -> None:
    bench.query.plan(5)
    bench.query.commit()
    bench.replay()
    assert bench.rows() == rows(5, 5)
    bench.query.batch()
    assert bench.rows() == rows(5, 8)


def test_with_a_new_checkpoint_the_first_batch_is_carried_out_by_the_replay(bench: Bench) -> None:
    with closing(opened(bench.sink, bench.directory, application="lost")) as table:
        table.create(SCHEMA)
        table.commit(write_files(table.layout(40), [rows_of(range(7), OLD)]), 40)
    bench.query.plan(9)
    bench.replay()
    assert bench.rows() == rows(9, 9)
    bench.query.write()
    bench.query.commit()
    bench.query.batch()
    assert bench.rows() == rows(9, 12)


def test_a_query_that_has_read_nothing_is_refused(bench: Bench) -> None:
    with pytest.raises(BadCheckpoint, match="no batch has been read yet"):
        bench.replay()


@pytest.mark.parametrize("schema", [SCHEMA, WITH_TAX], ids=["same-columns", "new-column"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_that_dies_at_any_step_can_be_repeated(kind: TableKind, schema: pa.Schema, tmp_path: Path) -> None:
    for step in count(1):
        directory = tmp_path / str(step)
        directory.mkdir()
        bench = Bench(kind, directory)
        bench.schema = schema
        bench.query.batch()
        arrivals = iter([bench.query.batch])
        bench.while_reading = lambda arrivals=arrivals: next(arrivals, lambda: None)()  # type: ignore[misc]
        has_died = False
        try:
            bench.replay(CrashAt(step))
        except Crash:
            has_died = True
        assert [offset for offset, _ in bench.rows()] == list(range(bench.query.ends[-1]))
        assert bench.rows() in [rows(new, bench.query.ends[-1]) for new in (0, 3, 6)]
        bench.while_reading = lambda: None
        bench.replay()
        assert bench.rows() == rows(bench.query.ends[-1], bench.query.ends[-1])
        if not has_died:
            break


def test_the_checkpoint_is_asked_before_the_table() -> None:
    """The other way round a batch that arrives in between would count as old, and be kept as a later one as well."""
    asked: list[str] = []

    class Noting:
        def last_committed(self) -> int:
            asked.append("checkpoint")
            return 0

        def last_planned(self) -> int:
            return 0

        def end_of(self, batch_id: int) -> Positions:
            return Positions({P0: batch_id}, {})

        def schema(self) -> pa.Schema:
            return SCHEMA

        def contents(self) -> Contents:
            asked.append("table")
            return Contents(frozenset(), 1)

    noting = Noting()
    table: Table = noting  # type: ignore[assignment]
    assert table_state(table, noting) == TableState(Contents(frozenset(), 1), 1, False, Positions({P0: 1}, {}))
    assert asked == ["checkpoint", "table"]

"""Micro-batches read on the driver: what we count on in PySpark's private parts, and what is left without them."""

import inspect
import io
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelog.spark.accelerators import driver_reads
from tidelog.spark.accelerators.driver_reads import DecoderPreload, DriverReads, SmallBatches, decode_a_record
from tidelog.spark.source.row_schema import FIELDS

ROWS = pa.RecordBatch.from_pydict({"offset": [1, 2]})


class Planned(DataSource):
    pass


class Reader(DriverReads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, rows: list[pa.RecordBatch] | None = None) -> None:
        self._rows = rows

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        self.hand_over(self._rows)
        return [InputPartition(0)]

    def latestOffset(self, start: Any, limit: Any) -> dict[str, Any]:
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())


def is_prefetching(reader: object) -> bool:
    return isinstance(reader, _SimpleStreamReaderWrapper)


def test_a_reader_counts_as_prefetching_only_while_it_has_rows_to_hand_over() -> None:
    reader = Reader()
    assert not is_prefetching(reader)
    reader.hand_over([ROWS])
    assert is_prefetching(reader)
    assert list(reader.getCache({}, {}) or ()) == [ROWS]
    assert not is_prefetching(reader)
    assert reader.getCache({}, {}) is None


def test_a_reader_is_what_it_is_to_everybody_else() -> None:
    reader = Reader()
    assert isinstance(reader, Reader)
    assert isinstance(reader, SupportsTriggerAvailableNow)
    assert isinstance(pickle.loads(pickle.dumps(reader)), Reader)


def test_pyspark_asks_for_the_rows_right_after_the_partitions_and_nowhere_else() -> None:
    """If this fails, PySpark has changed what driver reads are built on: look at `partitions_func` before anything."""
    planning = inspect.getsource(runner.partitions_func)
    asked = [planning.index(part) for part in ("reader.partitions(", "isinstance(reader, _Simple", "reader.getCache(")]
    assert asked == sorted(asked)
    callers = [
        name
        for name, function in inspect.getmembers(runner, inspect.isfunction)
        if "getCache" in inspect.getsource(function)
    ]
    assert callers == ["partitions_func"]


@pytest.mark.parametrize(
    ("rows", "response"),
    [([ROWS], runner.NON_EMPTY_PYARROW_RECORD_BATCHES), (None, runner.PREFETCHED_RECORDS_NOT_FOUND)],
    ids=["handed over", "left to tasks"],
)
def test_pyspark_sends_the_rows_with_the_plan(rows: list[pa.RecordBatch] | None, response: int) -> None:
    """PySpark's own function, called to plan a micro-batch as Java calls it."""
    schema, position = StructType().add("offset", "long"), (2).to_bytes(4, "big") + b"{}"
    sent = io.BytesIO()
    runner.partitions_func(Reader(rows), Planned({}), schema, 10_000, io.BytesIO(2 * position), sent)
    sent.seek(0)
    assert int.from_bytes(sent.read(4), "big") == 1
    sent.read(int.from_bytes(sent.read(4), "big"))
    assert int.from_bytes(sent.read(4), "big") == response
    if rows is not None:
        sent.read(4)
        assert pa.ipc.open_stream(sent).read_all() == pa.Table.from_batches(rows)


def test_without_the_private_class_tasks_read_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_reads, "PrefetchingReader", None)
    reader = Reader()
    reader.hand_over([ROWS])
    assert reader.__class__ is Reader
    assert reader.getCache({}, {}) is None


def large_rows(count: int, taken: list[int]) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        taken.append(number)
        yield pa.RecordBatch.from_pydict({"value": [b"x" * 1000]})


def test_a_small_batch_is_read_whole() -> None:
    rows = SmallBatches(5000).read(4, large_rows(4, []))
    assert rows is not None
    assert sum(batch.num_rows for batch in rows) == 4


def test_few_rows_that_are_large_are_left_to_tasks_as_soon_as_they_are_too_much() -> None:
    taken: list[int] = []
    assert SmallBatches(5000).read(100, large_rows(100, taken)) is None
    assert len(taken) == 5


def test_rows_as_large_as_the_last_ones_are_not_even_tried() -> None:
    taken: list[int] = []
    batches = SmallBatches(5000)
    assert batches.read(100, large_rows(100, [])) is None
    assert batches.read(50, large_rows(50, taken)) is None
    assert taken == []
    assert batches.read(3, large_rows(3, taken)) is not None
    assert taken == [0, 1, 2]


def test_a_decoder_is_loaded_with_every_column() -> None:
    (batch,) = decode_a_record(tuple(FIELDS))
    assert batch.select(["key", "value", "headers"]).to_pylist() == [
        {"key": b"key", "value": b"value", "headers": [{"key": "header", "value": b"value"}]}
    ]


def test_a_decoder_is_loaded_once_and_nobody_waits_for_what_was_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[str, ...]] = []
    monkeypatch.setattr(driver_reads, "decode_a_record", loaded.append)
    load = DecoderPreload(("offset",))
    load.wait()
    assert loaded == []
    load.start()
    load.start()
    load.wait()
    assert loaded == [("offset",)]

"""Decisions of the benchmark of Spark."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import spark_workloads
from bench.measures import QUICK
from bench.page_cache import PageCache
from bench.scenarios import Session
from bench.spark_data import KEY_BYTES, RECORDS_PER_BATCH, VALUE_BYTES, FilledTopic, batch
from bench.spark_peers import SparkFailed, SparkPeer, Stage
from tidelog.protocol.record_batch import HEADER_BYTES, crc_matches, read_header
from tidelog.protocol.records import records_of

LZ4_MAGIC_BYTES = 4
LZ4_INDEPENDENT_BLOCKS = 0x20


class AnsweringDriver(SparkPeer):
    """A driver that gives the answer it was made with, and remembers what it was asked."""

    def __init__(self, response: dict[str, Any], cores: int = 1) -> None:
        super().__init__(Path("nowhere"), "tidelog", cores, Stage(QUICK))
        self.asked: dict[str, Any] = {}
        self._given = response

    @property
    def plain(self) -> FilledTopic:
        return FilledTopic("plain", self.cores, 400_000)

    def ask(self, do: str, **question: Any) -> dict[str, Any]:
        self.asked = {"do": do, **question}
        return self._given


def session_with(driver: AnsweringDriver) -> Session:
    return Session(driver, QUICK, PageCache())


@pytest.mark.parametrize("lz4", [False, True])
def test_batches_hold_records_of_the_declared_size(lz4: bool) -> None:
    data = batch(3, lz4)
    assert crc_matches(data, read_header(data))
    records = list(records_of(data))
    assert len(records) == RECORDS_PER_BATCH
    assert {(len(record.key or b""), len(record.value or b"")) for record in records} == {(KEY_BYTES, VALUE_BYTES)}
    assert len({record.value for record in records}) == RECORDS_PER_BATCH


def test_lz4_blocks_are_independent_as_java_wants_them() -> None:
    frame_flags = batch(3, lz4=True)[HEADER_BYTES + LZ4_MAGIC_BYTES]
    assert frame_flags & LZ4_INDEPENDENT_BLOCKS


def test_parts_of_a_topic_are_the_same_in_all_partitions() -> None:
    topic = FilledTopic("t", 2, 4_000)
    first, last = topic.first(1_000), topic.last(1_000)
    assert (first.rows, last.rows) == (1_000, 1_000)
    assert json.loads(first.ending_offsets) == {"t": {"0": 500, "1": 500}}
    assert json.loads(last.starting_offsets) == {"t": {"0": 1_500, "1": 1_500}}
    assert json.loads(last.ending_offsets) == {"t": {"0": 2_000, "1": 2_000}}


def test_count_that_is_wrong_is_no_figure() -> None:
    driver = AnsweringDriver({"rows": QUICK.spark_rows - 1, "seconds": 1.0})
    with pytest.raises(SparkFailed, match="199999 rows were counted, and not 200000"):
        spark_workloads.count("plain", "count")(session_with(driver))


def test_streams_are_recognised_by_their_steady_triggers() -> None:
    batches = [{"rows": 100, "ms": milliseconds} for milliseconds in (900, 40, 50, 60)]
    driver = AnsweringDriver({"seconds": 9.0, "micro_batches": batches}, cores=2)
    figures = spark_workloads.stream(100, 4, "noop", "stream-100")(session_with(driver))
    assert figures == {"spark-2-stream-100": 2_000}
    assert driver.asked["rows_per_trigger"] == 100


def test_stream_that_leaves_rows_out_is_no_figure() -> None:
    driver = AnsweringDriver({"seconds": 9.0, "micro_batches": [{"rows": 100, "ms": 9}]})
    with pytest.raises(SparkFailed, match="100 rows were read, and not 400"):
        spark_workloads.stream(100, 4, "noop", "stream-100")(session_with(driver))


def test_both_formats_are_driven_on_the_same_broker() -> None:
    for scenario in spark_workloads.spark_scenarios(QUICK):
        ours, theirs = (scenario.peers[name](Path("nowhere")) for name in ("tidelog", "kafka"))
        assert isinstance(ours, SparkPeer)
        assert isinstance(theirs, SparkPeer)
        assert ours.stage is theirs.stage

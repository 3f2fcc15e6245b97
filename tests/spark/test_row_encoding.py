from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelog.client.producer.partitioner import partition_of_key
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import seal
from tidelog.protocol.records import Record, records_of
from tidelog.spark.records.targets import MIN_RUN, NoSuchPartition
from tidelog.spark.sink.row_encoding import BadRow, PartitionBatch, RowEncoder, timestamps_ms
from tidelog.types import TopicPartition

NOW_MS = 1_700_000_000_000
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def rows(**columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, TYPES[name]) for name, values in columns.items()})


def encoder_for(topic: str | None = "orders", partitions: int = 3, led: Iterable[int] = ()) -> RowEncoder:
    encoder = RowEncoder(topic, Codec.NONE, batch_bytes=10_000)
    if topic is not None:
        assert list(encoder.add_topic(topic, partitions, list(led) or list(range(partitions)))) == []
    return encoder


def read_back(batches: Iterable[PartitionBatch]) -> dict[TopicPartition, list[Record]]:
    found: dict[TopicPartition, list[Record]] = defaultdict(list)
    for batch in batches:
        seal(batch.data)
        found[batch.topic_partition] += records_of(batch.data)
    return found


def written(encoder: RowEncoder, *groups: pa.RecordBatch) -> dict[TopicPartition, list[Record]]:
    batches = [batch for group in groups for batch in encoder.encode(group, NOW_MS)]
    return read_back([*batches, *encoder.finish()])


def test_a_row_goes_to_the_partition_it_names_else_where_its_key_belongs() -> None:
    keys = [b"a", b"b", b"c", None, b""]
    found = written(encoder_for(), rows(key=keys, value=[b"%d" % n for n in range(5)], partition=[2, None, 0, 1, None]))
    expected = [2, partition_of_key(b"b", 3), 0, 1, partition_of_key(b"", 3)]
    where = {int(record.value or b""): partition for (_, partition), records in found.items() for record in records}
    assert [where[row] for row in range(5)] == expected


def test_rows_without_keys_are_spread_evenly_in_long_runs() -> None:
    encoder = encoder_for(partitions=4)
    found = written(encoder, *[rows(value=[b"x"] * 5000) for _ in range(4)])
    assert {partition: len(records) for (_, partition), records in found.items()} == dict.fromkeys(range(4), 5000)
    assert sum(encoder.counts.values()) == 20_000


def test_few_rows_without_keys_stay_together() -> None:
    found = written(encoder_for(partitions=12), rows(value=[b"x"] * (MIN_RUN - 1)))
    assert [len(records) for records in found.values()] == [MIN_RUN - 1]


def test_rows_without_keys_avoid_partitions_without_a_leader() -> None:
    found = written(encoder_for(partitions=4, led=[1, 3]), rows(value=[b"x"] * 8000))
    assert {partition: len(records) for (_, partition), records in found.items()} == {1: 4000, 3: 4000}


def test_each_row_goes_to_the_topic_it_names() -> None:
    encoder = encoder_for(None)
    first = rows(topic=["a", "b", "a"], value=[b"1", b"2", b"3"])
    second = rows(topic=["c", "a", "b"], value=[b"4", b"5", b"6"])
    batches: list[PartitionBatch] = []
    for group, expected in ((first, ["a", "b"]), (second, ["c"])):
        assert sorted(encoder.new_topics(group)) == expected
        for name in expected:
            batches += encoder.add_topic(name, 1, [0])
        batches += encoder.encode(group, NOW_MS)
    found = read_back([*batches, *encoder.finish()])
    values = {topic: [record.value for record in records] for (topic, _), records in found.items()}
    assert values == {"a": [b"1", b"3", b"5"], "b": [b"2", b"6"], "c": [b"4"]}
    assert encoder.counts == {TopicPartition("a", 0): 3, TopicPartition("b", 0): 2, TopicPartition("c", 0): 1}


def test_the_topic_of_the_option_wins_over_that_of_the_row() -> None:
    encoder = encoder_for("orders", partitions=1)
    group = rows(topic=["elsewhere", None], value=[b"1", b"2"])
    assert encoder.new_topics(group) == []
    assert list(written(encoder, group)) == [TopicPartition("orders", 0)]


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(BadRow, match=r"column 'topic' is null.*option 'topic'"):
        encoder_for(None).new_topics(rows(topic=["a", None], value=[b"1", b"2"]))


@pytest.mark.parametrize("partition", [3, -1, 2**31 - 1])
def test_a_row_that_names_a_partition_which_is_not_there_is_refused(partition: int) -> None:
    with pytest.raises(NoSuchPartition, match=rf"partition {partition} .*'orders' has only partitions 0 to 2"):
        written(encoder_for(), rows(value=[b"1", b"2"], partition=[0, partition]))


def test_times_keys_values_and_headers_arrive_as_they_were() -> None:
    time = datetime(2024, 2, 29, 12, 0, 0, 123_999, UTC)
    headers = [[{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}], None, []]
    group = rows(key=[b"k", None, b""], value=[b"v", None, b""], timestamp=[time, None, time], headers=headers)
    (records,) = written(encoder_for(partitions=1), group).values()
    time_ms = int(time.timestamp() * 1000)
    assert records == [
        Record(0, time_ms, b"k", b"v", (("trace", b"1"), ("trace", None))),
        Record(1, NOW_MS, None, None),
        Record(2, time_ms, b"", b""),
    ]


def test_a_sliced_batch_is_written_from_its_own_rows_only() -> None:
    headers = [[{"key": f"h{n}", "value": None}] for n in range(20)]
    whole = rows(
        key=[None, b"k"] * 10,
        value=[b"%d" % n for n in range(20)],
        headers=headers,
        partition=[n % 3 for n in range(20)],
    )
    found = written(encoder_for(), whole[9:13])
    values = {
        (partition, record.value, record.headers[0][0])
        for (_, partition), [*records] in found.items()
        for record in records
    }
    assert values == {(n % 3, b"%d" % n, f"h{n}") for n in range(9, 13)}


def test_columns_of_nothing_but_nulls_count_as_missing() -> None:
    group = pa.record_batch({"value": pa.array([b"1"]), "key": pa.nulls(1), "headers": pa.nulls(1)})
    (records,) = written(encoder_for(partitions=1), group).values()
    assert records == [Record(0, NOW_MS, None, b"1")]


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_key_is_refused(header: Any) -> None:
    with pytest.raises(BadRow, match="header without a key in its column 'headers'"):
        written(encoder_for(), rows(value=[b"1"], headers=[[header]]))


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(BadRow, match="before 1970 in its column 'timestamp'"):
        written(encoder_for(), rows(value=[b"1"], timestamp=[datetime(1969, 7, 20, tzinfo=UTC)]))


def test_the_time_of_a_record_that_has_none_is_kept() -> None:
    column = pa.array([-1000, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert timestamps_ms(column, 2, NOW_MS).tolist() == [-1, 0]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_are_taken(unit: str) -> None:
    column = pa.array([1_700_000_000], pa.timestamp("s", "UTC")).cast(pa.timestamp(unit, "UTC"))
    assert np.array_equal(timestamps_ms(column, 1, 0), [1_700_000_000_000])


def test_wide_and_viewed_columns_are_taken_too() -> None:
    group = pa.record_batch(
        {
            "key": pa.array(["k"], pa.large_string()),
            "value": pa.array(["v"], pa.string_view()),
            "topic": pa.array(["orders"], pa.large_string()),
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}]],
                pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
            ),
        }
    )
    encoder = encoder_for(None)
    assert encoder.new_topics(group) == ["orders"]
    assert list(encoder.add_topic("orders", 1, [0])) == []
    (records,) = written(encoder, group).values()
    assert records == [Record(0, NOW_MS, b"k", b"v", (("h", b"1"),))]


def test_an_empty_batch_of_rows_writes_nothing() -> None:
    encoder = encoder_for()
    assert written(encoder, rows(key=[], value=[])) == {}
    assert encoder.counts == {}

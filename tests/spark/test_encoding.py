from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.arrow_types import BINARY_TYPES
from tidelog.config.topic import TopicSettings
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import HEADER_BYTES, read_header, seal
from tidelog.protocol.records import Record, records_of
from tidelog.spark.records.arrow_columns import bytes_column, headers_column, no_headers
from tidelog.spark.records.encoding import BatchEncoder, FullBatch, RecordColumns
from tidelog.storage.validation import AppendOrigin, prepare

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Headers = tuple[tuple[str, bytes | None], ...]
Row = tuple[bytes | None, bytes | None, int, Headers]

fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
rows = st.tuples(fields, fields, st.integers(-1, (2**63 - 1) // 1000), headers)


def columns(rows: list[Row], targets: list[int], *, has_headers: bool = True, start: int = 0) -> RecordColumns:
    """The rows from `start` on, as slices of columns that have them all."""
    lists = [[{"key": name, "value": value} for name, value in row[3]] or None for row in rows]
    return RecordColumns(
        np.array(targets[start:], np.int32),
        np.array([row[2] for row in rows[start:]], np.int64),
        bytes_column(pa.array([row[0] for row in rows], pa.binary())[start:]),
        bytes_column(pa.array([row[1] for row in rows], pa.binary())[start:]),
        headers_column(pa.array(lists, HEADERS)[start:]) if has_headers else no_headers(),
    )


def encoded(encoder: BatchEncoder, *groups: RecordColumns) -> list[FullBatch]:
    batches = [batch for group in groups for batch in encoder.encode(group)]
    return [*batches, *encoder.finish()]


def accepted(batch: FullBatch) -> list[Record]:
    """Its records, if a leader would append it as it is."""
    seal(batch.data)
    topic = TopicSettings(message_timestamp_after_max_ms=2**63 - 1, max_message_bytes=2**31 - 1)
    prepared = prepare(memoryview(batch.data), topic, NOW_MS, AppendOrigin.CLIENT)
    assert prepared.data == batch.data
    assert prepared.header.max_timestamp == max(record.timestamp for record in records_of(batch.data))
    assert prepared.header.record_count == batch.record_count
    return list(records_of(batch.data))


def by_target(batches: Iterable[FullBatch]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for batch in batches:
        records = accepted(batch)
        assert [record.offset for record in records] == list(range(len(records)))
        found[batch.target] += [(record.key, record.value, record.timestamp, record.headers) for record in records]
    return found


def expected(rows: list[Row], targets: list[int]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row, target in zip(rows, targets, strict=True):
        found[target].append(row)
    return found


@given(st.lists(rows, max_size=60), st.integers(1, 4), st.sampled_from(Codec), st.integers(100, 3000), st.data())
def test_every_row_is_read_back_from_its_target_in_order(
    rows: list[Row], target_count: int, codec: Codec, batch_bytes: int, data: st.DataObject
) -> None:
    targets = data.draw(st.lists(st.integers(0, target_count - 1), min_size=len(rows), max_size=len(rows)))
    start = data.draw(st.integers(0, len(rows)))
    encoder = BatchEncoder(target_count, codec, batch_bytes=batch_bytes, max_records=20)
    batches = encoded(encoder, columns(rows[:start], targets[:start]), columns(rows, targets, start=start))
    assert by_target(batches) == expected(rows, targets)


def test_columns_without_headers_give_records_without_headers() -> None:
    rows: list[Row] = [(b"k", b"v", NOW_MS, ()), (None, None, NOW_MS + 1, ()), (b"", b"", NOW_MS - 1, ())]
    assert by_target(encoded(BatchEncoder(1, Codec.NONE), columns(rows, [0, 0, 0], has_headers=False))) == {0: rows}


def test_no_batch_is_larger_than_its_limit_or_has_more_records() -> None:
    rows: list[Row] = [(b"key", bytes(index % 90), NOW_MS + index, ()) for index in range(3000)]
    batches = encoded(BatchEncoder(2, Codec.NONE, batch_bytes=5000, max_records=64), columns(rows, [0, 1] * 1500))
    assert max(len(batch.data) for batch in batches) <= 5000
    assert max(batch.record_count for batch in batches) == 64
    assert by_target(batches) == expected(rows, [0, 1] * 1500)


def test_batches_stay_open_until_they_are_full() -> None:
    encoder = BatchEncoder(1, Codec.NONE, batch_bytes=10_000)
    small = columns([(b"key", b"value", NOW_MS, ())] * 10, [0] * 10)
    assert [batch for _ in range(20) for batch in encoder.encode(small)] == []
    assert [batch.record_count for batch in encoder.finish()] == [200]
    assert list(encoder.finish()) == []


def test_a_record_larger_than_a_batch_goes_alone_and_in_its_turn() -> None:
    rows: list[Row] = [(b"a", b"1", NOW_MS, ()), (b"b", bytes(100_000), NOW_MS + 10**12, ()), (b"c", b"3", NOW_MS, ())]
    batches = encoded(BatchEncoder(2, Codec.NONE, batch_bytes=1000), columns(rows, [1, 1, 1]))
    assert [batch.record_count for batch in batches] == [1, 1, 1]
    assert by_target(batches) == {1: rows}


def test_more_targets_can_be_added_when_what_is_open_has_gone_out() -> None:
    encoder = BatchEncoder(1, Codec.LZ4)
    first: list[Row] = [(b"a", b"1", NOW_MS, ())]
    second: list[Row] = [(b"b", b"2", NOW_MS, ()), (b"c", b"3", NOW_MS, ())]
    batches = [*encoder.encode(columns(first, [0])), *encoder.grow(3)]
    assert by_target(batches) == {0: first}
    assert by_target(encoded(encoder, columns(second, [2, 0]))) == {2: second[:1], 0: second[1:]}


def test_many_targets_share_the_room_that_there_is() -> None:
    encoder = BatchEncoder(4000, Codec.NONE)
    rows: list[Row] = [(b"key", bytes(30_000), NOW_MS, ())] * 3
    assert by_target(encoded(encoder, columns(rows, [3999, 0, 3999]))) == expected(rows, [3999, 0, 3999])


def test_a_batch_has_no_producer_yet_and_starts_at_offset_0() -> None:
    (batch,) = encoded(BatchEncoder(1, Codec.ZSTD), columns([(b"k", b"v", NOW_MS, ())], [0]))
    header = read_header(batch.data)
    assert (header.base_offset, header.producer_id, header.producer_epoch, header.base_sequence) == (0, -1, -1, -1)
    assert header.size_bytes == len(batch.data) > HEADER_BYTES
    assert header.compression == Codec.ZSTD


@pytest.mark.parametrize("kind", BINARY_TYPES, ids=str)
def test_values_of_every_arrow_type_are_taken(kind: pa.DataType) -> None:
    array = pa.array(["one", None, "", "a value that is longer than twelve bytes"], pa.string())
    array = array.cast(kind) if "string" in str(kind) else array.cast(pa.binary()).cast(kind)
    nothing = columns([(None, None, NOW_MS, ())] * 3, [0] * 3)
    found = by_target(encoded(BatchEncoder(1, Codec.NONE), nothing._replace(value=bytes_column(array[1:]))))
    assert [row[1] for row in found[0]] == [None, b"", b"a value that is longer than twelve bytes"]

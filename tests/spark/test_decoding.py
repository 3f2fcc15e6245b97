import contextlib
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.client.consumer.fetched_records import FetchedBatches
from tidelog.errors import CorruptMessage
from tidelog.protocol.compression import Codec, compress
from tidelog.protocol.messages.fetch import AbortedTransaction
from tidelog.protocol.record_batch import HEADER_BYTES, assemble, read_header, seal
from tidelog.protocol.records import (
    ControlType,
    Headers,
    Record,
    build_batch,
    build_empty_batch,
    build_end_marker,
    payload_of,
)
from tidelog.spark.arrow_schema import arrow_schema
from tidelog.spark.records import batch_group, decoding, scratch
from tidelog.spark.records.columns import ARROW_TYPES
from tidelog.spark.records.decoding import COLUMNS, PartitionDecoder
from tidelog.types import TopicPartition

EVERYTHING = (0, 2**63 - 1)
MAX_TIMESTAMP_MS = 9_223_372_036_854_775
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ORDERS = TopicPartition("orders", 3)
SAMPLE = [
    Record(10, 1000, b"key", b"value", (("header", b"1"), ("empty", b""), ("null", None))),
    Record(11, 1500, None, b"no key"),
    Record(13, 900, b"tombstone", None),
    Record(17, 1000, b"", b"", (("", b"nameless"),)),
    Record(18, 1001, b"large", b"x" * 5000),
]


class Row(NamedTuple):
    offset: int
    timestamp_us: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def decode(
    raw: bytes | bytearray,
    offsets: tuple[int, int] = EVERYTHING,
    aborted: Sequence[AbortedTransaction] = (),
    columns: Sequence[str] = COLUMNS,
) -> pa.Table:
    decoder = PartitionDecoder("orders", 3, columns)
    batches = list(decoder.decode(memoryview(raw), *offsets, aborted))
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows > 0
    return pa.Table.from_batches(batches, pa.schema([(name, ARROW_TYPES[name]) for name in columns]))


def rows_of(table: pa.Table) -> list[Row]:
    assert set(table["topic"].to_pylist()) <= {"orders"}
    assert set(table["partition"].to_pylist()) <= {3}
    columns = {name: table[name].to_pylist() for name in ("offset", "timestampType", "key", "value", "headers")}
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    headers = [tuple((pair["key"], pair["value"]) for pair in pairs or ()) for pairs in columns["headers"]]
    return [
        Row(*facts)
        for facts in zip(
            columns["offset"], times, columns["timestampType"], columns["key"], columns["value"], headers, strict=True
        )
    ]


def reference(
    raw: bytes | bytearray, offsets: tuple[int, int], aborted: Sequence[AbortedTransaction], types: dict[int, int]
) -> list[Row]:
    """What a consumer sees, which decodes record by record."""
    return [
        Row(record.offset, record.timestamp_ms * 1000, types[record.offset], record.key, record.value, record.headers)
        for record in FetchedBatches.of(ORDERS, offsets[0], raw, aborted).records()
        if record.offset < offsets[1]
    ]


class Log(NamedTuple):
    raw: bytes
    offsets: tuple[int, int]
    aborted: list[AbortedTransaction]
    timestamp_types: dict[int, int]


optional_bytes = st.none() | st.binary(max_size=40)
header_lists = st.just(()) | st.lists(st.tuples(st.text(max_size=8), optional_bytes), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**42) | st.integers(-MAX_TIMESTAMP_MS, MAX_TIMESTAMP_MS)
PRODUCERS = (7, 8)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Batches of every codec and kind, with gaps as compaction leaves them, and a range that cuts them anywhere."""
    raw, offset = bytearray(), draw(st.integers(0, 1000) | st.integers(0, 2**60))
    first = offset
    aborted: list[AbortedTransaction] = []
    types: dict[int, int] = {}
    for _ in range(draw(st.integers(0, 6))):
        gaps = draw(st.lists(st.integers(1, 90), min_size=1, max_size=8))
        records = []
        for gap in gaps:
            records.append(
                Record(offset, draw(timestamps), draw(optional_bytes), draw(optional_bytes), draw(header_lists))
            )
            offset += gap
        append_time = draw(st.none() | timestamps)
        producer = draw(st.sampled_from((-1, *PRODUCERS)))
        batch = build_batch(
            records,
            compression=draw(st.sampled_from(Codec)),
            producer_id=producer,
            is_transactional=producer != -1,
            log_append_time_ms=append_time,
        )
        raw += draw(st.sampled_from([batch] * 5 + [build_empty_batch(read_header(batch))]))
        types.update((record.offset, int(append_time is not None)) for record in records)
        if producer != -1 and draw(st.booleans()):
            end = draw(st.sampled_from(ControlType))
            if end == ControlType.ABORT:
                aborted.append(AbortedTransaction(producer, records[0].offset))
            raw += build_end_marker(
                end, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=offset
            )
            offset += 1
    bounds = sorted((draw(st.integers(first, offset + 3)), draw(st.integers(first, offset + 3))))
    cut_off = draw(st.integers(0, 100))
    return Log(
        bytes(raw) + bytes(build_batch([Record(offset, 0, b"", b"v" * 60)]))[:cut_off],
        (bounds[0], bounds[1]),
        aborted,
        types,
    )


@settings(max_examples=150)
@given(logs())
def test_every_log_is_read_as_a_consumer_reads_it(log: Log) -> None:
    table = decode(log.raw, log.offsets, log.aborted)
    assert rows_of(table) == reference(log.raw, log.offsets, log.aborted, log.timestamp_types)
    everything = decode(log.raw, EVERYTHING, log.aborted)
    assert rows_of(everything) == reference(log.raw, EVERYTHING, log.aborted, log.timestamp_types)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(logs())
def test_batches_taken_in_runs_are_read_as_a_consumer_reads_them(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    monkeypatch.setattr(decoding, "MANY_SMALL_BATCHES", 1)
    assert rows_of(decode(log.raw, log.offsets, log.aborted)) == reference(
        log.raw, log.offsets, log.aborted, log.timestamp_types
    )


@settings(max_examples=40)
@given(logs(), st.lists(st.sampled_from(COLUMNS), unique=True, min_size=1))
def test_only_the_columns_asked_for_are_there_in_their_order(log: Log, columns: list[str]) -> None:
    chosen = decode(log.raw, log.offsets, log.aborted, columns)
    assert chosen == decode(log.raw, log.offsets, log.aborted).select(columns)


@pytest.mark.parametrize("codec", list(Codec))
def test_all_kinds_of_fields_are_read(codec: Codec) -> None:
    rows = decode(build_batch(SAMPLE, compression=codec)).to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [(record.key, record.value) for record in SAMPLE]
    assert [row["offset"] for row in rows] == [10, 11, 13, 17, 18]
    assert rows[0] == {
        "key": b"key",
        "value": b"value",
        "topic": "orders",
        "partition": 3,
        "offset": 10,
        "timestamp": EPOCH + timedelta(seconds=1),
        "timestampType": 0,
        "headers": [
            {"key": "header", "value": b"1"},
            {"key": "empty", "value": b""},
            {"key": "null", "value": None},
        ],
    }
    assert rows[1]["headers"] is None


def test_the_time_of_the_append_counts_for_the_whole_batch() -> None:
    rows = rows_of(decode(build_batch(SAMPLE, log_append_time_ms=77)))
    assert {(row.timestamp_us, row.timestamp_type) for row in rows} == {(77_000, 1)}


def test_there_are_no_validity_bits_where_nothing_is_null() -> None:
    (batch,) = PartitionDecoder("orders", 3, COLUMNS).decode(memoryview(build_batch(SAMPLE[:1])), *EVERYTHING)
    assert [column.buffers()[0] for column in batch.columns] == [None] * len(COLUMNS)


def test_the_arrow_types_are_those_that_spark_makes_of_the_schema() -> None:
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    kinds = BinaryType, BinaryType, StringType, IntegerType, LongType, TimestampType, IntegerType
    fields = [StructField(name, kind()) for name, kind in zip(COLUMNS[:-1], kinds, strict=True)]
    spark_schema = StructType([*fields, StructField("headers", ArrayType(header))])
    assert decode(build_batch(SAMPLE)).schema.equals(arrow_schema(spark_schema))


def many_batches(count: int, codec: Codec = Codec.NONE) -> bytes:
    return b"".join(
        bytes(build_batch([Record(offset, offset, b"k", b"v" * 100)], compression=codec)) for offset in range(count)
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_many_small_batches_become_one_arrow_batch(codec: Codec) -> None:
    (batch,) = PartitionDecoder("orders", 3, ["offset"]).decode(memoryview(many_batches(300, codec)), 5, 295)
    assert batch["offset"].to_pylist() == list(range(5, 295))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_arrow_batches_are_kept_to_a_good_size(monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    monkeypatch.setattr(batch_group, "TARGET_BYTES", 1000)
    decoder = PartitionDecoder("orders", 3, ["offset"])
    sizes = [batch.num_rows for batch in decoder.decode(memoryview(many_batches(100, codec)), *EVERYTHING)]
    assert sum(sizes) == 100
    assert max(sizes) == 10


def test_a_run_of_small_batches_ends_where_one_needs_a_closer_look() -> None:
    raw = bytearray(many_batches(100))
    for offset in range(100, 400):
        codec = Codec.LZ4 if offset == 200 else Codec.NONE
        value = b"v" * (5000 if offset == 300 else 50)
        raw += build_batch([Record(offset, offset, b"k", value)], compression=codec)
    table = decode(raw, (3, 390))
    assert table["offset"].to_pylist() == list(range(3, 390))
    assert table["value"][300 - 3].as_py() == b"v" * 5000


def test_an_aborted_transaction_is_left_out_of_a_run_of_small_batches() -> None:
    raw = bytearray(many_batches(30))
    for offset in range(30, 130):
        producer = 7 if offset % 2 else 8
        raw += build_batch([Record(offset, 0, b"k", b"v")], producer_id=producer, is_transactional=True)
    for producer, end in ((7, ControlType.ABORT), (8, ControlType.COMMIT)):
        raw += build_end_marker(
            end, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=123 + producer
        )
    raw += b"".join(
        bytes(build_batch([Record(offset, 0, b"k", b"v")], producer_id=7, is_transactional=True))
        for offset in range(132, 160)
    )
    offsets = decode(raw, EVERYTHING, [AbortedTransaction(7, 31)])["offset"].to_pylist()
    assert offsets == [*range(30), *range(30, 130, 2), *range(132, 160)]


def test_a_broken_batch_in_a_run_of_small_ones_is_named() -> None:
    raw = bytearray(many_batches(100))
    size_bytes = len(raw) // 100
    for position in (61, size_bytes - 1):
        broken = raw.copy()
        broken[70 * size_bytes + position] ^= 1
        assert rejection(broken) == "orders-3: the batch at offset 70 cannot be read: its CRC does not match"
        assert decode(broken, (0, 70)).num_rows == 70
        assert decode(broken, (71, 100)).num_rows == 29


def test_one_large_batch_becomes_several_arrow_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "ROWS_PER_ARROW_BATCH", 2)
    raw = memoryview(build_batch(SAMPLE))
    batches = list(PartitionDecoder("orders", 3, COLUMNS).decode(raw, *EVERYTHING))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    monkeypatch.undo()
    assert pa.Table.from_batches(batches).combine_chunks() == decode(build_batch(SAMPLE))


def test_compressed_and_other_batches_go_together() -> None:
    raw = bytearray()
    for number in range(20):
        records = [record._replace(offset=record.offset + 100 * number) for record in SAMPLE]
        raw += build_batch(records, compression=Codec.ZSTD if number % 2 == 0 else Codec.NONE)
    assert len(list(PartitionDecoder("orders", 3, COLUMNS).decode(memoryview(raw), *EVERYTHING))) == 1
    assert decode(raw).num_rows == 100


def test_no_group_of_batches_outgrows_the_offsets_of_arrow() -> None:
    group = batch_group.BatchGroup()
    batch = build_batch(SAMPLE)
    header = read_header(batch)
    group.begin(memoryview(batch))
    assert group.has_room_for(header._replace(length=2**31 - 1))
    group.add(header, 0)
    assert group.has_room_for(header)
    assert not group.has_room_for(header._replace(length=2**31 - 1))


def test_arrow_batches_own_their_memory() -> None:
    decoder = PartitionDecoder("orders", 3, COLUMNS)
    for codec in Codec:
        raw = build_batch(SAMPLE, compression=codec)
        (batch,) = decoder.decode(memoryview(raw), *EVERYTHING)
        before = batch.to_pylist()
        list(decoder.decode(memoryview(many_batches(20, codec)), *EVERYTHING))
        raw[:] = bytes(len(raw))
        assert batch.to_pylist() == before


def test_a_decoder_whose_iterator_was_left_reads_on() -> None:
    decoder = PartitionDecoder("orders", 3, ["offset"])
    raw = memoryview(build_batch(SAMPLE, compression=Codec.LZ4))
    next(decoder.decode(raw, *EVERYTHING))
    assert [batch["offset"].to_pylist() for batch in decoder.decode(raw, *EVERYTHING)] == [[10, 11, 13, 17, 18]]


def test_nothing_comes_of_nothing() -> None:
    empty = build_empty_batch(read_header(build_batch(SAMPLE)))
    for raw in (b"", b"\x00" * 8, bytes(build_batch(SAMPLE))[:60], bytes(build_batch(SAMPLE))[:-1], bytes(empty)):
        assert decode(raw).num_rows == 0
    assert decode(build_batch(SAMPLE), (14, 17)).num_rows == 0
    assert decode(build_batch(SAMPLE), (19, 40)).num_rows == 0
    assert decode(build_batch(SAMPLE), (0, 10)).num_rows == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_unreadable_batches_are_passed_over_where_the_reader_wants_that(codec: Codec) -> None:
    def good(offset: int) -> bytes:
        return bytes(build_batch([Record(offset, 0, b"k", b"%d" % offset)], compression=codec))

    def bad(offset: int, payload: bytes) -> bytes:
        return bytes(assemble(read_header(good(offset)), payload))

    raw = bad(0, b"x") + good(1) + bad(2, compress(codec, b"\xff" * 30)) + bad(3, b"") + good(4) + bad(5, b"yy" * 9)
    messages: list[str] = []
    decoder = PartitionDecoder("t", 0, ("value",))
    found = decoder.decode(memoryview(raw), 0, 100, (), lambda error: messages.append(error.message))
    assert [value for batch in found for value in batch.column(0).to_pylist()] == [b"1", b"4"]
    assert sorted(text.split("offset ")[1].split(" ")[0] for text in messages) == ["0", "2", "3", "5"]


def test_what_lies_beyond_the_range_is_not_looked_at() -> None:
    broken = bytearray(build_batch([Record(30, 0, b"k", b"v")]))
    broken[-1] ^= 1
    assert decode(build_batch(SAMPLE) + broken, (0, 30)).num_rows == 5


def rejection(raw: bytes | bytearray, columns: Sequence[str] = COLUMNS) -> str:
    with pytest.raises(CorruptMessage) as caught:
        decode(raw, columns=columns)
    return str(caught.value)


def test_an_error_names_the_partition_and_the_batch() -> None:
    broken = build_batch([Record(30, 0, b"k", b"v")])
    broken[-1] ^= 1
    assert (
        rejection(build_batch(SAMPLE) + broken)
        == "orders-3: the batch at offset 30 cannot be read: its CRC does not match"
    )
    header = read_header(broken)
    lying = assemble(header, bytes(payload_of(broken, header))[:-1] + b"\x02")
    assert rejection(build_batch(SAMPLE) + lying + build_batch([Record(40, 0, b"", b"")])) == (
        "orders-3: the batch at offset 30 cannot be read: a record claims a number of headers that it cannot hold "
        "(byte 0 of its records)"
    )


def test_a_control_batch_is_checked_too() -> None:
    marker = build_end_marker(
        ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=5
    )
    marker[-3] ^= 1
    assert "the batch at offset 5 cannot be read: its CRC does not match" in rejection(marker)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_format_is_named(magic: int) -> None:
    message = struct.pack(">qiIbb", 12, 22, 0, magic, 0) + bytes(16)
    assert rejection(message) == (
        f"orders-3: the batch at offset 12 cannot be read: it has format version {magic}, but only version 2 is"
        " supported"
    )


def test_an_unknown_codec_is_named() -> None:
    batch = build_batch(SAMPLE)
    batch[22] |= 5
    seal(batch)
    assert "the unknown compression codec 5" in rejection(batch)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec != Codec.NONE])
def test_a_batch_that_decompresses_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    monkeypatch.setattr(scratch.Scratch.__init__, "__defaults__", (100_000,))
    assert decode(build_batch([Record(0, 0, b"", b"v" * 90_000)], compression=codec)).num_rows == 1
    message = rejection(build_batch([Record(0, 0, b"", b"v" * 100_000)], compression=codec))
    assert message.startswith("orders-3: the batch at offset 0 cannot be read: ")
    assert "decompress" in message
    assert "limit" in message


def test_the_scratch_buffer_grows_with_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "FIRST_BYTES", 100)
    for codec in Codec:
        records = [Record(offset, 0, b"%d" % offset, b"v" * 40 * offset) for offset in range(30)]
        raw = b"".join(bytes(build_batch([record], compression=codec)) for record in records)
        assert decode(raw)["value"].to_pylist() == [record.value for record in records]


def test_malformed_compressed_bytes_are_refused() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        header = read_header(build_batch(SAMPLE, compression=codec))
        assert "orders-3: the batch at offset 10 cannot be read: " in rejection(assemble(header, b"\x01garbage" * 9))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"record_count": 6}, "cannot hold 6 records|variable-length number"),
        ({"record_count": 2**31 - 1}, "cannot hold 2147483647 records"),
        ({"record_count": -1}, "cannot hold -1 records"),
        ({"record_count": 4}, "bytes follow the last record"),
        ({"last_offset_delta": 7}, "an offset delta is outside of its batch"),
        ({"last_offset_delta": -1}, "it claims offsets from 10 to 9"),
        ({"base_offset": -1}, "it claims offsets from -1"),
        ({"base_offset": 2**63 - 5}, "it claims offsets from"),
        ({"base_timestamp": 2**63 - 1}, "a timestamp does not fit"),
    ],
)
def test_a_header_that_lies_is_refused(change: dict[str, int], why: str) -> None:
    batch = build_batch(SAMPLE)
    header = read_header(batch)
    with pytest.raises(CorruptMessage, match=why):
        decode(assemble(header._replace(**change), payload_of(batch, header)))


def test_offsets_that_go_backwards_are_refused() -> None:
    records = [Record(10, 0, b"", b""), Record(12, 0, b"", b""), Record(12, 0, b"", b""), Record(15, 0, b"", b"")]
    assert "an offset delta is outside of its batch or does not grow" in rejection(build_batch(records))


def test_a_length_that_is_less_than_a_header_is_refused() -> None:
    batch = build_batch(SAMPLE)
    struct.pack_into(">i", batch, 8, 48)
    assert "the batch at offset 10 cannot be read: it claims a length of 48 bytes" in rejection(batch)


def test_a_timestamp_beyond_microseconds_matters_only_where_it_is_asked_for() -> None:
    batch = build_batch([Record(0, MAX_TIMESTAMP_MS + 1, b"k", b"v")])
    assert "a timestamp does not fit microseconds" in rejection(batch)
    assert decode(batch, columns=["value"]).num_rows == 1


def test_a_header_name_that_is_no_text_is_read_as_java_reads_it() -> None:
    batch = build_batch([Record(4, 0, b"k", b"v", (("name", b"v"), ("other", None)))])
    header = read_header(batch)
    payload = bytes(payload_of(batch, header)).replace(b"name", b"n\xff\xe2e")
    before = build_batch([Record(3, 0, b"k", b"v", (("a", None), ("b", None)))])
    rows = rows_of(decode(before + assemble(header, payload)))
    assert [row.headers for row in rows] == [(("a", None), ("b", None)), (("n\ufffd\ufffde", b"v"), ("other", None))]


@pytest.mark.parametrize("many", [1, 16])
def test_mutated_batches_with_a_right_crc_are_refused_or_read(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(decoding, "MANY_SMALL_BATCHES", many)
    before = bytes(build_batch([Record(0, 0, b"k", b"v")]))
    random = Random(11)
    for _ in range(1500):
        codec = random.choice(list(Codec))
        batch = bytearray(build_batch(SAMPLE, compression=codec))
        for _ in range(random.randint(1, 3)):
            batch[random.randrange(len(batch))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        if random.random() < 0.5:
            batch = assemble(read_header(batch)._replace(magic=2), compress(codec, mutated_records(random)))
        with contextlib.suppress(CorruptMessage):
            seal(batch)
            decode(before + batch)


def mutated_records(random: Random) -> bytes:
    payload = bytearray(build_batch(SAMPLE)[HEADER_BYTES:])
    for _ in range(random.randint(1, 4)):
        payload[random.randrange(len(payload))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    return bytes(payload)


def test_an_unknown_column_is_a_mistake_of_the_caller() -> None:
    columns: list[Any] = ["key", "nonsense"]
    with pytest.raises(KeyError):
        PartitionDecoder("orders", 3, columns)

import random
from collections.abc import Iterator

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.both import both_kernels  # noqa: F401 - a fixture
from tidelog.errors import CorruptMessage
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import HEADER, HEADER_BYTES, crc_matches, read_header, seal, split_batches
from tidelog.protocol.records import (
    ControlType,
    EndMarker,
    Record,
    build_batch,
    build_empty_batch,
    build_end_marker,
    first_at,
    is_tombstone,
    payload_of,
    raw_records,
    read_end_marker,
    read_varint,
    records_of,
    with_base_timestamp,
    write_varint,
)

pytestmark = pytest.mark.usefixtures("both_kernels")

SAMPLE = [
    Record(0, 1000, b"key", b"value", (("header", b"1"), ("empty", b""), ("null", None))),
    Record(1, 1500, None, b"no key"),
    Record(2, 900, b"tombstone", None),
    Record(3, 1000, b"", b""),
    Record(4, 1001, b"large", b"x" * 5000),
]

optional_bytes = st.none() | st.binary(max_size=60)
headers = st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**62)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    gaps = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=12))
    first = draw(st.integers(0, 2**60))
    offsets = [first + sum(gaps[:index]) for index in range(len(gaps))]
    return [
        Record(offset, draw(timestamps), draw(optional_bytes), draw(optional_bytes), draw(headers))
        for offset in offsets
    ]


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_round_trip(value: int) -> None:
    output = bytearray(b"\xff")
    write_varint(output, value)
    assert read_varint(bytes(output), 1, 64) == (value, len(output))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (2**31 - 1, "feffffff0f")],
)
def test_numbers_are_written_as_zigzag(value: int, encoded: str) -> None:
    output = bytearray()
    write_varint(output, value)
    assert output.hex() == encoded


@pytest.mark.parametrize(("encoded", "bits"), [("ffffffff1f", 32), ("ffffffffff0f", 32), ("ff" * 9 + "02", 64)])
def test_numbers_of_too_many_bits_are_corrupt(encoded: str, bits: int) -> None:
    with pytest.raises(CorruptMessage):
        read_varint(bytes.fromhex(encoded), 0, bits)


@pytest.mark.parametrize("codec", list(Codec))
@given(records=record_lists())
def test_records_round_trip(codec: Codec, records: list[Record]) -> None:
    batch = build_batch(records, compression=codec)
    header = read_header(batch)
    assert list(records_of(batch)) == records
    assert crc_matches(batch, header)
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert [bytes(found) for _, found in split_batches(batch + batch)] == [batch, batch]


@pytest.mark.parametrize("size", [0, 63, 64, 127, 128, 255, 256, 8191, 8192])
def test_keys_values_and_distances_of_every_length_round_trip(size: int) -> None:
    first = Record(0, 1_000_000, b"", b"")
    others = [
        Record(1, 1_000_000, bytes(size), b"value"),
        Record(2, 1_000_000, b"key", bytes(size)),
        Record(3, 1_000_000 + size, b"key", b"value"),
        Record(4, 1_000_000 - size, b"key", b"value"),
        Record(5 + size, 1_000_000, b"key", b"value"),
    ]
    assert list(records_of(build_batch([first, *others]))) == [first, *others]


def test_all_header_fields_are_written() -> None:
    batch = build_batch(
        [Record(7, 5, b"k", b"v")],
        compression=Codec.ZSTD,
        base_offset=4,
        leader_epoch=3,
        producer_id=11,
        producer_epoch=12,
        base_sequence=13,
        is_transactional=True,
    )
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset_delta, header.leader_epoch) == (4, 3, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 12, 13)
    assert header.is_transactional
    assert not header.is_control
    assert header.delete_horizon_ms is None


def test_a_delete_horizon_stands_in_for_the_base_timestamp() -> None:
    batch = build_batch(SAMPLE, delete_horizon_ms=123_456)
    assert read_header(batch).delete_horizon_ms == 123_456
    assert list(records_of(batch)) == SAMPLE


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = build_batch(SAMPLE, log_append_time_ms=77)
    assert {record.timestamp for record in records_of(batch)} == {77}


def test_records_can_be_written_against_another_base_timestamp() -> None:
    batch = build_batch(SAMPLE)
    header = read_header(batch)
    payload = payload_of(batch, header)
    moved = with_base_timestamp(payload, raw_records(payload, len(SAMPLE)), header.base_timestamp, 10**12)
    direct = build_batch(SAMPLE, delete_horizon_ms=10**12)
    assert bytes(moved) == payload_of(direct, read_header(direct))


def test_tombstones_are_distinguished_from_empty_values() -> None:
    batch = build_batch(SAMPLE)
    payload = payload_of(batch, read_header(batch))
    found = [is_tombstone(payload, record) for record in raw_records(payload, len(SAMPLE))]
    assert found == [False, False, True, False, False]


def test_an_empty_batch_keeps_offsets_and_sequence() -> None:
    full = build_batch(SAMPLE, compression=Codec.GZIP, producer_id=1, producer_epoch=2, base_sequence=3)
    empty = build_empty_batch(read_header(full))
    header = read_header(empty)
    assert len(empty) == HEADER_BYTES
    assert crc_matches(empty, header)
    assert list(records_of(empty)) == []
    assert (header.last_offset, header.last_sequence, header.max_timestamp) == (4, 7, 1500)
    assert header.compression == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_and_we_read_each_other(codec: Codec) -> None:
    theirs = AiokafkaBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1_000_000,
    )
    for record in SAMPLE:
        theirs.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    assert list(records_of(bytes(theirs.build()))) == SAMPLE
    batch = AiokafkaBatch(bytes(build_batch(SAMPLE, compression=codec)))
    assert batch.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == SAMPLE


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python loads its schemas in a deprecated way
@pytest.mark.parametrize("codec", list(Codec))
def test_kafka_python_and_we_read_each_other(codec: Codec) -> None:
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

    theirs = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1_000_000)
    for record in SAMPLE:
        theirs.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    assert list(records_of(bytes(theirs.build()))) == SAMPLE
    batch = DefaultRecordBatch(bytes(build_batch(SAMPLE, compression=codec)))
    assert batch.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == SAMPLE


@pytest.mark.parametrize("control_type", list(ControlType))
def test_end_markers_round_trip(control_type: ControlType) -> None:
    batch = build_end_marker(
        control_type, producer_id=5, producer_epoch=6, coordinator_epoch=7, timestamp=8, base_offset=9, leader_epoch=1
    )
    header = read_header(batch)
    assert read_end_marker(batch) == EndMarker(control_type, 5, 6, 7)
    assert header.attributes == 0x30
    assert (header.base_sequence, header.base_offset, header.last_offset_delta) == (-1, 9, 0)
    [record] = records_of(batch)
    assert record.key == bytes([0, 0, 0, control_type])
    assert record.value == bytes([0, 0, 0, 0, 0, 7])


def test_control_batches_that_end_no_transaction_are_no_markers() -> None:
    marker = build_end_marker(ControlType.ABORT, producer_id=5, producer_epoch=6, coordinator_epoch=7, timestamp=8)
    assert read_end_marker(build_empty_batch(read_header(marker))) is None
    leader_change = build_batch([Record(0, 0, b"\x00\x00\x00\x02", b"\x00\x00")], is_control=True)
    assert read_end_marker(leader_change) is None


@pytest.mark.parametrize(
    "record", [Record(0, 0, None, b""), Record(0, 0, b"\x00\x00\x00", b""), Record(0, 0, bytes(4), bytes(5))]
)
def test_malformed_control_records_are_corrupt(record: Record) -> None:
    with pytest.raises(CorruptMessage):
        read_end_marker(build_batch([record], is_control=True))


def with_fields(batch: bytearray, **fields: int) -> bytearray:
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(**fields))
    return batch


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 4},
        {"record_count": 6},
        {"record_count": -1},
        {"record_count": 2**31 - 1},
        {"length": 10},
        {"length": -1},
        {"length": 2**31 - 1},
        {"magic": 1},
        {"attributes": 5},
        {"last_offset_delta": 3},
        {"base_timestamp": 2**63 - 1},
    ],
)
def test_headers_that_lie_are_corrupt(fields: dict[str, int]) -> None:
    with pytest.raises(CorruptMessage):
        list(records_of(with_fields(build_batch(SAMPLE), **fields)))


@pytest.mark.parametrize("size", [0, 60, 61, 100])
def test_cut_batches_are_corrupt(size: int) -> None:
    with pytest.raises(CorruptMessage):
        list(records_of(build_batch(SAMPLE)[:size]))


def mutations(batch: bytearray, chance: random.Random) -> Iterator[bytearray]:
    for _ in range(4000):
        mutated = bytearray(batch)
        for _ in range(chance.choice((1, 1, 2, 8))):
            mutated[chance.randrange(len(mutated))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        yield (
            mutated[: chance.choice((len(mutated), chance.randrange(len(mutated))))]
            if chance.random() < 0.2
            else mutated
        )


@pytest.mark.parametrize("codec", list(Codec))
def test_mutated_batches_are_read_or_corrupt_and_nothing_else(codec: Codec) -> None:
    chance = random.Random(codec)
    batch = build_batch(SAMPLE[:4], compression=codec)
    marker = build_end_marker(ControlType.ABORT, producer_id=5, producer_epoch=6, coordinator_epoch=7, timestamp=8)
    rejected = 0
    for mutated in mutations(batch, chance):
        try:
            list(records_of(mutated))
        except CorruptMessage:
            rejected += 1
    for mutated in mutations(marker, chance):
        try:
            read_end_marker(mutated)
        except CorruptMessage:
            rejected += 1
    assert 1000 < rejected < 8000


def test_mutated_payloads_do_not_break_the_walk_over_raw_records() -> None:
    chance = random.Random(1)
    batch = build_batch(SAMPLE[:4])
    payload = payload_of(batch, read_header(batch))
    rejected = 0
    for mutated in mutations(bytearray(payload), chance):
        data = bytes(mutated)
        try:
            for record in raw_records(data, 4):
                is_tombstone(data, record)
        except CorruptMessage:
            rejected += 1
    assert rejected > 100


def test_a_record_header_name_that_is_not_text_is_shown_as_java_clients_show_it() -> None:
    batch = build_batch([Record(0, 0, b"k", b"v", (("name", b""),))])
    batch[batch.index(b"name")] = 0xFF
    seal(batch)
    (record,) = records_of(batch)
    assert record.headers == (("\ufffdame", b""),)


@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=20),
    st.integers(-7, 7),
    st.integers(98, 125),
    st.sampled_from([Codec.NONE, Codec.GZIP]),
    st.sampled_from([None, 995, 1003]),
)
def test_the_first_record_of_a_time_is_that_which_a_reader_finds(
    times: list[int], later: int, start_offset: int, codec: Codec, append_time: int | None
) -> None:
    written = [Record(100 + 2 * index, 1000 + time, b"k", b"v") for index, time in enumerate(times)]
    batch = bytes(build_batch(written, compression=codec, log_append_time_ms=append_time))
    wanted = 1000 + later
    found = [each[1::-1] for each in records_of(batch) if each.timestamp >= wanted and each.offset >= start_offset]
    assert first_at(batch, wanted, start_offset) == (found[0] if found else None)


def test_a_search_goes_on_behind_what_was_decompressed_first() -> None:
    written = [Record(index, 1000 + (index == 59_999), None, bytes(20)) for index in range(60_000)]
    batch = bytes(build_batch(written, compression=Codec.GZIP))
    assert first_at(batch, 1001, 0) == (1001, 59_999)
    assert first_at(batch, 1002, 0) is None


def test_times_that_no_record_can_have_are_searched_in_vain() -> None:
    batch = bytes(build_batch(SAMPLE))
    assert first_at(batch, -(2**63), 0) == (1000, 0)
    assert first_at(batch, 2**63 - 1, 0) is None
    with pytest.raises(CorruptMessage):
        first_at(batch[:30], 0, 0)

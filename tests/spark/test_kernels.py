import ctypes
import mmap
import struct
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from tidelog.errors import CorruptMessage
from tidelog.protocol.record_batch import HEADER_BYTES, BatchHeader, assemble, read_header, seal
from tidelog.protocol.records import Record, build_batch, read_varint, records_of, write_varint
from tidelog.spark.records import kernels, small_batches
from tidelog.spark.records.batch_group import facts_of
from tidelog.spark.records.error_codes import WHY
from tidelog.spark.records.small_batches import scan_small_batches

MUTATIONS = 101_000
COMPARED_EVERY = 8
AREA_BYTES = 4 * mmap.PAGESIZE
ROOM = 64
CANARY = -77
EVERY_OFFSET = (0, 2**63 - 1)

SAMPLES = [
    [Record(0, 1000, b"key", b"value", (("header", b"1"), ("empty", b""), ("null", None)))],
    [Record(offset, 1000 + offset, b"k%d" % offset, b"v" * offset) for offset in range(6)],
    [Record(3, 5, None, b"no key"), Record(200, 9, b"tombstone", None), Record(9000, 2**40, b"", b"x" * 300)],
    [Record(offset, 7, None, None, (("h", b"v" * offset),) * 3) for offset in range(4)],
]
HUGE_NUMBERS = (
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\x80" * 6,
    b"\x7f",
)


class Scanned(NamedTuple):
    rows: int
    problem: int
    offsets: kernels.Longs
    timestamps: kernels.Longs
    fields: kernels.Longs


class GuardedArea:
    """Bytes that end where memory ends: one read beyond them and the process dies."""

    def __init__(self) -> None:
        self._mapped = mmap.mmap(-1, AREA_BYTES + mmap.PAGESIZE)
        whole = np.frombuffer(self._mapped, np.uint8)
        guard = ctypes.c_void_p(whole.ctypes.data + AREA_BYTES)
        assert ctypes.CDLL(None).mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        self._area = whole[:AREA_BYTES]

    def holding(self, data: bytes) -> kernels.Bytes:
        view = self._area[AREA_BYTES - len(data) :]
        view[:] = np.frombuffer(data, np.uint8)
        view.flags.writeable = False
        return view


class Scanner:
    """Scans one batch at a time with room for as many rows as its header claims, and looks at what lies behind."""

    def __init__(self) -> None:
        self._longs = np.full((2, ROOM + 8), CANARY, np.int64)
        self._types_of_time = np.full(ROOM + 8, CANARY, np.int32)
        self._fields: dict[int, kernels.Longs] = {}

    def scan(self, payload: kernels.Bytes, header: BatchHeader) -> Scanned:
        """What is found is good until the next scan."""
        batches = np.array([facts_of(header, 0, len(payload))], np.int64)
        room = min(max(header.record_count, 0), ROOM)
        offsets, timestamps = self._longs[0, :room], self._longs[1, :room]
        types_of_time = self._types_of_time[:room]
        fields = self._fields.setdefault(room, np.empty((kernels.FIELD_FACTS, room), np.int64))
        self._longs[:] = CANARY
        self._types_of_time[:] = CANARY
        rows, problem, _, _ = kernels.scan(
            payload, batches, *EVERY_OFFSET, True, offsets, timestamps, types_of_time, fields
        )
        assert 0 <= rows <= room
        assert (self._longs[:, rows:] == CANARY).all()
        assert (self._types_of_time[rows:] == CANARY).all()
        return Scanned(rows, problem, offsets[:rows], timestamps[:rows], fields[:, :rows])


def records_in(payload: kernels.Bytes, found: Scanned) -> list[Record]:
    data = payload.tobytes()
    records = []
    columns = (found.offsets.tolist(), found.timestamps.tolist(), *found.fields[:4].tolist())
    for offset, timestamp, key_start, key_length, value_start, value_length in zip(*columns, strict=True):
        assert 0 <= key_start <= key_start + max(key_length, 0) <= value_start
        assert value_start + max(value_length, 0) <= len(data)
        key = None if key_length < 0 else data[key_start : key_start + key_length]
        value = None if value_length < 0 else data[value_start : value_start + value_length]
        timestamp_ms, rest = divmod(timestamp, 1000)
        assert rest == 0
        records.append(Record(offset, timestamp_ms, key, value))
    return records


def expected(header: BatchHeader, payload: bytes) -> list[Record] | None:
    """What the plain decoder finds, without headers; None where it refuses, or where offsets do not grow."""
    try:
        records = list(records_of(assemble(header, payload)))
    except CorruptMessage:
        return None
    if any(later.offset <= earlier.offset for earlier, later in pairwise(records)):
        return None
    if any(abs(record.timestamp) > kernels.MAX_MILLISECONDS for record in records):
        return None
    return [record._replace(headers=()) for record in records]


def mutate(payload: bytearray, random: Random) -> None:
    place = random.randrange(len(payload))
    match random.randrange(6):
        case 0:
            payload[place] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        case 1:
            payload[place] = random.randrange(256)
        case 2:
            huge = random.choice(HUGE_NUMBERS)
            payload[place : place + random.choice((0, 1, len(huge)))] = huge
        case 3:
            del payload[place:]
        case 4:
            del payload[place : place + random.randint(1, 8)]
        case _:
            payload[place] ^= 1 << random.randrange(8)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_read_as_they_were_written(value: int) -> None:
    output = bytearray(b"\xff")
    write_varint(output, value)
    data = np.frombuffer(bytes(output), np.uint8)
    assert kernels.read_number(data, 1, len(data), 64) == (value, len(data))
    assert kernels.read_number(data, 1, len(data) - 1, 64)[1] == kernels.BAD_NUMBER


@given(st.binary(min_size=1, max_size=12), st.sampled_from([32, 64]))
def test_any_bytes_are_the_same_number_to_the_kernel_and_to_the_plain_decoder(data: bytes, bits: int) -> None:
    try:
        number = read_varint(data, 0, bits)
    except (CorruptMessage, IndexError):
        number = (0, kernels.BAD_NUMBER)
    assert kernels.read_number(np.frombuffer(data, np.uint8), 0, len(data), bits) == number


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_big_endian_numbers_are_loaded(small: int, large: int) -> None:
    data = np.frombuffer(b"\xaa" + struct.pack(">iq", small, large), np.uint8)
    assert kernels.load_int32(data, 1) == small
    assert kernels.load_int64(data, 5) == large


@pytest.mark.parametrize("records", SAMPLES)
def test_a_scan_finds_what_the_plain_decoder_finds(records: list[Record]) -> None:
    batch = bytes(build_batch(records))
    payload = np.frombuffer(batch[HEADER_BYTES:], np.uint8)
    found = Scanner().scan(payload, read_header(batch))
    assert found.problem == 0
    assert records_in(payload, found) == [record._replace(headers=()) for record in records]


def mutated(batch: bytes, random: Random) -> tuple[BatchHeader, bytes]:
    header, payload = read_header(batch), bytearray(batch[HEADER_BYTES:])
    mutate(payload, random)
    if random.random() < 0.1:
        header = header._replace(record_count=random.choice((0, 1, header.record_count + 1, 2**31 - 1, -1)))
    if random.random() < 0.1:
        header = header._replace(base_timestamp=random.choice((2**63 - 1, 2**62, -(2**63))))
    return header, bytes(payload)


def test_mutated_batches_are_refused_or_read_as_the_plain_decoder_reads_them() -> None:
    """The CRC is no help here: the scan sees every byte as it is, next to the end of the memory."""
    random = Random(5)
    area, scanner = GuardedArea(), Scanner()
    batches = [bytes(build_batch(records)) for records in SAMPLES]
    seen = dict.fromkeys((0, *WHY), 0)
    for number in range(MUTATIONS):
        header, payload = mutated(random.choice(batches), random)
        guarded = area.holding(payload)
        found = scanner.scan(guarded, header)
        seen[found.problem] += 1
        records = None if found.problem else records_in(guarded, found)
        if number % COMPARED_EVERY == 0 and (wanted := expected(header, payload)) != records:
            # A name that is not UTF-8 is found only where the column of headers is built.
            assert wanted is None
            assert found.fields[kernels.HEADER_COUNT].any()
    del seen[kernels.BAD_BOUNDS]
    assert min(seen.values()) > 100, seen


def taken(buffer: kernels.Bytes, position: int = 0) -> tuple[int, int, int, int]:
    table = np.empty((ROOM, kernels.BATCH_FACTS), np.int64)
    return scan_small_batches(buffer, position, *EVERY_OFFSET, True, ROOM, AREA_BYTES, table)


def test_mutated_headers_of_small_batches_are_left_to_a_closer_look() -> None:
    random, area = Random(6), GuardedArea()
    whole = bytes(build_batch(SAMPLES[0]))
    assert taken(area.holding(whole * 3)) == (3, 3, 3 * (len(whole) - HEADER_BYTES), 3 * len(whole))
    rejected = 0
    for _ in range(20_000):
        batch = bytearray(whole)
        mutate(batch, random)
        if random.random() < 0.5 and len(batch) >= HEADER_BYTES:
            seal(batch)
        count, rows, _, position = taken(area.holding(whole + bytes(batch)), len(whole))
        rejected += not count
        assert count or position == len(whole)
        assert rows * kernels.MIN_RECORD_BYTES <= len(batch)
    assert 1000 < rejected < 19_000


@given(st.binary(max_size=300), st.integers(0, 20))
def test_the_crc_of_small_batches_is_that_of_the_library(data: bytes, start: int) -> None:
    buffer = np.frombuffer(data, np.uint8)
    start = min(start, len(data))
    assert small_batches.crc32c(buffer, start, len(data)) == crc32c.crc32c(data[start:])


@pytest.mark.parametrize(("start", "end"), [(-1, 10), (5, 4), (0, 11), (2**62, 2**63 - 1)])
def test_bounds_outside_of_the_buffer_are_refused(start: int, end: int) -> None:
    batches = np.array([facts_of(read_header(build_batch(SAMPLES[0])), start, end)], np.int64)
    room = np.empty(1, np.int64)
    fields = np.empty((kernels.FIELD_FACTS, 1), np.int64)
    buffer = np.frombuffer(bytes(10), np.uint8)
    found = kernels.scan(buffer, batches, *EVERY_OFFSET, True, room, room.copy(), np.empty(1, np.int32), fields)
    assert found[:2] == (0, kernels.BAD_BOUNDS)


def test_more_records_than_there_is_room_for_are_refused() -> None:
    batch = bytes(build_batch(SAMPLES[1]))
    payload = np.frombuffer(batch[HEADER_BYTES:], np.uint8)
    header = read_header(batch)
    batches = np.array([facts_of(header, 0, len(payload))] * 2, np.int64)
    longs = np.full(header.record_count, CANARY, np.int64)
    fields = np.empty((kernels.FIELD_FACTS, header.record_count), np.int64)
    types_of_time = np.empty(header.record_count, np.int32)
    found = kernels.scan(payload, batches, *EVERY_OFFSET, True, longs, longs.copy(), types_of_time, fields)
    assert found[1:3] == (kernels.BAD_RECORD_COUNT, 1)


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (9, 2), (0, 11), (2**62, 2**62), (0, 2**63 - 1)])
def test_a_copy_from_outside_of_the_buffer_is_not_made(start: int, length: int) -> None:
    buffer, output = np.frombuffer(bytes(10), np.uint8), np.full(20, 7, np.uint8)
    starts, lengths = np.array([start], np.int64), np.array([length], np.int64)
    assert kernels.gather(buffer, starts, lengths, output) == kernels.BAD_BOUNDS
    assert (output == 7).all()


def test_a_copy_beyond_the_output_is_not_made() -> None:
    buffer, output = np.frombuffer(b"0123456789", np.uint8), np.full(8, 7, np.uint8)
    starts, lengths = np.array([0, 5, 9], np.int64), np.array([3, -1, 1], np.int64)
    assert kernels.gather(buffer, starts, lengths, output[:3]) == kernels.BAD_BOUNDS
    assert output.tobytes() == b"012" + b"\x07" * 5
    assert kernels.gather(buffer, starts, lengths, output) == 4
    assert output.tobytes() == b"0129" + b"\x07" * 4


def test_validity_is_marked_least_significant_bit_first() -> None:
    bitmap = np.full(2, 0xFF, np.uint8)
    kernels.mark_valid(np.array([0, -1, 5, -1, -1, -1, -1, -1, -1, 3], np.int64), 0, bitmap)
    assert list(bitmap) == [0b101, 0b10]


def test_kernels_work_where_no_directory_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def reject_cache(function: Any, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(function, **options)

    monkeypatch.setattr(kernels, "njit", reject_cache)
    assert kernels.kernel(lambda number: number + 1)(1) == 2

"""The record kernels, compiled and interpreted: the same source must do the same both ways."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import kernels as loader
from tidelog.kernels import records as interpreted
from tidelog.protocol.records import Record, build_batch, write_varint

NOW_MS = 1_700_000_000_000
COMPILED = loader.load_compiled()
BOTH = [pytest.param(interpreted, id="interpreted")]
BOTH += [pytest.param(COMPILED, id="compiled")] if COMPILED is not None else []
FIRST_INT64, LAST_INT64 = -(2**63), 2**63 - 1


def number(value: int) -> bytes:
    output = bytearray()
    write_varint(output, value)
    return bytes(output)


def body(
    index: int, timestamp_delta: int = 0, key: bytes = b"\1", value: bytes = b"\1", headers: bytes = b"\0"
) -> bytes:
    return b"\0" + number(timestamp_delta) + number(index) + key + value + headers


def record(content: bytes) -> bytes:
    return number(len(content)) + content


def outcome(
    kernel: ModuleType, payload: bytes, count: int, base: int = NOW_MS, budget: int = 2**40
) -> tuple[object, ...]:
    found = kernel.RecordCheck(payload, 0, count, base, FIRST_INT64, LAST_INT64, True, 10)
    while not found.advance(budget):
        pass
    sound = found.problem == interpreted.SOUND
    return (found.problem, *((found.index, found.max_timestamp, found.is_consecutive, found.listed) if sound else ()))


@pytest.mark.parametrize("kernel", BOTH)
def test_sound_records_pass(kernel: ModuleType) -> None:
    batch = bytes(build_batch([Record(i, NOW_MS + i, b"k", b"v" * i, (("h", None),) * (i % 3)) for i in range(300)]))
    found = kernel.RecordCheck(batch, 61, 300, NOW_MS, NOW_MS, NOW_MS + 299, True, 10)
    assert found.advance(10_000)
    assert (found.problem, found.index, found.max_timestamp) == (interpreted.SOUND, 300, NOW_MS + 299)
    assert found.confirms(found.max_timestamp)


@pytest.mark.parametrize("kernel", BOTH)
@pytest.mark.parametrize(
    ("payload", "count", "problem"),
    [
        (b"", 1, interpreted.PAST_THE_END),
        (record(body(0)) + b"\0", 1, interpreted.BYTES_LEFT),
        (record(body(0))[:-1], 1, interpreted.PAST_THE_END),
        (b"\xff" * 12, 1, interpreted.ENDLESS_LENGTH),
        (number(-1) + body(0), 1, interpreted.BAD_LENGTH),
        (number(5) + body(0), 1, interpreted.BAD_LENGTH),
        (record(body(0) + b"\0"), 1, interpreted.BAD_LENGTH),
        (record(body(0, key=number(100))), 1, interpreted.BAD_FIELD),
        (record(body(0, value=number(3) + b"v")), 1, interpreted.BAD_FIELD),
        (record(body(0, headers=number(-1))), 1, interpreted.BAD_HEADER_COUNT),
        (record(body(0, headers=number(9))), 1, interpreted.BAD_HEADER_COUNT),
        (record(body(0, headers=number(1) + number(-1) + number(0))), 1, interpreted.NAMELESS_HEADER),
        (record(body(0, headers=number(1) + number(0) + number(7))), 1, interpreted.BAD_FIELD),
        (record(body(0, key=b"\xff\xff\xff\xff\xff\x01")), 1, interpreted.BAD_NUMBER),
        (record(b"\0" + b"\xff" * 9 + b"\x02" + b"\0\1\1\0"), 1, interpreted.BAD_NUMBER),
    ],
)
def test_malformed_records_are_found_out(kernel: ModuleType, payload: bytes, count: int, problem: int) -> None:
    assert outcome(kernel, payload, count)[0] == problem
    assert outcome(kernel, payload, count, budget=1)[0] == problem
    assert problem in interpreted.PROBLEMS


@pytest.mark.parametrize("kernel", BOTH)
def test_a_check_stops_where_its_budget_ends_and_goes_on_there(kernel: ModuleType) -> None:
    headers = number(4) + (number(1) + b"h" + number(-1)) * 4
    payload = record(body(0)) + record(body(1, headers=headers)) + record(body(2))
    found = kernel.RecordCheck(payload, 0, 3, NOW_MS, FIRST_INT64, LAST_INT64, False, 10)
    slices = [found.advance(2) for _ in range(4)]
    assert slices == [False, False, False, True]
    assert found.confirms(found.max_timestamp)


def outcome_in_pieces(kernel: ModuleType, payload: bytes, count: int, room: int) -> tuple[object, ...]:
    found = kernel.RecordCheck(payload[:room], 0, count, NOW_MS, FIRST_INT64, LAST_INT64, True, 10)
    found.is_last_piece = room >= len(payload)
    start = 0
    while not found.advance(2):
        if found.needs_more:
            start, size = start + found.position, room if found.position else 4 * len(found.data)
            found.feed(payload[start : start + size], start + size >= len(payload))
    sound = found.problem == interpreted.SOUND
    return (found.problem, *((found.index, found.max_timestamp, found.is_consecutive, found.listed) if sound else ()))


@pytest.mark.parametrize("kernel", BOTH)
@pytest.mark.parametrize("room", [1, 7, 20, 64])
def test_records_are_checked_in_pieces_as_they_are_whole(kernel: ModuleType, room: int) -> None:
    written = [Record(i, NOW_MS + i, b"k", b"v" * (i * 9 % 50), (("h", None),) * (i % 4)) for i in range(30)]
    payload = bytes(build_batch(written))[61:]
    assert outcome_in_pieces(kernel, payload, 30, room) == outcome(kernel, payload, 30)
    for wrong in (payload[:-1], payload + b"\0", payload[:-20], payload + payload):
        assert outcome_in_pieces(kernel, wrong, 30, room)[0] == outcome(kernel, wrong, 30)[0] != interpreted.SOUND


@pytest.mark.parametrize("kernel", BOTH)
@pytest.mark.parametrize(
    ("base", "delta", "is_rejected"),
    [
        (NOW_MS, 1000, False),
        (NOW_MS, 1001, True),
        (NOW_MS, -1001, True),
        (-1, 0, False),
        (LAST_INT64, 1, True),
        (FIRST_INT64, -1, True),
        (LAST_INT64, LAST_INT64, True),
        (FIRST_INT64, FIRST_INT64, True),
        (NOW_MS, FIRST_INT64, True),
        (0, NOW_MS, False),
    ],
)
def test_timestamps_are_compared_without_overflow(kernel: ModuleType, base: int, delta: int, is_rejected: bool) -> None:
    found = kernel.RecordCheck(record(body(0, delta)), 0, 1, base, NOW_MS - 1000, NOW_MS + 1000, False, 10)
    assert found.advance(10)
    assert found.listed == ([interpreted.BAD_TIMESTAMP] if is_rejected else [])


@pytest.mark.parametrize("kernel", BOTH)
def test_records_without_keys_are_counted_and_the_first_listed(kernel: ModuleType) -> None:
    payload = b"".join(record(body(i)) for i in range(20))
    found = kernel.RecordCheck(payload, 0, 20, NOW_MS, FIRST_INT64, LAST_INT64, True, 3)
    assert found.advance(100)
    assert (found.keyless, found.mistimed, found.listed) == (20, 0, [0, 2, 4])


@pytest.mark.parametrize("kernel", BOTH)
def test_records_are_read_in_slices(kernel: ModuleType) -> None:
    written = [Record(i, NOW_MS + i, b"k%d" % i, None if i % 2 else b"v", (("h", b"x"),) * (i % 2)) for i in range(10)]
    payload = bytes(build_batch(written))[61:]
    end, *first = kernel.decoded_columns(payload, 0, 4, 0, 9, NOW_MS)
    end, *rest = kernel.decoded_columns(payload, end, 6, 0, 9, NOW_MS)
    assert end == len(payload)
    assert [*zip(*first[:4], strict=True), *zip(*rest[:4], strict=True)] == [each[:4] for each in written]
    assert first[4] == [None, [(b"h", b"x")]] * 2
    assert kernel.decoded_columns(payload, 0, 1, 2**40, 9, NOW_MS)[1:] == ([2**40], [NOW_MS], [b"k0"], [b"v"], None)
    assert [each[5] for each in kernel.raw_slice(payload, 0, 10)] == [each.key for each in written]
    with pytest.raises(ValueError, match="byte 0"):
        kernel.raw_slice(payload[:3], 0, 1)


FIELD = st.none() | st.binary(max_size=90)


@pytest.mark.parametrize("kernel", BOTH)
@given(fields=st.lists(st.tuples(st.integers(0, 500), FIELD, FIELD), min_size=1, max_size=5))
def test_encoded_records_are_decoded_again(kernel: ModuleType, fields: list[tuple[int, bytes, bytes]]) -> None:
    records = [(7 + index, NOW_MS + delta, key, value, ()) for index, (delta, key, value) in enumerate(fields)]
    payload = b"".join(kernel.plain_parts(records, 7, NOW_MS, [number(value) for value in range(600)]))
    end, *columns, headers = kernel.decoded_columns(payload, 0, len(records), 7, len(records) - 1, NOW_MS)
    assert (end, headers) == (len(payload), None)
    assert [(*row, ()) for row in zip(*columns, strict=True)] == records


@pytest.mark.parametrize("kernel", BOTH)
@pytest.mark.parametrize(
    "record",
    [
        (0, NOW_MS, None, b"", (("h", None),)),
        (-1, NOW_MS, None, b"", ()),
        (0, NOW_MS - 1, None, b"", ()),
        (0, FIRST_INT64, None, b"", ()),
        (0, LAST_INT64, None, b"", ()),
        (100, NOW_MS, None, b"", ()),
        (0, NOW_MS + 100, None, b"", ()),
        (0, NOW_MS, b"k" * 100, b"", ()),
        (0, NOW_MS, None, b"v" * 95, ()),
    ],
)
def test_records_that_are_not_plain_are_left_to_the_caller(kernel: ModuleType, record: tuple[Any, ...]) -> None:
    varints = [number(value) for value in range(100)]
    plain = (0, NOW_MS, None, b"v" * 90, ())
    assert kernel.plain_parts([plain], 0, NOW_MS, varints) is not None
    assert kernel.plain_parts([plain, record], 0, NOW_MS, varints) is None


@pytest.mark.parametrize("kernel", BOTH)
@pytest.mark.parametrize(
    ("offset_delta", "base_offset", "last_offset_delta"), [(6, 0, 5), (-1, 0, 5), (0, LAST_INT64 - 4, 5), (0, 0, -1)]
)
def test_offsets_outside_of_the_batch_are_refused(
    kernel: ModuleType, offset_delta: int, base_offset: int, last_offset_delta: int
) -> None:
    payload = record(body(offset_delta))
    with pytest.raises(ValueError, match="offset"):
        kernel.decoded_columns(payload, 0, 1, base_offset, last_offset_delta, NOW_MS)


@pytest.mark.parametrize("kernel", BOTH)
def test_the_first_late_record_is_found_in_slices(kernel: ModuleType) -> None:
    times = [5, -3, 700, 2**40, 6, 2**40]
    payload = b"".join(record(body(i, time, key=b"\4kk")) for i, time in enumerate(times))
    end, *nothing = kernel.find_timestamp(payload, 0, 2, 6, 0)
    assert nothing == [0, -1]
    assert kernel.find_timestamp(payload, end, 4, 6, 0)[1:] == (700, 2)
    assert kernel.find_timestamp(payload, 0, 6, 701, 0)[1:] == (2**40, 3)
    assert kernel.find_timestamp(payload, 0, 6, 701, 4)[1:] == (2**40, 5)
    assert kernel.find_timestamp(payload, 0, 6, FIRST_INT64, 0)[1:] == (5, 0)
    assert kernel.find_timestamp(payload, 0, 6, LAST_INT64, 0) == (len(payload), 0, -1)
    for broken in (payload[:-1], payload + b"\xff" * 6, payload + b"\x02" * 3, payload + number(2**31) + b"\0" * 9):
        with pytest.raises(ValueError, match="the record at byte"):
            kernel.find_timestamp(broken, 0, 7, LAST_INT64, 0)


PLAIN = b"".join(
    record(body(i, time, key=key, value=number(size) + bytes(size)))
    for i, (time, key, size) in enumerate([(0, b"\1", 3), (70, b"\4kk", 100), (70, b"\0", 0), (9, b"\1", 63)] * 20)
)


@pytest.mark.parametrize("kernel", BOTH)
def test_plain_records_are_skipped_up_to_the_first_other_one(kernel: ModuleType) -> None:
    assert kernel.plain_records(PLAIN, 0, 0, 80, False) == (len(PLAIN), 80, 70)
    assert kernel.plain_records(b"head" + PLAIN, 4, 0, 1, False)[1:] == (1, 0)
    assert kernel.plain_records(PLAIN, 0, 0, 80, True) == (0, 0, -1)
    assert kernel.is_plain(PLAIN, 0, 80, 70, False)
    for others in ((PLAIN, 81, 70), (PLAIN, 79, 70), (PLAIN, 80, 71), (PLAIN + b"\0", 80, 70), (PLAIN[:-1], 80, 70)):
        assert not kernel.is_plain(others[0], 0, *others[1:], False)


@pytest.mark.parametrize("kernel", BOTH)
@pytest.mark.parametrize(
    "other",
    [
        body(79),
        body(80, -1),
        body(80, interpreted.PLAIN_MAX_DELTA + 1),
        body(80, key=number(-2)),
        body(80, key=number(60)),
        body(80, value=number(-2)),
        body(80, value=number(60)),
        body(80, value=number(8192) + bytes(8192)),
        body(80, headers=number(1) + number(0) + number(0)),
        body(80) + b"\0",
        body(80)[:-1],
    ],
)
def test_a_record_that_is_not_plain_is_not_skipped(kernel: ModuleType, other: bytes) -> None:
    payload = PLAIN + record(other) + record(body(81))
    assert kernel.plain_records(payload, 0, 0, 82, False) == (len(PLAIN), 80, 70)


@pytest.mark.parametrize("kernel", BOTH)
@given(st.data())
def test_skipping_plain_records_changes_no_verdict(kernel: ModuleType, data: st.DataObject) -> None:
    payload = bytearray(PLAIN)
    for _ in range(data.draw(st.integers(0, 2))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    verdicts = []
    for latest in (LAST_INT64, NOW_MS + interpreted.PLAIN_MAX_DELTA - 1):  # under the second limit none is skipped
        found = kernel.RecordCheck(bytes(payload), 0, 80, NOW_MS, FIRST_INT64, latest, False, 10)
        assert found.advance(1000)
        verdicts.append((found.problem, found.index, found.is_consecutive, found.max_timestamp))
    assert verdicts[0] == verdicts[1]
    problem, _, is_consecutive, max_timestamp = verdicts[0]
    if kernel.is_plain(bytes(payload), 0, 80, max_timestamp - NOW_MS, False):
        assert (problem, is_consecutive) == (interpreted.SOUND, True)


@pytest.mark.skipif(COMPILED is None, reason="no compiled kernels here")
@given(st.binary(max_size=120), st.integers(0, 5), st.integers(1, 9), st.integers(FIRST_INT64, LAST_INT64))
def test_both_say_the_same_of_anything(payload: bytes, count: int, budget: int, base: int) -> None:
    assert COMPILED is not None
    assert outcome(COMPILED, payload, count, base, budget) == outcome(interpreted, payload, count, base, 2**40)
    assert read_by(COMPILED, payload, count, base) == read_by(interpreted, payload, count, base)


@pytest.mark.skipif(COMPILED is None, reason="no compiled kernels here")
@given(st.data())
def test_both_say_the_same_of_records_that_were_changed(data: st.DataObject) -> None:
    assert COMPILED is not None
    written = [Record(i, NOW_MS + i * 100, b"key", b"value", (("h", b"x"),)) for i in range(5)]
    payload = bytearray(build_batch(written))[61:]
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(payload)
    assert outcome(COMPILED, changed, 5) == outcome(interpreted, changed, 5)
    assert outcome(COMPILED, changed, 5, budget=1) == outcome(interpreted, changed, 5)
    assert read_by(COMPILED, changed, 5, NOW_MS) == read_by(interpreted, changed, 5, NOW_MS)


def read_by(kernel: ModuleType, payload: bytes, count: int, base: int) -> object:
    try:
        return kernel.decoded_columns(payload, 0, count, base, 5, base)
    except ValueError as error:
        return str(error)


@given(st.integers(FIRST_INT64, LAST_INT64))
def test_numbers_of_64_bits_are_read(value: int) -> None:
    for kernel in filter(None, (interpreted, COMPILED)):
        written = number(value)
        assert kernel.read_int64(written, 0, kernel.int64_size(written, 0)) == value


@given(st.integers(-(2**31), 2**31 - 1))
def test_numbers_of_32_bits_are_read(value: int) -> None:
    for kernel in filter(None, (interpreted, COMPILED)):
        packed = kernel.read_int32(number(value), 0)
        assert (packed >> 4, packed & 15) == (value, len(number(value)))


def run(code: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_switch_asks_for_the_source() -> None:
    path = str(Path(loader.__file__).parent.parent.parent)
    code = "from tidelog.kernels import is_compiled; print(is_compiled)"
    assert run(code, PYTHONPATH=path, TIDELOG_KERNELS="interpreted") == "False"
    assert run(code, PYTHONPATH=path) == str(COMPILED is not None)


def test_a_library_of_another_source_is_not_loaded(tmp_path: Path) -> None:
    package = tmp_path / "tidelog" / "kernels"
    package.mkdir(parents=True)
    (tmp_path / "tidelog" / "__init__.py").touch()
    here = Path(loader.__file__).parent
    for name in ("__init__.py", "records.py"):
        (package / name).write_bytes((here / name).read_bytes())
    if (here / "_compiled").is_dir():
        (package / "_compiled").symlink_to(here / "_compiled")
    code = "from tidelog.kernels import is_compiled, kernels; print(is_compiled, kernels.MIN_BODY_BYTES)"
    assert run(code, PYTHONPATH=str(tmp_path)) == f"{COMPILED is not None} 6"
    with (package / "records.py").open("a") as source:
        source.write("\nMIN_BODY_BYTES = 7\n")
    assert run(code, PYTHONPATH=str(tmp_path)) == "False 7"

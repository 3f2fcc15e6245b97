import cProfile
import struct

from bench import wire
from bench.counted_broker import counts
from bench.counts import line, parse_system_calls
from bench.hot_paths import HOT_PATHS, HotPath, end_of_fetched

SUMMARY = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 95.88    1.015275        2146       473        57 futex
  1.29    0.013635           1      7402           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    1.058897          37      7875        57 total
"""


def test_system_calls_are_read_with_and_without_errors_and_without_their_total() -> None:
    assert parse_system_calls(SUMMARY) == {"futex": 473, "epoll_wait": 7402}


def test_calls_are_shown_per_request_or_per_megabyte() -> None:
    small = HotPath("small", "us/request", 100, 1, 1024, 1)
    assert line(small, {"python": 700, "c": 1000}, {"epoll_wait": 100, "futex": 20}).split() == (
        ["small", "7.00", "10.00", "1.20", "1.00", "per", "request"]
    )
    large = HotPath("large", "s/GB", 10, 100, 1000, 1)
    assert line(large, {"python": 700, "c": 1000}, {}).split() == [
        "large",
        "700.00",
        "1000.00",
        "0.00",
        "0.00",
        "per",
        "MB",
    ]


def test_python_and_c_functions_are_counted_apart() -> None:
    def called() -> int:
        return len("abc")

    profile = cProfile.Profile()
    profile.enable()
    for _ in range(5):
        called()
    profile.disable()
    found = counts(profile)
    assert found["python"] == 5
    assert found["c"] >= 5


def test_an_amount_is_scaled_to_the_unit_of_its_path() -> None:
    assert HotPath("", "us/request", 1_000, 5, 100, 1).scaled(2.0) == 2_000
    assert HotPath("", "us/record", 1_000, 5, 100, 1).scaled(2.0) == 400
    assert HotPath("", "s/GB", 1_000, 10, 100_000, 1).scaled(2.0) == 2
    assert len({path.name for path in HOT_PATHS}) == len(HOT_PATHS)


def test_a_consumer_goes_on_after_the_last_whole_batch() -> None:
    first, second = bytearray(wire.record_batch([b"a"] * 3, 0)), bytearray(wire.record_batch([b"b"] * 4, 0))
    struct.pack_into(">q", second, 0, 3)
    records = bytes(first + second)
    head = struct.pack(">iiih5si", 1, 0, 1, 5, b"topic", 1) + struct.pack(">ihqqi", 0, 0, 7, 7, -1)
    assert end_of_fetched(head + struct.pack(">i", len(records)) + records, "topic") == 7
    assert end_of_fetched(head + struct.pack(">i", len(records) - 1) + records[:-1], "topic") == 3

"""Counting keys in bounded memory: nothing that is frequent gets lost, whatever is merged with what."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tidelog.audit.hot_keys import KeyCounts, merged

KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f", b"g"]), max_size=60)


def counted(keys: list[bytes], capacity: int) -> KeyCounts:
    found = KeyCounts(capacity)
    for start in range(0, len(keys), 7):
        found.add(Counter(keys[start : start + 7]))
    return found


@given(st.lists(KEYS, min_size=1, max_size=5), st.integers(1, 4))
def test_counts_are_too_low_by_at_most_the_error(parts: list[list[bytes]], capacity: int) -> None:
    whole = KeyCounts(capacity)
    for part in parts:
        whole.merge(counted(part, capacity))
    exact = Counter(key for part in parts for key in part)
    assert len(whole.counts) <= capacity
    assert whole.error <= exact.total() / (capacity + 1)
    for key, count in exact.items():
        assert whole.counts.get(key, 0) <= count <= whole.counts.get(key, 0) + whole.error


def test_hottest_keys_come_first() -> None:
    found = merged([counted([b"a"] * 3 + [b"b"], 10), counted([b"b"] * 5 + [b"c"] * 4, 10)])
    assert found.top(2) == [(b"b", 6), (b"c", 4)]


def test_other_numbers_add_up() -> None:
    found = merged([KeyCounts(record_count=3, null_count=1, payload_bytes=7)] * 2)
    assert (found.record_count, found.null_count, found.payload_bytes) == (6, 2, 14)

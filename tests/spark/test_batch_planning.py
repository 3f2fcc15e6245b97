"""Planning of micro-batches, their ends and ranges: rules for all inputs, and examples."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.offset_json import Offsets
from tidelog.spark.source.batch_planning import Limits, OffsetRange, divide, end_offsets, ranges_between, split
from tidelog.types import TopicPartition

A, B, C = (TopicPartition("orders", partition) for partition in range(3))
ID = bytes(range(16))

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["orders", "payments"]), st.integers(0, 5))
OFFSETS = st.integers(0, 2**62)
SIZES = st.one_of(st.integers(0, 20), st.integers(0, 2**40))


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[Offsets, Offsets]:
    """Where a stream stands, and where the logs end: sometimes before that, sometimes unknown."""
    start = draw(st.dictionaries(PARTITIONS, OFFSETS, max_size=8))
    ahead = {key: begin + draw(st.one_of(SIZES, st.integers(-5, 0))) for key, begin in start.items()}
    gone = draw(st.sets(st.sampled_from(sorted(start)))) if start else set()
    return start, {key: end for key, end in ahead.items() if key not in gone}


def backlog_of(start: Offsets, available: Offsets) -> Offsets:
    return {key: available[key] - start[key] for key in start if available.get(key, 0) > start[key]}


@given(backlogs(), st.none() | st.integers(1, 2**41))
def test_a_batch_never_goes_backwards_nor_beyond_what_is_there(
    found: tuple[Offsets, Offsets], limit: int | None
) -> None:
    start, available = found
    ends = end_offsets(start, available, Limits(max_offsets=limit), math.inf)
    assert ends.keys() == start.keys()
    assert all(begin <= ends[key] <= max(begin, available.get(key, begin)) for key, begin in start.items())


@given(backlogs(), st.integers(1, 2**41))
def test_a_batch_takes_the_limit_or_everything_and_more_only_to_give_each_partition_one(
    found: tuple[Offsets, Offsets], limit: int
) -> None:
    start, available = found
    backlog = backlog_of(start, available)
    ends = end_offsets(start, available, Limits(max_offsets=limit), math.inf)
    taken = sum(ends[key] - start[key] for key in start)
    assert taken == min(sum(backlog.values()), max(limit, len(backlog)))


@given(st.dictionaries(PARTITIONS, SIZES.filter(bool), min_size=1), st.integers(1, 2**41))
def test_no_partition_is_starved_and_shares_follow_the_sizes(sizes: dict[TopicPartition, int], limit: int) -> None:
    shares = divide(sizes, limit)
    assert all(1 <= shares[key] <= size for key, size in sizes.items())
    by_size = sorted(sizes, key=lambda key: sizes[key])
    assert all(shares[small] <= shares[large] + 1 for small, large in pairwise(by_size))


@given(backlogs(), st.integers(1, 50))
def test_batch_after_batch_everything_is_read(found: tuple[Offsets, Offsets], batches: int) -> None:
    start, available = found
    total = sum(backlog_of(start, available).values())
    limit = max(1, -(-total // batches))
    place = start
    for _ in range(batches):
        place = end_offsets(place, available, Limits(max_offsets=limit), math.inf)
    assert place == {key: max(begin, available.get(key, begin)) for key, begin in start.items()}


def test_each_gets_one_and_of_the_rest_in_proportion_and_what_rounding_leaves_goes_to_the_largest_remainders() -> None:
    assert divide({A: 601, B: 301, C: 101}, 103) == {A: 61, B: 31, C: 11}
    assert divide({A: 601, B: 301, C: 101}, 104) == {A: 62, B: 31, C: 11}
    assert divide({A: 1, B: 1_000_000}, 10) == {A: 1, B: 9}
    assert divide({A: 5, B: 5, C: 5}, 2) == {A: 1, B: 1, C: 1}
    assert sum(divide({A: 333, B: 333, C: 333}, 100).values()) == 100


def test_without_limits_a_batch_takes_everything() -> None:
    assert end_offsets({A: 3, B: 9}, {A: 10, B: 9}, Limits(), 0.0) == {A: 10, B: 9}


def test_too_little_waits_until_there_is_enough_or_the_delay_is_over() -> None:
    limits = Limits(min_offsets=10, max_trigger_delay_s=60.0)
    assert end_offsets({A: 0, B: 0}, {A: 4, B: 5}, limits, 59.9) == {A: 0, B: 0}
    assert end_offsets({A: 0, B: 0}, {A: 5, B: 5}, limits, 0.0) == {A: 5, B: 5}
    assert end_offsets({A: 0, B: 0}, {A: 4, B: 5}, limits, 60.0) == {A: 4, B: 5}
    assert end_offsets({A: 0, B: 0}, {A: 4, B: 5}, limits, math.inf) == {A: 4, B: 5}


def test_enough_for_the_minimum_is_still_cut_at_the_maximum() -> None:
    limits = Limits(min_offsets=10, max_offsets=12)
    assert end_offsets({A: 0}, {A: 100}, limits, 0.0) == {A: 12}


def test_bytes_are_counted_by_how_large_records_are() -> None:
    limits = Limits(max_bytes=100_000)
    assert end_offsets({A: 0}, {A: 1_000_000}, limits, 0.0, {A: 100.0}) == {A: 1000}
    mixed = end_offsets({A: 0, B: 0}, {A: 10_000, B: 10_000}, limits, 0.0, {A: 10.0, B: 190.0})
    assert mixed == {A: 500, B: 500}
    assert end_offsets({A: 0}, {A: 10}, limits, 0.0, {A: 5e9}) == {A: 1}, "a record larger than the limit is read alone"


def test_the_smaller_of_both_limits_counts() -> None:
    sizes = {A: 100.0}
    assert end_offsets({A: 0}, {A: 10_000}, Limits(max_bytes=10_000, max_offsets=50), 0.0, sizes) == {A: 50}
    assert end_offsets({A: 0}, {A: 10_000}, Limits(max_bytes=10_000, max_offsets=5000), 0.0, sizes) == {A: 100}


def test_without_an_idea_of_the_size_the_limit_of_bytes_limits_nothing() -> None:
    assert end_offsets({A: 0}, {A: 7}, Limits(max_bytes=1), 0.0) == {A: 7}


@st.composite
def ranges(draw: st.DrawFn) -> list[OffsetRange]:
    starts = draw(st.dictionaries(PARTITIONS, OFFSETS, max_size=6))
    return [OffsetRange(*key, start, start + draw(st.integers(0, 5000)), ID) for key, start in starts.items()]


@given(ranges(), st.none() | st.integers(1, 40), st.none() | st.integers(100, 10_000))
def test_pieces_cover_their_ranges_exactly_and_do_not_overlap(
    whole: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    pieces = split(whole, min_partitions, max_records)
    for found in whole:
        mine = [piece for piece in pieces if piece.topic_partition == found.topic_partition]
        bounds = [found.start, *(piece.end for piece in mine)]
        assert [piece.start for piece in mine] == bounds[:-1]
        assert bounds[-1] == found.end
    assert all(piece.size > 0 and piece.topic_id == ID for piece in pieces)


@given(ranges(), st.none() | st.integers(1, 40), st.none() | st.integers(100, 10_000))
def test_pieces_are_as_many_as_wanted_and_none_is_too_large(
    whole: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    pieces = split(whole, min_partitions, max_records)
    needed = sum(-(-found.size // max_records) if max_records else found.size > 0 for found in whole)
    total = sum(found.size for found in whole)
    assert len(pieces) == max(needed, min(min_partitions or 0, total))
    assert max_records is None or all(piece.size <= max_records for piece in pieces)


def test_the_largest_ranges_are_cut_first() -> None:
    pieces = split([OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)], min_partitions=4)
    assert [(piece.partition, piece.start, piece.end) for piece in pieces] == [
        (0, 0, 300),
        (0, 300, 600),
        (0, 600, 900),
        (1, 0, 100),
    ]


def test_ranges_lie_between_two_positions_where_there_is_something() -> None:
    found = ranges_between({A: 3, B: 5, C: 9}, {A: 10, B: 5, C: 4}, {"orders": ID})
    assert found == [OffsetRange("orders", 0, 3, 10, ID)]
    assert ranges_between({A: 0}, {A: 1, B: 4}, {}) == [OffsetRange("orders", 0, 0, 1, None)]

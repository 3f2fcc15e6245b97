"""Assignors: all partitions are assigned, evenly, and as few as possible move."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.groups.consumer.assignors import Subscriber, assign_ranges, assign_uniform
from tidelog.groups.consumer.members import Assignment

A, B, C = b"A" * 16, b"B" * 16, b"C" * 16
NOTHING: Assignment = {}


def member(name: str, *topics: bytes, current: Assignment = NOTHING, instance_id: str | None = None) -> Subscriber:
    return Subscriber(name, instance_id, frozenset(topics), current)


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def partitions(assignment: Assignment) -> set[tuple[bytes, int]]:
    return {(topic, index) for topic, indexes in assignment.items() for index in indexes}


def test_ranges_meet_at_the_same_member() -> None:
    targets = assign_ranges([member("m2", A, B), member("m1", A, B)], {A: 3, B: 3})
    assert targets == {
        "m1": {A: frozenset({0, 1}), B: frozenset({0, 1})},
        "m2": {A: frozenset({2}), B: frozenset({2})},
    }


def test_ranges_leave_members_without_a_share_alone() -> None:
    targets = assign_ranges([member("m1", A), member("m2", A), member("m3", B), member("m4")], {A: 1, B: 2})
    assert targets == {"m1": {A: frozenset({0})}, "m2": {}, "m3": {B: frozenset({0, 1})}, "m4": {}}


def test_static_members_keep_their_ranges_under_new_ids() -> None:
    before = assign_ranges([member("z", A, instance_id="i1"), member("y", A, instance_id="i2")], {A: 4})
    after = assign_ranges([member("b", A, instance_id="i1"), member("a", A, instance_id="i2")], {A: 4})
    assert (before["z"], before["y"]) == (after["b"], after["a"])


def test_topics_are_spread_over_members() -> None:
    targets = assign_uniform([member("m1", A, B), member("m2", A, B)], {A: 2, B: 2})
    assert all(len(target) == 2 for target in targets.values())


def test_members_with_other_wishes_get_what_only_they_want() -> None:
    targets = assign_uniform([member("m1", A, B), member("m2", A)], {A: 2, B: 3})
    assert targets == {"m1": {B: frozenset({0, 1, 2})}, "m2": {A: frozenset({0, 1})}}


def test_nobody_wants_anything() -> None:
    assert assign_uniform([], {}) == {}
    assert assign_uniform([member("m1")], {}) == {"m1": {}}
    assert assign_ranges([], {}) == {}


counts = st.fixed_dictionaries({A: st.integers(0, 12), B: st.integers(0, 12), C: st.integers(0, 12)})
wishes = st.frozensets(st.sampled_from([A, B, C]))


@given(counts=counts, wishes=st.lists(wishes, min_size=1, max_size=6), data=st.data())
def test_all_partitions_are_given_once_to_who_wants_them(
    counts: dict[bytes, int], wishes: list[frozenset[bytes]], data: st.DataObject
) -> None:
    for assign in (assign_uniform, assign_ranges):
        subscribers = [Subscriber(f"m{number}", None, wish, {}) for number, wish in enumerate(wishes)]
        targets = assign(subscribers, counts)
        changed = data.draw(st.permutations(wishes))
        subscribers = [Subscriber(f"m{n}", None, wish, targets.get(f"m{n}", {})) for n, wish in enumerate(changed)]
        targets = assign(subscribers, counts)
        given = [partition for target in targets.values() for partition in partitions(target)]
        wanted = frozenset().union(*wishes)
        assert sorted(given) == sorted((topic, index) for topic in wanted for index in range(counts[topic]))
        assert all(targets[one.member_id].keys() <= one.topics for one in subscribers)


@given(counts=counts, before=st.integers(0, 6), after=st.integers(1, 6))
def test_equal_members_get_equal_shares_and_no_more_moves_than_that_needs(
    counts: dict[bytes, int], before: int, after: int
) -> None:
    first = assign_uniform([member(f"m{n}", A, B, C) for n in range(before)], counts)
    second = assign_uniform([member(f"m{n}", A, B, C, current=first.get(f"m{n}", {})) for n in range(after)], counts)
    sizes = sorted(map(size, second.values()))
    assert sizes[-1] - sizes[0] <= 1
    kept = sum(len(partitions(first[name]) & partitions(second[name])) for name in first.keys() & second.keys())
    total, staying = sum(counts.values()), min(before, after)
    if before and total:
        held = sorted((size(first[f"m{n}"]) for n in range(staying)), reverse=True)
        quota, extra = divmod(total, after)
        most = [quota + (n < extra) for n in range(after)]
        assert kept == sum(min(have, may) for have, may in zip(held, most, strict=False))


@given(counts=counts, wishes=st.lists(wishes, min_size=2, max_size=6))
def test_no_single_move_would_make_shares_more_even(counts: dict[bytes, int], wishes: list[frozenset[bytes]]) -> None:
    subscribers = [Subscriber(f"m{number}", None, wish, {}) for number, wish in enumerate(wishes)]
    targets = assign_uniform(subscribers, counts)
    for one in subscribers:
        for other in subscribers:
            could_move = any(topic in other.topics for topic in targets[one.member_id])
            assert not could_move or size(targets[one.member_id]) - size(targets[other.member_id]) < 2


@settings(max_examples=30)
@given(counts=counts, wishes=st.lists(wishes, min_size=2, max_size=6))
def test_what_is_even_stays_as_it_is(counts: dict[bytes, int], wishes: list[frozenset[bytes]]) -> None:
    subscribers = [Subscriber(f"m{number}", None, wish, {}) for number, wish in enumerate(wishes)]
    for assign in (assign_uniform, assign_ranges):
        targets = assign(subscribers, counts)
        again = assign([one._replace(current=targets[one.member_id]) for one in subscribers], counts)
        assert again == targets


def test_a_thousand_members_with_a_thousand_partitions_are_assigned_quickly() -> None:
    topics = [number.to_bytes(16, "big") for number in range(100)]
    everything, half = frozenset(topics), frozenset(topics[:50])
    counts = dict.fromkeys(topics, 10)
    same = [Subscriber(f"m{n:04}", None, everything, {}) for n in range(1_000)]
    mixed = [Subscriber(f"m{n:04}", None, everything if n % 2 else half, {}) for n in range(1_000)]
    for subscribers in (same, mixed):
        started = time.process_time()
        targets = assign_uniform(subscribers, counts)
        assign_uniform([one._replace(current=targets[one.member_id]) for one in subscribers[1:]], counts)
        assert time.process_time() - started < 1.0
        assert {size(target) for target in targets.values()} == {1}

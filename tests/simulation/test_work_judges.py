"""The judges of single kinds of work: each catches what it is there for, and lets the rest pass."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.simulation.work.cleaning import KeyedRecords
from tidelog.simulation.work.copying import _totals_of
from tidelog.simulation.work.deleting import PARTITIONS, Generations, RecreatedTopic
from tidelog.simulation.work.ownership import Ownership, Progress
from tidelog.types import TopicPartition

PLACE = TopicPartition("queue", 0)
ONE = frozenset({PLACE})
NOTHING: frozenset[TopicPartition] = frozenset()


# ---- owners of partitions


def owned_by_a(heard_at: float = 0.0) -> Ownership:
    ownership = Ownership(session_timeout_s=3.0, rebalance_timeout_s=6.0)
    ownership.on_heartbeat("a", heard_at, ONE)
    ownership.on_owned("a", ONE, heard_at)
    return ownership


def owned_by_a_that_must_let_go_of_one() -> Ownership:
    """Of two partitions, as it learned at 1.0 s."""
    both = ONE | {TopicPartition("queue", 1)}
    ownership = Ownership(session_timeout_s=3.0, rebalance_timeout_s=6.0)
    ownership.on_heartbeat("a", 0.0, both)
    ownership.on_owned("a", both, 0.0)
    ownership.on_heartbeat("a", 1.0, ONE)
    return ownership


def test_two_owners_at_one_time_are_caught() -> None:
    ownership = owned_by_a()
    ownership.on_owned("b", ONE, now=2.9)
    assert ownership.violations == ["two-owners queue-0 belongs to b since 2.900 s, and to a until 3.000 s at least"]


def test_a_member_that_answers_keeps_its_partition_though_it_is_slow_to_let_go() -> None:
    ownership = owned_by_a()
    ownership.on_heartbeat("a", 1.0, NOTHING)
    ownership.on_heartbeat("a", 6.5, NOTHING)
    ownership.on_owned("b", ONE, now=6.9)
    assert len(ownership.violations) == 1


def test_a_partition_that_was_let_go_changes_hands() -> None:
    ownership = owned_by_a()
    ownership.on_owned("a", NOTHING, now=0.5)
    ownership.on_owned("b", ONE, now=0.5)
    assert ownership.violations == []


def test_a_member_that_was_silent_for_its_session_loses_its_partition() -> None:
    ownership = owned_by_a()
    ownership.on_owned("b", ONE, now=3.0)
    assert ownership.violations == []


def test_a_member_that_does_not_let_go_of_one_partition_loses_the_others_too() -> None:
    ownership = owned_by_a_that_must_let_go_of_one()
    ownership.on_heartbeat("a", 6.5, ONE)
    ownership.on_owned("b", ONE, now=6.9)
    assert len(ownership.violations) == 1
    ownership.on_owned("c", ONE, now=7.0)
    assert not any("c since 7.000 s, and to a" in line for line in ownership.violations)


def test_a_member_that_does_not_let_go_in_time_loses_its_partition() -> None:
    ownership = owned_by_a()
    ownership.on_heartbeat("a", 1.0, NOTHING)
    ownership.on_heartbeat("a", 6.5, NOTHING)
    ownership.on_owned("b", ONE, now=7.0)
    assert ownership.violations == []


def test_what_a_member_let_go_without_reporting_it_in_time_counts_as_kept() -> None:
    """Seed 164242: it stopped reading just before the timeout, and its heartbeat came just after."""
    ownership = owned_by_a_that_must_let_go_of_one()
    ownership.on_heartbeat("a", 6.5, ONE)
    ownership.on_owned("a", ONE, 6.99)
    ownership.on_owned("b", ONE, now=7.0)
    assert ownership.violations == []


def test_who_reports_in_time_what_it_revoked_keeps_the_rest() -> None:
    ownership = owned_by_a_that_must_let_go_of_one()
    ownership.on_owned("a", ONE, 6.0)
    ownership.on_heartbeat("a", 6.5, ONE)
    ownership.on_owned("b", ONE, now=7.0)
    assert len(ownership.violations) == 1


def test_a_dead_member_owns_nothing() -> None:
    ownership = owned_by_a()
    ownership.on_gone("a")
    ownership.on_owned("b", ONE, now=0.1)
    assert ownership.violations == []


def test_a_member_that_slept_longer_than_its_session_acts_on_an_old_answer() -> None:
    ownership = Ownership(session_timeout_s=3.0, rebalance_timeout_s=6.0)
    ownership.on_heartbeat("a", 10.9, ONE)
    ownership.on_heartbeat("b", 14.6, ONE)
    ownership.on_owned("b", ONE, now=14.7)
    ownership.on_owned("a", ONE, now=15.4, stopped_at=11.0)
    assert ownership.violations == []
    ownership.on_owned("c", ONE, now=15.5)
    assert ownership.violations == ["two-owners queue-0 belongs to c since 15.500 s, and to b until 17.600 s at least"]


def test_a_member_that_was_not_stopped_has_no_excuse() -> None:
    ownership = Ownership(session_timeout_s=3.0, rebalance_timeout_s=6.0)
    ownership.on_heartbeat("a", 10.9, ONE)
    ownership.on_heartbeat("b", 14.6, ONE)
    ownership.on_owned("b", ONE, now=14.7)
    ownership.on_owned("a", ONE, now=15.4)
    assert ownership.violations == ["two-owners queue-0 belongs to a since 15.400 s, and to b until 17.600 s at least"]


def test_a_member_that_was_stopped_for_less_than_its_session_has_no_excuse() -> None:
    ownership = owned_by_a(heard_at=10.0)
    ownership.on_heartbeat("b", 10.1, ONE)
    ownership.on_owned("b", ONE, now=12.0, stopped_at=10.5)
    assert len(ownership.violations) == 1


def test_after_a_rebalance_of_unknown_beginning_nobody_is_accused() -> None:
    ownership = Ownership(session_timeout_s=10.0, rebalance_timeout_s=2.0)
    ownership.on_heartbeat("a", 0.0, ONE)
    ownership.on_owned("a", ONE, 0.0)
    ownership.on_rebalance("a")
    ownership.on_owned("b", ONE, now=2.0)
    assert ownership.violations == []


# ---- progress of groups


def test_committed_offsets_that_go_back_are_caught() -> None:
    progress = Progress()
    progress.on_committed({PLACE: 5})
    progress.on_committed({PLACE: 5})
    assert progress.violations == []
    progress.on_committed({PLACE: 4})
    progress.on_committed({})
    assert len(progress.violations) == 2


def test_a_record_that_no_member_was_given_is_caught() -> None:
    progress = Progress()
    progress.on_processed(PLACE, 0)
    progress.on_committed({PLACE: 2})
    assert list(progress.skipped({PLACE: [0]})) == []
    assert list(progress.skipped({PLACE: [0, 1, 2]})) == [
        "group-skip queue-0@1 is committed, and no member was given it"
    ]


# ---- topics created again


def two_generations() -> Generations:
    generations = Generations()
    for value in (b"old", b"new"):
        generations.on_created()
        generations.on_sent(value)
        generations.on_acknowledged(value)
        if value == b"old":
            generations.on_deleting()
    return generations


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "lost-write"),
        ([b"new", b"old"], "resurrected"),
        ([b"new", b"new"], "duplicate"),
        ([b"new", b"?"], "phantom"),
    ],
)
def test_what_does_not_belong_to_a_topic_is_caught(found: list[bytes], message: str) -> None:
    (line,) = two_generations().judge(found)
    assert line.startswith(message)


def test_a_topic_with_its_own_records_passes() -> None:
    assert list(two_generations().judge([b"new"])) == []


def test_of_records_on_the_way_from_one_topic_to_the_next_nothing_is_said() -> None:
    generations = Generations()
    generations.on_created()
    generations.on_sent(b"late")
    generations.on_deleting()
    generations.on_acknowledged(b"late")
    generations.on_created()
    assert list(generations.judge([b"late"])) == list(generations.judge([])) == []


# ---- compacted topics


def keyed(*sent: tuple[bytes | None, int | None]) -> KeyedRecords:
    records = KeyedRecords()
    for value, offset in sent:
        number = records.on_sent(PLACE, b"k", value)
        if offset is not None:
            records.on_acknowledged(PLACE, b"k", number, offset)
    return records


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        ([(b"1", 0), (b"2", 1)], []),
        ([(b"1", 0), (b"2", 1)], [(0, b"1")]),
        ([(b"1", 0), (b"2", 1)], [(1, b"1")]),
        ([(b"1", 0)], [(1, b"?")]),
        ([(b"1", 0), (None, 1)], [(0, b"1")]),
    ],
)
def test_what_compaction_must_not_do_is_caught(
    sent: list[tuple[bytes | None, int | None]], left: list[tuple[int, bytes]]
) -> None:
    found = [(offset, b"k", value) for offset, value in left]
    assert len(list(keyed(*sent).judge({PLACE: found}))) == 1


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        ([(b"1", 0), (b"2", 1)], [(1, b"2")]),
        ([(b"1", 0), (b"2", 1)], [(0, b"1"), (1, b"2")]),
        ([(b"1", 0), (None, 1)], []),
        ([(b"1", 0), (None, 1)], [(1, None)]),
        ([(b"1", 0), (b"2", None)], [(1, b"2")]),
        ([(b"1", 0), (None, None)], []),
        ([(b"1", None)], []),
    ],
)
def test_what_compaction_may_leave_passes(
    sent: list[tuple[bytes | None, int | None]], left: list[tuple[int, bytes | None]]
) -> None:
    found = [(offset, b"k", value) for offset, value in left]
    assert list(keyed(*sent).judge({PLACE: found})) == []


# ---- totals of copies


def test_copies_that_do_not_add_up_are_caught() -> None:
    assert list(_totals_of(0, 3, [b"0 2 2", b"1 7 7", b"0 1 3"])) == []
    assert list(_totals_of(0, 3, [b"0 2 2"])) == ["T2 2 records of partition 0 are counted of 3"]
    assert len(list(_totals_of(0, 3, [b"0 2 2", b"0 1 4"]))) == 1


def test_a_deleted_topic_that_a_takeover_brings_back_is_deleted_again() -> None:
    """One of its brokers was away when it was deleted, and kept its log (seed 1904306)."""
    deleted: list[str] = []

    async def create_topic(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(topic_id=b"old", partitions=[0])

    async def describe_topic(_: object) -> SimpleNamespace:
        return SimpleNamespace(topic_id=b"new" if deleted else b"old", partitions=range(PARTITIONS))

    async def delete_topic(name: str) -> None:
        deleted.append(name)

    work: Any = object.__new__(RecreatedTopic)
    work._admin = SimpleNamespace(create_topic=create_topic, describe_topic=describe_topic, delete_topic=delete_topic)
    work._topic_id = b"old"
    work.context = SimpleNamespace(cluster=SimpleNamespace(machines={}))
    work.log_event = str
    asyncio.run(work._create())
    assert (deleted, work._topic_id) == (["seasonal"], b"new")

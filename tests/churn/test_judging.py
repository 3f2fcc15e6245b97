"""The judges of churn notice what they are meant to notice."""

from typing import Any

import pytest

from tests.churn.journal import Entry, Journal, Kind, Ledger, read_journal
from tests.churn.judging import Life, Tenure, double_owners, passed_over, steps_backwards, tenures_of


def entry(at_s: float, kind: Kind, **details: Any) -> Entry:
    return Entry(at_s, kind, details)


def assigned(at_s: float, *partitions: int, generation: int | None = None) -> Entry:
    return entry(at_s, Kind.ASSIGNED, partitions=list(partitions), generation=generation)


def revoked(at_s: float, *partitions: int) -> Entry:
    return entry(at_s, Kind.REVOKED, partitions=list(partitions))


def lost(at_s: float, *partitions: int) -> Entry:
    return entry(at_s, Kind.LOST, partitions=list(partitions))


def processed(at_s: float, partition: int, first: int, last: int) -> Entry:
    return entry(at_s, Kind.PROCESSED, partition=partition, first=first, last=last)


def committing(at_s: float, partition: int, offset: int) -> Entry:
    return entry(at_s, Kind.COMMITTING, offsets={str(partition): offset})


def committed(at_s: float, partition: int, offset: int) -> Entry:
    return entry(at_s, Kind.COMMITTED, offsets={str(partition): offset})


def test_partitions_that_change_hands_have_one_owner_at_a_time() -> None:
    a = Life("a", [assigned(1, 0, 1, generation=1), revoked(2, 0, 1), assigned(3, 0, generation=2)])
    b = Life("b", [assigned(3, 1, generation=2)])
    assert double_owners([a, b]) == []


def test_two_owners_at_one_time_are_noticed() -> None:
    a = Life("a", [assigned(1, 0), committing(2.5, 0, 5), committed(2.6, 0, 5), revoked(3, 0)])
    b = Life("b", [assigned(2, 0)])
    assert len(double_owners([a, b])) == 1


def test_two_owners_at_one_time_are_noticed_across_a_short_tenure_between_them() -> None:
    a = Life("a", [assigned(1, 0), committing(8, 0, 5), committed(8.1, 0, 5), revoked(9, 0)])
    a_again = Life("a", [assigned(2, 0), revoked(3, 0)])
    b = Life("b", [assigned(4, 0)])
    assert len(double_owners([a, a_again, b])) == 1


def test_two_owners_in_one_generation_are_noticed_whenever_they_were() -> None:
    a = Life("a", [assigned(1, 0, generation=7)])
    b = Life("b", [assigned(20, 0, generation=7)])
    assert len(double_owners([a, b])) == 1


def test_a_static_member_may_come_back_in_the_same_generation() -> None:
    first = Life("a", [assigned(1, 0, generation=7)])
    second = Life("a", [assigned(20, 0, generation=7)])
    assert double_owners([first, second]) == []


REJECTED = entry(8, Kind.REJECTED, offsets={"0": 9}, reason="UNKNOWN_MEMBER_ID")


@pytest.mark.parametrize(
    "later",
    [
        [lost(9, 0)],
        [revoked(9, 0)],
        [],
        [committing(5, 0, 9), REJECTED, revoked(9, 0)],
        [assigned(8, 1), lost(9, 0, 1)],
        [assigned(8, 0), revoked(9, 0)],
    ],
    ids=["forgotten", "starved", "killed", "refused", "assignment that waited", "assigned again"],
)
def test_a_member_without_proof_of_membership_may_be_succeeded(later: list[Entry]) -> None:
    """Whatever a member notes when it runs again, by its last accepted commit it was known, and no later."""
    life = Life("a", [assigned(1, 0), committing(2, 0, 5), committed(2.1, 0, 5), *later])
    assert tenures_of(life)[0] == Tenure(0, "a", None, 1, 2)
    assert double_owners([life, Life("b", [assigned(3, 0)])]) == []
    assert len(double_owners([life, Life("b", [assigned(1.5, 0)])])) == 1


def test_a_member_whose_commit_was_accepted_was_not_succeeded_before() -> None:
    a = Life("a", [assigned(1, 0), committing(4, 0, 5), committed(4.1, 0, 5), revoked(5, 0)])
    assert len(double_owners([a, Life("b", [assigned(3, 0)])])) == 1


def test_a_commit_proves_membership_when_it_began_not_when_its_answer_was_read() -> None:
    a = Life("a", [assigned(1, 0), committing(2, 0, 5), committed(9, 0, 5), revoked(9.1, 0)])
    assert double_owners([a, Life("b", [assigned(3, 0)])]) == []


def test_records_that_are_read_again_are_good() -> None:
    a = Life("a", [processed(1, 0, 0, 9), committing(2, 0, 5)])
    b = Life("b", [processed(4, 0, 5, 19), committing(5, 0, 20)])
    assert passed_over([a, b], {0: 20}) == []


def test_a_commit_of_what_nobody_has_processed_is_noticed() -> None:
    a = Life("a", [processed(1, 0, 0, 4), committing(2, 0, 10), processed(3, 0, 5, 9)])
    assert len(passed_over([a], {0: 10})) == 1


def test_a_hole_is_noticed() -> None:
    a = Life("a", [processed(1, 0, 0, 4), processed(2, 0, 6, 9), committing(3, 0, 10)])
    assert len(passed_over([a], {0: 10})) == 2


def test_records_that_nobody_processed_are_noticed() -> None:
    assert len(passed_over([Life("a", [processed(1, 0, 0, 4)])], {0: 6, 1: 1})) == 2


def test_steps_backwards_are_noticed() -> None:
    assert steps_backwards({0: [1, 1, 5, 7], 1: []}) == []
    assert len(steps_backwards({0: [1, 5, 4, 9]})) == 1


def test_a_ledger_writes_to_its_journal_what_was_processed_and_leaves_late_records_alone(tmp_path: Any) -> None:
    file = tmp_path / "journal"
    ledger = Ledger(Journal(file))
    ledger.assigned([0, 1])
    ledger.processed(0, {5: b"0:5", 6: b"0:6", 9: b"0:8"})
    assert ledger.uncommitted() == {0: 10}
    ledger.committed({0: 10})
    assert ledger.uncommitted() == {}
    ledger.given_up([0])
    ledger.processed(0, {10: b"0:10"})
    found = [(each.kind, each.details) for each in read_journal(file)]
    assert [details for kind, details in found if kind is Kind.PROCESSED] == [
        {"partition": 0, "first": 5, "last": 6},
        {"partition": 0, "first": 9, "last": 9},
    ]
    assert [kind for kind, _ in found].count(Kind.STRANGE) == 1
    assert found[-1] == (Kind.REVOKED, {"partitions": [0]})

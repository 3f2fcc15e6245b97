"""The tour says that everything held only if it did: each thing that can go wrong is found."""

from dataclasses import replace
from decimal import Decimal

import pytest

from demo.checks import Facts, Row, Totals, checks, totals_of

ROWS = (
    Row(1, "teapot", 2, Decimal("54.50")),
    Row(2, "teapot", 1, Decimal("27.25")),
    Row(4, "milk jug", 3, Decimal("42.60")),
)
FACTS = Facts(
    good_ids=(1, 2, 4),
    malformed=1,
    rows=ROWS,
    dead_letters=1,
    totals={"teapot": Totals(2, 3, Decimal("81.75")), "milk jug": Totals(1, 3, Decimal("42.60"))},
    leader_before=2,
    leader_after=3,
    audit_exit_code=0,
    audit_verdict="Clean",
)


def broken(facts: Facts) -> list[str]:
    return [f"{check.claim}: {check.figures}" for check in checks(facts) if not check.holds]


def test_nothing_is_broken_where_all_counts_match() -> None:
    assert broken(FACTS) == []
    assert checks(FACTS)[0].figures == "4 = 3 + 1"


def test_totals_are_computed_per_product() -> None:
    assert totals_of(ROWS) == FACTS.totals


def test_order_that_was_lost_is_found() -> None:
    assert broken(replace(FACTS, good_ids=(1, 2, 3, 4)))[:2] == [
        "events acknowledged = rows in the table + dead letters: 5 is not 3 + 1",
        "every acknowledged order is in the table, once: 1 missing, 0 too many",
    ]


def test_order_that_is_there_twice_is_found_though_another_is_lost() -> None:
    twice = (ROWS[0], ROWS[0], ROWS[2])
    found = broken(replace(FACTS, rows=twice, totals=totals_of(twice)))
    assert found == ["every acknowledged order is in the table, once: 1 missing, 1 too many"]


def test_malformed_event_that_was_lost_is_found_though_the_sum_is_right() -> None:
    found = broken(replace(FACTS, malformed=0, good_ids=(1, 2, 3, 4)))
    assert found[-1] == "malformed events written = dead letters: 0 is not 1"


@pytest.mark.parametrize(
    ("totals", "wrong"),
    [
        ({**FACTS.totals, "teapot": Totals(2, 3, Decimal("81.74"))}, "teapot"),
        ({"teapot": FACTS.totals["teapot"]}, "milk jug"),
        ({**FACTS.totals, "moka pot": Totals(1, 1, Decimal("34.50"))}, "moka pot"),
    ],
)
def test_totals_that_differ_are_found(totals: dict[str, Totals], wrong: str) -> None:
    assert broken(replace(FACTS, totals=totals)) == [
        f"totals in the topic = recomputed from the table: not for {wrong}"
    ]


@pytest.mark.parametrize("leader", [None, 2])
def test_leader_that_was_not_replaced_is_found(leader: int | None) -> None:
    (found,) = broken(replace(FACTS, leader_after=leader))
    assert found.startswith("the killed leader was replaced: broker 2 before, ")


def test_findings_of_the_audit_are_found() -> None:
    found = broken(replace(FACTS, audit_exit_code=2, audit_verdict="1 finding in 1 of 3 partitions on broker 2"))
    assert found == ["all replicas are whole and identical: 1 finding in 1 of 3 partitions on broker 2"]


def test_tour_in_which_nothing_was_written_does_not_hold() -> None:
    nothing = replace(FACTS, good_ids=(), malformed=0, rows=(), dead_letters=0, totals={})
    assert len(broken(nothing)) == 2

"""Checks at the end of the tour. No I/O: what was written and what was found go in, verdicts come out."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple


class Totals(NamedTuple):
    orders: int
    pieces: int
    revenue: Decimal


class Row(NamedTuple):
    """An order as the table has it."""

    order_id: int
    product: str
    quantity: int
    amount: Decimal


@dataclass(frozen=True)
class Facts:
    good_ids: Sequence[int]
    """Of acknowledged orders that parse."""
    malformed: int
    """Acknowledged events that do not."""
    rows: Sequence[Row]
    dead_letters: int
    """Different events in the dead-letter topic."""
    totals: Mapping[str, Totals]
    """By product, from the last records of the topic."""
    leader_before: int
    leader_after: int | None
    audit_exit_code: int
    audit_verdict: str

    @property
    def acknowledged(self) -> int:
        return len(self.good_ids) + self.malformed


class Check(NamedTuple):
    claim: str
    figures: str
    holds: bool


def checks(facts: Facts) -> list[Check]:
    return [
        _nothing_lost(facts),
        _each_order_once(facts),
        _malformed_set_aside(facts),
        _totals_agree(facts),
        _leader_replaced(facts),
        _replicas_identical(facts),
    ]


def _nothing_lost(facts: Facts) -> Check:
    rows, dead = len(facts.rows), facts.dead_letters
    figures = f"{facts.acknowledged:,} = {rows:,} + {dead:,}"
    holds = facts.acknowledged == rows + dead and facts.acknowledged > 0
    return Check("events acknowledged = rows in the table + dead letters", _stated(figures, holds), holds)


def _each_order_once(facts: Facts) -> Check:
    written, found = Counter(facts.good_ids), Counter(row.order_id for row in facts.rows)
    missing, more = (written - found).total(), (found - written).total()
    holds = not missing and not more
    figures = f"{len(found):,} orders" if holds else f"{missing:,} missing, {more:,} too many"
    return Check("every acknowledged order is in the table, once", figures, holds)


def _malformed_set_aside(facts: Facts) -> Check:
    holds = facts.malformed == facts.dead_letters
    return Check(
        "malformed events written = dead letters",
        _stated(f"{facts.malformed:,} = {facts.dead_letters:,}", holds),
        holds,
    )


def _totals_agree(facts: Facts) -> Check:
    computed = totals_of(facts.rows)
    products = computed.keys() | facts.totals.keys()
    wrong = sorted(name for name in products if computed.get(name) != facts.totals.get(name))
    revenue = sum((total.revenue for total in facts.totals.values()), Decimal())
    figures = f"{len(products)} products, revenue {revenue:,}" if not wrong else f"not for {', '.join(wrong)}"
    return Check("totals in the topic = recomputed from the table", figures, not wrong and bool(products))


def _leader_replaced(facts: Facts) -> Check:
    holds = facts.leader_after not in (None, facts.leader_before)
    after = f"broker {facts.leader_after} after" if facts.leader_after is not None else "nobody after"
    return Check("the killed leader was replaced", f"broker {facts.leader_before} before, {after}", holds)


def _replicas_identical(facts: Facts) -> Check:
    return Check("all replicas are whole and identical", facts.audit_verdict, facts.audit_exit_code == 0)


def _stated(equation: str, holds: bool) -> str:
    return equation if holds else equation.replace("=", "is not")


def totals_of(rows: Iterable[Row]) -> dict[str, Totals]:
    found: dict[str, Totals] = {}
    for row in rows:
        before = found.get(row.product, Totals(0, 0, Decimal()))
        found[row.product] = Totals(before.orders + 1, before.pieces + row.quantity, before.revenue + row.amount)
    return found

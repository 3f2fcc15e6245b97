"""Comparison of the output with what was produced: each key's records are numbered from 0."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

Produced = Mapping[str, int]
"""How many records of each key."""
Record = tuple[str, int]
"""Key and number."""


class Findings(NamedTuple):
    records: int
    lost: int
    again: int
    """Copies of a record that was there already."""
    out_of_order: int
    """Records that came for the first time after a later one of their key."""
    unknown: int
    """Records that nobody produced."""


def examine(produced: Produced, records: Iterable[Record]) -> Findings:
    """`records` in the order of each partition. A replay repeats what was there; it brings nothing new out of order."""
    seen = Counter[str]()
    skipped: dict[str, set[int]] = {}
    again = out_of_order = unknown = count = 0
    for key, number in records:
        count += 1
        expected = seen[key]
        missing = skipped.setdefault(key, set())
        if not 0 <= number < produced.get(key, 0):
            unknown += 1
        elif number >= expected:
            missing.update(range(expected, number))
            seen[key] = number + 1
        elif number in missing:
            missing.remove(number)
            out_of_order += 1
        else:
            again += 1
    lost = sum(map(len, skipped.values())) + sum(total - seen[key] for key, total in produced.items())
    return Findings(count, lost, again, out_of_order, unknown)


def is_good_topic(found: Findings) -> bool:
    """Each record exactly once, those of a key in order."""
    return found.lost == found.again == found.out_of_order == found.unknown == 0


def is_good_table(found: Findings) -> bool:
    """Each record exactly once; a table has no order."""
    return found.lost == found.again == found.unknown == 0

"""Judgement of the journals of a group: who owned what when, and whether a record was passed over."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.churn.journal import Entry, Kind


class Life(NamedTuple):
    """One process that was a member of the group."""

    owner: str
    """Its name, or that of the static member that it is."""
    entries: Sequence[Entry]


class Tenure(NamedTuple):
    """The time for which the coordinator is known to have counted a member as owner of a partition."""

    partition: int
    owner: str
    generation: int | None
    begin_s: float
    end_s: float


def tenures_of(life: Life) -> list[Tenure]:
    """A tenure ends with the member's last proof of membership: the begin of the last commit that was accepted.

    What a member notes later proves nothing. A process that was stopped, killed or merely starved of CPU time may have
    lost its session, and its partitions, long before it learns of it: callbacks that waited in its queue (an
    assignment, a revocation) are noted when it runs again. A member that still owns a partition has its commits
    accepted, and members commit all along and once more when partitions are revoked.
    """
    book = _Book(life.owner)
    for entry in life.entries:
        book.add(entry)
    return book.close()


class _Book:
    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._held: dict[int, tuple[float, int | None]] = {}
        self._proved_s = self._begun_s = 0.0
        self._found: list[Tenure] = []

    def add(self, entry: Entry) -> None:
        match entry.kind:
            case Kind.ASSIGNED:
                self._end(entry.partitions)
                self._held |= dict.fromkeys(entry.partitions, (entry.at_s, entry.details["generation"]))
            case Kind.COMMITTING:
                self._begun_s = entry.at_s
            case Kind.COMMITTED:
                self._proved_s = self._begun_s
            case Kind.REVOKED | Kind.LOST:
                self._end(entry.partitions)

    def close(self) -> list[Tenure]:
        self._end(list(self._held))
        return self._found

    def _end(self, partitions: list[int]) -> None:
        for partition in partitions:
            if partition in self._held:
                begin_s, generation = self._held.pop(partition)
                self._found.append(Tenure(partition, self._owner, generation, begin_s, max(begin_s, self._proved_s)))


def double_owners(lives: Iterable[Life]) -> list[str]:
    """Two members with the same partition, at one time or in one generation."""
    by_partition: dict[int, list[Tenure]] = defaultdict(list)
    for life in lives:
        for tenure in tenures_of(life):
            by_partition[tenure.partition].append(tenure)
    return [
        problem
        for tenures in by_partition.values()
        for problem in (*_at_one_time(tenures), *_in_one_generation(tenures))
    ]


def _at_one_time(tenures: list[Tenure]) -> Iterable[str]:
    latest: Tenure | None = None
    for tenure in sorted(tenures, key=lambda each: each.begin_s):
        if latest is not None and tenure.begin_s < latest.end_s and tenure.owner != latest.owner:
            yield f"two owners at one time: {latest} and {tenure}"
        if latest is None or tenure.end_s > latest.end_s:
            latest = tenure


def _in_one_generation(tenures: list[Tenure]) -> Iterable[str]:
    owners: dict[int, str] = {}
    for tenure in tenures:
        if tenure.generation is not None:
            other = owners.setdefault(tenure.generation, tenure.owner)
            if other != tenure.owner:
                yield f"two owners in one generation: {other} and {tenure}"


def passed_over(lives: Iterable[Life], produced: Mapping[int, int]) -> list[str]:
    """Commits of what nobody had processed yet, records that nobody processed, and strange ones."""
    entries = sorted((entry for life in lives for entry in life.entries), key=lambda entry: entry.at_s)
    progress = {partition: _Progress() for partition in produced}
    problems: list[str] = []
    for entry in entries:
        match entry.kind:
            case Kind.PROCESSED:
                progress[entry.details["partition"]].add(entry.details["first"], entry.details["last"])
            case Kind.COMMITTING:
                for partition, offset in entry.offsets.items():
                    if offset > progress[partition].end:
                        problems.append(
                            f"partition {partition}: {offset} was committed, processed are those"
                            f" below {progress[partition].end}"
                        )
            case Kind.STRANGE:
                problems.append(f"a strange record: {entry.details}")
    for partition, count in produced.items():
        if progress[partition].end != count:
            problems.append(
                f"partition {partition}: {count} produced, processed are those below {progress[partition].end}"
            )
    return problems


class _Progress:
    """Which offsets were processed: all before `end`, and some ranges after it."""

    def __init__(self) -> None:
        self.end = 0
        self._later: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> None:
        self._later.append((first, last))
        for begin, until in sorted(self._later):
            if begin <= self.end:
                self.end = max(self.end, until + 1)
        self._later = [each for each in self._later if each[1] >= self.end]


def steps_backwards(observed: Mapping[int, Sequence[int]]) -> list[str]:
    """`observed`: what an observer saw as committed, by partition, one after the other."""
    return [
        f"partition {partition}: the committed offset went from {before} back to {after}"
        for partition, offsets in observed.items()
        for before, after in pairwise(offsets)
        if after < before
    ]

"""Pure arithmetic on samples: percentiles, medians with their spread, ratios, goals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Literal

Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""Measure, then peer, then one value per round."""


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the sorted values do not exceed (nearest rank)."""
    if not ordered:
        raise ValueError("no values")
    rank = ceil(round(percent / 100 * len(ordered), 6))
    return ordered[max(rank, 1) - 1]


@dataclass(frozen=True)
class Figure:
    """The median of some rounds, and how far they lay apart."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure | None":
        if not values:
            return None
        return cls(median(values), min(values), max(values))


def ratio(ours: Figure | None, theirs: Figure | None) -> float | None:
    if ours is None or theirs is None or theirs.median == 0:
        return None
    return ours.median / theirs.median


@dataclass(frozen=True)
class Goal:
    """A limit on Tidelog's median: in the measure's unit, in multiples of the peer's, or of another measure's."""

    kind: Literal["at most", "at least"]
    limit: float
    of: str = ""
    """Empty: absolute. "peer": times the peer's median. Else: times Tidelog's median of the measure with this id."""
    of_title: str = ""

    def reference(self, measure: str, samples: Samples, ours: str, peer: str) -> float | None:
        if not self.of:
            return 1.0
        values = samples.get(measure, {}).get(peer) if self.of == "peer" else samples.get(self.of, {}).get(ours)
        figure = Figure.of(values or [])
        return figure.median if figure else None

    def is_met(self, measure: str, samples: Samples, ours: str = "tidelog", peer: str = "kafka") -> bool | None:
        """None where a figure is missing."""
        figure = Figure.of(samples.get(measure, {}).get(ours, []))
        reference = self.reference(measure, samples, ours, peer)
        if figure is None or reference is None:
            return None
        if self.kind == "at most":
            return figure.median <= self.limit * reference
        return figure.median >= self.limit * reference

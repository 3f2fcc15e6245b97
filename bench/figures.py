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
    """The median of some rounds or trials, or another percentile of them, and how far they lay apart."""

    value: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float], percent: float = 50) -> "Figure | None":
        if not values:
            return None
        value = median(values) if percent == 50 else percentile(sorted(values), percent)
        return cls(value, min(values), max(values))


def ratio(ours: Figure | None, theirs: Figure | None) -> float | None:
    if ours is None or theirs is None or theirs.value == 0:
        return None
    return ours.value / theirs.value


@dataclass(frozen=True)
class Goal:
    """A limit on Tidelog's figure: in the measure's unit, in multiples of the peer's, or of another measure's."""

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
        return figure.value if figure else None

    def is_met(
        self, measure: str, samples: Samples, ours: str = "tidelog", peer: str = "kafka", percent: float = 50
    ) -> bool | None:
        """None where a figure is missing."""
        figure = Figure.of(samples.get(measure, {}).get(ours, []), percent)
        reference = self.reference(measure, samples, ours, peer)
        if figure is None or reference is None:
            return None
        if self.kind == "at most":
            return figure.value <= self.limit * reference
        return figure.value >= self.limit * reference

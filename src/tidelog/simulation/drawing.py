"""Random choices of a swarm configuration, from one seeded source."""

from collections.abc import Sequence
from typing import TypeVar

from tidelog.runtime.randomness import SeededRandomness

T = TypeVar("T")

LENGTHS = 10_000


class Draw:
    def __init__(self, randomness: SeededRandomness) -> None:
        self.below = randomness.below

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def between(self, least: int, most: int) -> int:
        return least + self.below(most - least + 1)

    def length(self, least: float, most: float) -> float:
        """Length with a density proportional to 1/length²: each octave of lengths takes the same total time."""
        inverse = 1 / least - self.below(LENGTHS) / LENGTHS * (1 / least - 1 / most)
        return round(1 / inverse, 1)

    def some_of(self, names: Sequence[str], one_in: int) -> frozenset[str]:
        return frozenset(name for name in names if self.below(one_in) == 0)

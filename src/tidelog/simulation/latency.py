"""Latencies of the simulated network and store: random per message, with a different mean per link."""

import math

from tidelog.runtime.randomness import SeededRandomness

SPREAD = 1000
SPIKE_ONE_IN = 200
SPIKE_FACTOR = 20
MAX_S = 1.0
FACTORS = [0.5 - 0.5 * math.log((1 + number) / SPREAD) for number in range(SPREAD)]
"""Half of the mean, and an exponential distribution around the other half."""


class Latencies:
    """A shifted exponential distribution with rare spikes, typical of networks with queues."""

    def __init__(self, randomness: SeededRandomness, mean_s: float, store_mean_s: float) -> None:
        self._randomness = randomness
        self._factors = randomness.numbers_below(SPREAD)
        self._spikes = randomness.numbers_below(SPIKE_ONE_IN)
        self._mean_s = mean_s
        self._store_mean_s = store_mean_s
        self._means_s: dict[tuple[str, str], float] = {}
        self.store_delay_s = 0.0
        """Additional delay of each message to and from the store."""

    def of_link(self, source: str, target: str) -> float:
        mean_s = self._means_s.get((source, target))
        if mean_s is None:
            mean_s = self._mean_s * (1 + self._randomness.below(5)) / 2
            self._means_s[source, target] = mean_s
        return self._draw(mean_s)

    def of_store(self) -> float:
        return self._draw(self._store_mean_s) + self.store_delay_s

    def _draw(self, mean_s: float) -> float:
        if mean_s <= 0:
            return 0.0
        drawn_s = mean_s * FACTORS[next(self._factors)]
        if next(self._spikes) == 0:
            drawn_s *= SPIKE_FACTOR
        if drawn_s > MAX_S:
            return MAX_S
        return drawn_s

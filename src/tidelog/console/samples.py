"""Charts of the last hour: samples in rings of bounded size, kept in memory."""

# Core: no clock, no I/O, no await.

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise

INTERVAL_S = 5.0
MAX_SAMPLES = 720
MAX_AGE_MS = 3_600_000
MIN_STEPS = 6
MAX_SERIES = 2_000
MAX_MEASURED = 5_000


class Samples:
    """One ring for each series. The series that was written least recently goes first."""

    def __init__(self) -> None:
        self._series: dict[str, deque[tuple[int, float]]] = {}

    def add(self, at_ms: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            ring = self._series.pop(name, None)
            if ring is None:
                ring = deque(maxlen=MAX_SAMPLES)
            while ring and ring[0][0] < at_ms - MAX_AGE_MS:
                ring.popleft()
            ring.append((at_ms, value))
            self._series[name] = ring
        while len(self._series) > MAX_SERIES:
            del self._series[next(iter(self._series))]

    def get(self, name: str) -> list[tuple[int, float]]:
        return list(self._series.get(name, ()))

    def newest(self, name: str) -> float | None:
        ring = self._series.get(name)
        return ring[-1][1] if ring else None

    def newest_ms(self, name: str) -> int | None:
        ring = self._series.get(name)
        return ring[-1][0] if ring else None

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self._series if name.startswith(prefix))

    def trend(self, name: str, over_ms: int = 120_000) -> str | None:
        """`growing`, `shrinking` or `steady` over the last two minutes, or since the value before the newest.

        A large value may grow slowly: what only goes up, or only down, is not steady.
        """
        ring = self._series.get(name)
        if not ring or len(ring) < 2:
            return None
        values = [value for at_ms, value in ring if at_ms >= ring[-1][0] - over_ms]
        if len(values) < 2:
            values = [ring[-2][1], ring[-1][1]]
        change = values[-1] - values[0]
        margin = max(1.0, 0.05 * max(values[0], values[-1]))
        if len(values) >= MIN_STEPS and _goes_one_way(values):
            margin = 1.0
        if abs(change) <= margin:
            return "steady"
        return "growing" if change > 0 else "shrinking"


def _goes_one_way(values: Sequence[float]) -> bool:
    steps = [after - before for before, after in pairwise(values)]
    return all(step >= 0 for step in steps) or all(step <= 0 for step in steps)


class Rates:
    """Counters to rates per second. A counter that fell has begun again, and has no rate."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._at_ms: int | None = None

    def of(self, at_ms: int, counters: Mapping[str, float]) -> dict[str, float]:
        passed_s = 0.0 if self._at_ms is None else (at_ms - self._at_ms) / 1000
        rates = {
            name: (value - self._last[name]) / passed_s
            for name, value in counters.items()
            if passed_s > 0 and name in self._last and value >= self._last[name]
        }
        self._last, self._at_ms = dict(counters), at_ms
        return rates


class Latencies:
    """Percentiles of the last minute."""

    def __init__(self) -> None:
        self._measured: deque[tuple[int, float]] = deque(maxlen=MAX_MEASURED)

    def add(self, at_ms: int, seconds: float) -> None:
        self._measured.append((at_ms, seconds))

    def percentiles(self, at_ms: int) -> dict[str, float]:
        """p50 and p99 in milliseconds; empty if nothing was measured."""
        recent = sorted(seconds * 1000 for then_ms, seconds in self._measured if then_ms > at_ms - 60_000)
        if not recent:
            return {}
        return {f"p{percent}": recent[min(len(recent) - 1, len(recent) * percent // 100)] for percent in (50, 99)}

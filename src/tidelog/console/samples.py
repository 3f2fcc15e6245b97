"""Charts of the last hour: samples in rings of bounded size, kept in memory."""

# Core: no clock, no I/O, no await.

from collections import deque
from collections.abc import Mapping

INTERVAL_S = 5.0
MAX_SAMPLES = 720
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
            ring.append((at_ms, value))
            self._series[name] = ring
        while len(self._series) > MAX_SERIES:
            del self._series[next(iter(self._series))]

    def get(self, name: str) -> list[tuple[int, float]]:
        return list(self._series.get(name, ()))

    def newest(self, name: str) -> float | None:
        ring = self._series.get(name)
        return ring[-1][1] if ring else None

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self._series if name.startswith(prefix))

    def trend(self, name: str, over_ms: int = 120_000) -> str | None:
        """`growing`, `shrinking` or `steady`: the newest value next to the one of two minutes ago."""
        ring = self._series.get(name)
        if not ring or len(ring) < 2:
            return None
        newest_ms, newest = ring[-1]
        earlier = next(value for at_ms, value in ring if at_ms >= newest_ms - over_ms)
        margin = max(1.0, 0.05 * max(newest, earlier))
        if newest > earlier + margin:
            return "growing"
        return "shrinking" if newest < earlier - margin else "steady"


class Rates:
    """Counters to rates per second. A counter that fell has begun anew, and has no rate."""

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

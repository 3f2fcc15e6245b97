"""Latencies of many operations, and throughput over time: percentiles, rates, one line of figures."""

# Core: no clock, no I/O, no await.

from collections.abc import Mapping, Sequence

from tidelog.terminal.quantities import size_text

PERCENTILES = (50.0, 95.0, 99.0, 99.9)
MAX_SAMPLES = 200_000
"""Above this, every second sample is dropped and only every second new one is kept, and so on."""


class Latencies:
    """In seconds."""

    def __init__(self) -> None:
        self._samples: list[float] = []
        self._keep_every = 1
        self._seen = 0
        self.longest_s = 0.0
        self._sum_s = 0.0

    @property
    def count(self) -> int:
        return self._seen

    @property
    def mean_s(self) -> float:
        return self._sum_s / self._seen if self._seen else 0.0

    def add(self, latency_s: float) -> None:
        self._seen += 1
        self._sum_s += latency_s
        self.longest_s = max(self.longest_s, latency_s)
        if self._seen % self._keep_every == 0:
            self._samples.append(latency_s)
            if len(self._samples) > MAX_SAMPLES:
                self._samples = self._samples[::2]
                self._keep_every *= 2

    def percentiles_s(self, wanted: Sequence[float] = PERCENTILES) -> dict[float, float]:
        """The smallest latency that this share of the operations did not exceed."""
        ordered = sorted(self._samples)
        if not ordered:
            return dict.fromkeys(wanted, 0.0)
        return {each: ordered[max(0, _rank(each, len(ordered)) - 1)] for each in wanted}

    def as_json(self) -> dict[str, float]:
        found = {f"p{each:g}_ms": round(value * 1000, 3) for each, value in self.percentiles_s().items()}
        return {"mean_ms": round(self.mean_s * 1000, 3), **found, "max_ms": round(self.longest_s * 1000, 3)}

    def text(self) -> str:
        found = ", ".join(f"p{each:g} {ms_text(value)}" for each, value in self.percentiles_s().items())
        return f"mean {ms_text(self.mean_s)}, {found}, max {ms_text(self.longest_s)}"


def _rank(percent: float, count: int) -> int:
    return -int(-percent * count // 100)


def ms_text(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 10 else f"{seconds:.1f} s"


def rate_text(records: int, size_bytes: int, seconds: float) -> str:
    """`12,000 records/s, 11.7 MB/s`."""
    per_second = 1 / seconds if seconds > 0 else 0.0
    return f"{records * per_second:,.0f} records/s, {size_text(size_bytes * per_second)}/s"


def rate_json(records: int, size_bytes: int, seconds: float) -> Mapping[str, float]:
    per_second = 1 / seconds if seconds > 0 else 0.0
    return {
        "records": records,
        "bytes": size_bytes,
        "seconds": round(seconds, 3),
        "records_per_second": round(records * per_second, 1),
        "bytes_per_second": round(size_bytes * per_second, 1),
    }

"""Latencies of requests as brokers measure them: percentiles of the last minute, from histograms of `/metrics`."""

# Core: no clock, no I/O, no await.

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeAlias

from tidelog.types import BrokerId

WINDOW_MS = 60_000
PERCENTS = (50, 99)
CHARTED = {"Produce": "produce", "FetchConsumer": "fetch"}
_BUCKET = re.compile(r'tidelog_request_time_seconds_bucket\{request="(\w+)",le="([^"]+)"\} (\S+)')

Histogram: TypeAlias = dict[float, float]
"""Upper bound in seconds: how many requests took at most so long."""

Histograms: TypeAlias = dict[str, Histogram]
"""By the name in charts."""


def histograms_of(lines: Iterable[str]) -> Histograms:
    found: Histograms = {}
    for line in lines:
        bucket = _BUCKET.fullmatch(line)
        if bucket is not None and bucket[1] in CHARTED:
            with suppress(ValueError):  # a page of somebody else
                found.setdefault(CHARTED[bucket[1]], {})[float(bucket[2])] = float(bucket[3])
    return found


class BrokerLatencies:
    """Keeps the histograms of the last minute. The counts between its ends, summed over brokers, give percentiles."""

    def __init__(self) -> None:
        self._seen: dict[BrokerId, deque[tuple[int, Histograms]]] = {}

    def add(self, at_ms: int, brokers: Mapping[BrokerId, Histograms]) -> None:
        self._seen = {broker_id: seen for broker_id, seen in self._seen.items() if broker_id in brokers}
        for broker_id, histograms in brokers.items():
            seen = self._seen.setdefault(broker_id, deque())
            if seen and _has_restarted(seen[-1][1], histograms):
                seen.clear()
            seen.append((at_ms, histograms))
            while len(seen) > 2 and seen[0][0] < at_ms - WINDOW_MS:
                seen.popleft()

    def percentiles(self) -> dict[str, float]:
        """In milliseconds, such as `produce_p99`; those of which there were no requests are left out."""
        sums: Histograms = {}
        for seen in self._seen.values():
            for name, histogram in seen[-1][1].items():
                before, summed = seen[0][1].get(name, {}), sums.setdefault(name, {})
                for bound_s, count in histogram.items():
                    summed[bound_s] = summed.get(bound_s, 0.0) + count - before.get(bound_s, 0.0)
        found = {
            f"{name}_p{percent}": quantile_s(summed, percent / 100)
            for name, summed in sums.items()
            for percent in PERCENTS
        }
        return {name: value_s * 1000 for name, value_s in found.items() if value_s is not None}


def _has_restarted(before: Histograms, after: Histograms) -> bool:
    return any(
        after.get(name, {}).get(bound_s, 0.0) < count
        for name, histogram in before.items()
        for bound_s, count in histogram.items()
    )


def quantile_s(histogram: Histogram, share: float) -> float | None:
    """Interpolated within its bucket; the highest bound for what is above all; None without requests."""
    bounds = sorted(histogram)
    total = histogram[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    lower_s, below = 0.0, 0.0
    for bound_s in bounds:
        up_to = histogram[bound_s]
        if up_to > below and up_to >= share * total:
            if math.isinf(bound_s):
                return lower_s
            return lower_s + (bound_s - lower_s) * (share * total - below) / (up_to - below)
        lower_s, below = bound_s, up_to
    raise AssertionError("the last bucket has the rest")

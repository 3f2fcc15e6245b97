"""Times of requests in fixed buckets, by API and version (kafka.network:type=RequestMetrics).

A request that is answered at once costs two readings of the clock and one increment.
"""

# Core: no clock, no I/O, no await.

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

FETCH_CONSUMER, FETCH_FOLLOWER = "FetchConsumer", "FetchFollower"

_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
BOUNDS_S = [round(step * 10.0**power, 7) for power in range(-5, 2) for step in _STEPS][:-1]
"""Upper bounds, inclusive, from 10 us to 50 s. Each is at most 1.67 times the one before it."""

BUCKETS = len(BOUNDS_S) + 1
Counts = list[int]


def bucket_of(seconds: float) -> int:
    return bisect_left(BOUNDS_S, seconds)


class RequestTimes:
    """Counts of one version of one API. The connection increments them itself: a call would cost more than they do."""

    __slots__ = ("answered", "local", "remote", "waited")

    def __init__(self) -> None:
        self.answered: Counts = [0] * BUCKETS
        """Requests that were answered at once: their local time is their total time."""
        self.waited: Counts = [0] * BUCKETS
        """Total time of requests that had to wait for replicas, records, a disk or the controller."""
        self.local: Counts = [0] * BUCKETS
        """Time until those had to wait."""
        self.remote: Counts = [0] * BUCKETS
        """Time for which those waited."""

    def on_waited(self, began_s: float, waits_since_s: float, now_s: float) -> None:
        self.local[bisect_left(BOUNDS_S, waits_since_s - began_s)] += 1
        self.remote[bisect_left(BOUNDS_S, now_s - waits_since_s)] += 1
        self.waited[bisect_left(BOUNDS_S, now_s - began_s)] += 1


class Distributions(NamedTuple):
    """Counts by bucket of the three request times that Kafka reports."""

    total: Counts
    local: Counts
    remote: Counts

    @classmethod
    def of(cls, times: RequestTimes) -> "Distributions":
        without_wait = [sum(times.answered)] + [0] * (BUCKETS - 1)
        return cls(
            _sum(times.answered, times.waited), _sum(times.answered, times.local), _sum(without_wait, times.remote)
        )

    def plus(self, other: "Distributions") -> "Distributions":
        return Distributions(*(_sum(*pair) for pair in zip(self, other, strict=True)))

    def since(self, before: "Distributions | None") -> "Distributions":
        if before is None:
            return self
        return Distributions(*([a - b for a, b in zip(*pair, strict=True)] for pair in zip(self, before, strict=True)))


class RequestTimesTable:
    """Times of all APIs that were requested from a broker."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, int], RequestTimes] = {}

    def of(self, request: str, version: int) -> RequestTimes:
        return self._times.setdefault((request, version), RequestTimes())

    def counts(self) -> Iterator[tuple[str, int, int]]:
        """Request, version, and how many there were."""
        for (request, version), times in self._times.items():
            if count := sum(times.answered) + sum(times.waited):
                yield request, version, count

    def distributions(self) -> dict[str, Distributions]:
        """All versions of an API together; APIs without requests are left out."""
        found: dict[str, Distributions] = {}
        for (request, _), times in list(self._times.items()):
            new = Distributions.of(times)
            if any(new.total):
                found[request] = new if request not in found else found[request].plus(new)
        return found


def quantile_s(counts: Counts, share: float) -> float | None:
    """The time that this share of the requests did not exceed, interpolated within its bucket; None without any."""
    total = sum(counts)
    if not total:
        return None
    wanted, below = share * total, 0
    for bucket, count in enumerate(counts):
        if count and below + count >= wanted:
            lower_s = BOUNDS_S[bucket - 1] if bucket else 0.0
            if bucket == len(BOUNDS_S):
                return lower_s  # nothing is known but that it took longer
            return lower_s + (BOUNDS_S[bucket] - lower_s) * (wanted - below) / count
        below += count
    raise AssertionError("the last bucket has the rest")


def _sum(one: Counts, other: Counts) -> Counts:
    return [a + b for a, b in zip(one, other, strict=True)]

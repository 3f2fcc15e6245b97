"""Client quotas: how long a client must pause because it exceeds its rate (ClientQuotaManager in Kafka)."""

# Core: no clock, no I/O, no await.
# Times are in seconds of one monotonic clock.

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from tidelog.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    AppliedQuota,
    QuotaTable,
)
from tidelog.quotas.rates import SampledRate, TokenBucket

Measure = TypeVar("Measure", SampledRate, TokenBucket)

IDLE_S = 3600.0
"""Measures of clients that have done nothing for this long are dropped, as in Kafka."""

MAX_MEASURES = 20_000
"""Clients choose their client ids: the measures that were used least recently go first."""


class Windows(NamedTuple):
    number: int
    seconds: float


class Measures(Generic[Measure]):
    """The measures of all who share a quota, by user and client id."""

    def __init__(self, windows: Windows, kind: type[Measure]) -> None:
        self._windows = windows
        self._kind: type[Measure] = kind
        self._by_client: dict[tuple[str, str], Measure] = {}
        self._throttled: dict[tuple[str, str], float] = {}
        """Last throttle time, in seconds."""

    def of(self, quota: AppliedQuota, now_s: float) -> Measure:
        key = (quota.user, quota.client_id)
        found = self._by_client.pop(key, None)
        if found is None:
            self._drop_unused(now_s)
            found = self._kind(*self._windows)
        self._by_client[key] = found  # the end of the dictionary: used last
        return found

    def _drop_unused(self, now_s: float) -> None:
        while self._by_client:
            oldest = next(iter(self._by_client))
            if len(self._by_client) < MAX_MEASURES and self._by_client[oldest].used_at_s > now_s - IDLE_S:
                return
            del self._by_client[oldest]
            self._throttled.pop(oldest, None)

    def note_throttle(self, quota: AppliedQuota, throttle_s: float) -> None:
        self._throttled[quota.user, quota.client_id] = throttle_s

    def items(self) -> Iterator[tuple[tuple[str, str], Measure, float]]:
        for key, measure in list(self._by_client.items()):
            yield key, measure, self._throttled.get(key, 0.0)


class ClientQuotas:
    """The quotas of all clients of one broker. Each broker measures for itself, as in Kafka."""

    def __init__(self, windows: Windows, controller_windows: Windows) -> None:
        self.table = QuotaTable()
        self._windows = windows
        self.produce: Measures[SampledRate] = Measures(windows, SampledRate)
        self.fetch: Measures[SampledRate] = Measures(windows, SampledRate)
        self.request: Measures[SampledRate] = Measures(windows, SampledRate)
        self.mutations: Measures[TokenBucket] = Measures(controller_windows, TokenBucket)

    def produced(self, user: str, client_id: str, size: int, now_s: float) -> float:
        """Record the bytes of a produce request. Returns for how many seconds the client must pause."""
        return self._record(self.produce, PRODUCER_BYTE_RATE, user, client_id, size, now_s)

    def fetched(self, user: str, client_id: str, size: int, now_s: float) -> float:
        """Record the bytes of a fetch response. Returns for how many seconds the client must pause.

        Unlike in Kafka the records are sent, and the pause comes after them: the rate is the same, and nothing is read
        twice.
        """
        return self._record(self.fetch, CONSUMER_BYTE_RATE, user, client_id, size, now_s)

    def max_fetch_bytes(self, user: str, client_id: str) -> int | None:
        """Limit of a response: a larger one would mean a pause longer than all windows. None without a quota."""
        quota = self.table.applied(CONSUMER_BYTE_RATE, user, client_id)
        if quota is None:
            return None
        return max(int(quota.bound * (self._windows.number - 1) * self._windows.seconds), 1)

    def worked(self, user: str, client_id: str, seconds: float, now_s: float) -> float:
        """Record the time of work for a client, as a percentage of one thread. Returns at most one window."""
        throttle_s = self._record(self.request, REQUEST_PERCENTAGE, user, client_id, seconds * 100, now_s)
        return min(throttle_s, self._windows.seconds)

    def mutate(self, user: str, client_id: str, count: int, now_s: float, *, is_strict: bool) -> tuple[bool, float]:
        """Record partitions to create or delete. Returns whether they are accepted, and the seconds of pause.

        Strict: refused once the quota is exhausted. Otherwise accepted, and the client pauses (KIP-599).
        """
        quota = self.table.applied(CONTROLLER_MUTATION_RATE, user, client_id)
        if quota is None:
            return True, 0.0
        bucket = self.mutations.of(quota, now_s)
        exhausted_s = bucket.throttle_s(quota.bound, now_s)
        if is_strict and exhausted_s > 0:
            self.mutations.note_throttle(quota, exhausted_s)
            return False, exhausted_s
        bucket.take(count, quota.bound, now_s)
        throttle_s = 0.0 if is_strict else bucket.throttle_s(quota.bound, now_s)
        self.mutations.note_throttle(quota, throttle_s)
        return True, throttle_s

    def _record(
        self, measures: Measures[SampledRate], key: str, user: str, client_id: str, amount: float, now_s: float
    ) -> float:
        quota = self.table.applied(key, user, client_id)
        if quota is None:
            return 0.0
        measure = measures.of(quota, now_s)
        measure.record(amount, now_s)
        throttle_s = measure.throttle_s(quota.bound, now_s)
        measures.note_throttle(quota, throttle_s)
        return throttle_s

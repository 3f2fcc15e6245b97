"""Deadlines of thousands of waiting operations with a few timers (Kafka's timing wheel).

A waiting operation usually ends before its deadline. Deadlines are therefore grouped in buckets of a
few milliseconds. Only the first bucket has a timer, and cancelling a deadline is a dictionary delete. A bucket whose
deadlines are all cancelled is skipped when the timer expires, so that a busy broker is not woken for each of them.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from tidelog.runtime.turns import Turns

RESOLUTION_S = 0.005

MAX_AT_ONCE = 64
"""If more deadlines are due, the rest of them expire in slices."""

DeadlineKey: TypeAlias = tuple[int, int]


class Deadlines:
    """Calls back at the deadline or up to one resolution later, never before it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, resolution_s: float = RESOLUTION_S, turns: Turns | None = None
    ) -> None:
        """With `turns`, many deadlines that are due together expire in slices."""
        self._loop = loop
        self._turns = turns
        self._expiring: deque[DeadlineKey] = deque()
        self._resolution_s = resolution_s
        self._buckets: dict[int, dict[int, Callable[[], None]]] = {}
        self._bucket_heap: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._next_id = 0

    def add(self, delay_s: float, on_expired: Callable[[], None]) -> DeadlineKey:
        bucket = int((self._loop.time() + delay_s) / self._resolution_s) + 1
        waiting = self._buckets.get(bucket)
        if waiting is None:
            waiting = self._buckets[bucket] = {}
            heapq.heappush(self._bucket_heap, bucket)
            if self._bucket_heap[0] == bucket:
                self._set_timer()
        self._next_id += 1
        waiting[self._next_id] = on_expired
        return bucket, self._next_id

    def cancel(self, key: DeadlineKey) -> None:
        """No effect on a deadline that has passed."""
        waiting = self._buckets.get(key[0])
        if waiting is not None:
            waiting.pop(key[1], None)

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._bucket_heap[0] * self._resolution_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now, due = self._loop.time(), 0
        while self._bucket_heap and (
            self._bucket_heap[0] * self._resolution_s <= now or not self._buckets[self._bucket_heap[0]]
        ):
            bucket = heapq.heappop(self._bucket_heap)
            due += len(self._buckets[bucket])
            if self._turns is not None and self._buckets[bucket] and due > MAX_AT_ONCE:
                if not self._expiring:
                    self._turns.queue(self._expire_some)
                self._expiring.extend((bucket, number) for number in self._buckets[bucket])
            else:
                for on_expired in self._buckets.pop(bucket).values():
                    on_expired()
        if self._bucket_heap and self._timer is None:
            self._set_timer()

    def _expire_some(self) -> None:
        """Expire deadlines until the slice is over. Those cancelled meanwhile do not expire."""
        assert self._turns is not None
        try:
            while self._expiring and not self._turns.is_slice_over():
                self._expire_next()
        finally:
            if self._expiring:
                self._turns.queue(self._expire_some, is_continued=True)

    def _expire_next(self) -> None:
        bucket, number = self._expiring.popleft()
        on_expired = self._buckets[bucket].pop(number, None)
        if not self._buckets[bucket]:
            self._drop(bucket)
        if on_expired is not None:
            on_expired()

    def _drop(self, bucket: int) -> None:
        """Remove an empty bucket, with its cancelled deadlines."""
        del self._buckets[bucket]
        while self._expiring and self._expiring[0][0] == bucket:
            self._expiring.popleft()

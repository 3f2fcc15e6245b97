"""ISR change propagation: notification znodes that report ISR changes to the controller in batches (R21)."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from tidelog.cluster.znodes import IN_SYNC_CHANGE_PREFIX, encode_partition_list
from tidelog.runtime.clock import Clock
from tidelog.store.interface import Store, StoreError
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

GATHERING_S = 0.05
MIN_INTERVAL_S = 5.0
"""Minimum time between notifications. The first change after a quiet time goes out at once: fresher metadata."""
ANNOUNCED_TOGETHER = 1000
RETRY_S = 1.0


class IsrChangePropagation:
    """Partitions whose in-sync replicas changed since the last notification."""

    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._changed: dict[TopicPartition, None] = {}
        self._has_changed = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._last_s = clock.monotonic() - MIN_INTERVAL_S

    def add(self, changed: Iterable[TopicPartition], *, is_urgent: bool = False) -> None:
        """Urgent changes do not wait for the interval: a reassignment ends when the controller knows of them."""
        self._changed.update(dict.fromkeys(changed))
        self._has_changed.set()
        if is_urgent:
            self._is_urgent.set()

    async def run(self) -> None:
        while True:
            await self._has_changed.wait()
            quiet_s = self._clock.monotonic() - self._last_s
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_urgent.wait(), MIN_INTERVAL_S - GATHERING_S - quiet_s)
            await asyncio.sleep(GATHERING_S)
            self._has_changed.clear()
            self._is_urgent.clear()
            await self._propagate()
            self._last_s = self._clock.monotonic()

    async def _propagate(self) -> None:
        while self._changed:
            batch = list(self._changed)[:ANNOUNCED_TOGETHER]
            for each in batch:
                del self._changed[each]
            try:
                await self._store().create(IN_SYNC_CHANGE_PREFIX, encode_partition_list(batch), sequential=True)
            except StoreError as error:
                logger.warning("cannot propagate ISR changes, retrying partitions=%d reason=%s", len(batch), error)
                self._changed.update(dict.fromkeys(batch))
                await asyncio.sleep(RETRY_S)

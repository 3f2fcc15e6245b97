"""Announces changes of in-sync replicas to the controller, many at a time (R21)."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from tidelog.cluster.znodes import IN_SYNC_CHANGE_PREFIX, encode_partition_list
from tidelog.runtime.clock import Clock
from tidelog.store.interface import Store, StoreError
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

GATHERING_S = 0.05
LEAST_INTERVAL_S = 5.0
"""Between two announcements. The first change after a quiet time is told at once: metadata is then fresh sooner."""
ANNOUNCED_TOGETHER = 1000
RETRY_S = 1.0


class InSyncAnnouncements:
    """What changed since it was last announced."""

    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._changed: dict[TopicPartition, None] = {}
        self._has_changed = asyncio.Event()
        self._last_s = clock.monotonic() - LEAST_INTERVAL_S

    def add(self, changed: Iterable[TopicPartition]) -> None:
        self._changed.update(dict.fromkeys(changed))
        self._has_changed.set()

    async def run(self) -> None:
        while True:
            await self._has_changed.wait()
            quiet_s = self._clock.monotonic() - self._last_s
            await asyncio.sleep(max(LEAST_INTERVAL_S - quiet_s, GATHERING_S))
            self._has_changed.clear()
            await self._announce()
            self._last_s = self._clock.monotonic()

    async def _announce(self) -> None:
        while self._changed:
            told = list(self._changed)[:ANNOUNCED_TOGETHER]
            for each in told:
                del self._changed[each]
            try:
                await self._store().create(IN_SYNC_CHANGE_PREFIX, encode_partition_list(told), sequential=True)
            except StoreError as error:
                logger.warning("cannot announce in-sync changes yet partitions=%d reason=%s", len(told), error)
                self._changed.update(dict.fromkeys(told))
                await asyncio.sleep(RETRY_S)

"""Validation of long record batches in slices of the event loop, with decompression in a worker.

One slice of all long checks runs per loop turn; the checks alternate. Only one batch at a time is held decompressed,
so that many of them cannot fill the memory, and one more that is recompressed as its topic wants, which may take
many seconds. Cheap ones go before costly ones: a few connections with batches of a million records do not hold up
everybody else's.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tidelog.config.topic import TopicSettings
from tidelog.protocol.compression import CODECS_BY_SETTING
from tidelog.protocol.record_batch import read_header
from tidelog.runtime.workers import Workers
from tidelog.storage.validation import LongPreparation, PreparedBatch, long_preparation

MAX_OVERTAKING_COST = 20
"""A batch lets cheaper ones go first until they have cost this many times as much as itself."""

BYTES_PER_RECORD = 64
"""A batch costs at least as if its records had this size: what it claims about their number may be false."""


class CheapestFirst:
    """A lock for one at a time. The cheapest waiter gets it next, and nobody waits for ever."""

    def __init__(self) -> None:
        self._is_held = False
        self._spent = 0
        self._arrivals = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def hold(self, cost: int) -> AsyncIterator[None]:
        if self._is_held:
            await self._wait(cost)
        self._is_held = True
        self._spent += cost
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, cost: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (self._spent + MAX_OVERTAKING_COST * cost, self._arrivals, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """To the next one that still waits. The lock stays held meanwhile, so that nobody comes in between."""
        while self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_held = False


class LongChecks:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._turn = asyncio.Lock()
        self._decompression = CheapestFirst()
        self._recompression = CheapestFirst()
        self.batches = 0
        """Batches checked in slices since startup."""

    async def prepare(self, batch: memoryview, settings: TopicSettings, now_ms: int) -> PreparedBatch:
        """Validate a batch that nobody else modifies meanwhile. Raises KafkaError if it is invalid."""
        self.batches += 1
        async with AsyncExitStack() as held:
            header = read_header(batch)
            if header.compression:
                cost = max(header.record_count, len(batch) // BYTES_PER_RECORD)
                codec = CODECS_BY_SETTING.get(settings.compression_type, header.compression)
                queue = self._decompression if codec == header.compression else self._recompression
                await held.enter_async_context(queue.hold(cost))
            return await self._drive(long_preparation(batch, settings, now_ms))

    async def _drive(self, steps: LongPreparation) -> PreparedBatch:
        result: object = None
        while True:
            async with self._turn:
                try:
                    work = steps.send(result)
                except StopIteration as end:
                    prepared: PreparedBatch = end.value
                    return prepared
                await asyncio.sleep(0)
            result = None if work is None else await self._workers.run(work)

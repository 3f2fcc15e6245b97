"""Validation of long record batches in slices of the event loop, with decompression in a worker.

One slice of all long checks runs per loop turn; the checks alternate. Only one batch at a time is held decompressed,
so that many of them cannot fill the memory.
"""

import asyncio
from contextlib import AsyncExitStack

from tidelog.config.topic import TopicSettings
from tidelog.protocol.record_batch import read_header
from tidelog.runtime.workers import Workers
from tidelog.storage.validation import LongPreparation, PreparedBatch, long_preparation


class LongChecks:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._turn = asyncio.Lock()
        self._decompression = asyncio.Lock()
        self.batches = 0
        """Batches checked in slices since startup."""

    async def prepare(self, batch: memoryview, settings: TopicSettings, now_ms: int) -> PreparedBatch:
        """Validate a batch that nobody else modifies meanwhile. Raises KafkaError if it is invalid."""
        self.batches += 1
        async with AsyncExitStack() as held:
            if read_header(batch).compression:
                await held.enter_async_context(self._decompression)
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

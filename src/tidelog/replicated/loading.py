"""Reading the records of partitions that this broker has begun to lead, a little at a time, one after the other."""

import asyncio
import logging
from collections import deque
from typing import Any, NamedTuple

from tidelog.errors import CorruptMessage, KafkaError, KafkaStorageError, OffsetOutOfRange
from tidelog.protocol.record_batch import HEADER_BYTES, BatchHeader, read_header
from tidelog.replicated.entries import Ended, Written, entries_of
from tidelog.replicated.shard import Shard, ShardState
from tidelog.runtime.clock import Clock
from tidelog.runtime.workers import Workers
from tidelog.storage.log import Log
from tidelog.types import NO_OFFSET

logger = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
TURN_S = 0.005
"""So long at a time, so that requests are not held up."""
RECORDS_BETWEEN_LOOKS = 50
"""How many records are replayed before the clock is asked again."""
RECORDS_PER_TURN = 1000
PROGRESS_EVERY_S = 5.0
READ_AGAIN_S = 1.0


class LoadProgress(NamedTuple):
    """How far the partition has come that is being loaded."""

    partition: int
    records: int
    fraction: float
    waiting: int
    """How many more partitions are to be loaded after it."""


class Loader:
    """Has a task while there is something to load, and none otherwise."""

    def __init__(self, topic: str, clock: Clock, workers: Workers) -> None:
        self._topic = topic
        self._clock = clock
        self._workers = workers
        self._queue: deque[Shard[Any]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._current: Shard[Any] | None = None
        self._fraction = 0.0
        self._turn_end_s = 0.0
        self._told_s = 0.0
        self._records_in_turn = 0
        self.records = 0
        """All that were ever loaded."""
        self.skipped_batches = 0
        self.loads = 0
        self.last_load_s = 0.0

    @property
    def progress(self) -> LoadProgress | None:
        shard = self._current
        if shard is None:
            return None
        waiting = sum(each.state is ShardState.LOADING for each in self._queue)
        return LoadProgress(shard.partition.topic_partition.partition, shard.records_loaded, self._fraction, waiting)

    def add(self, shard: Shard[Any]) -> None:
        log = shard.partition.log
        if log.log_start_offset == log.log_end_offset:
            shard.activate(log.log_end_offset)
            return
        self._queue.append(shard)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        started_s, partitions, records = self._clock.monotonic(), 0, self.records
        self._told_s = started_s
        while self._queue:
            self._current = self._queue.popleft()
            partitions += self._current.state is ShardState.LOADING
            await self._load_guarded(self._current)
        self._current = self._task = None
        self.last_load_s = self._clock.monotonic() - started_s
        logger.info(
            "loaded coordinator state topic=%s partitions=%d records=%d seconds=%.3f",
            self._topic,
            partitions,
            self.records - records,
            self.last_load_s,
        )

    async def _load_guarded(self, shard: Shard[Any]) -> None:
        try:
            await self._load(shard)
        except KafkaError as error:  # most likely the log directory is offline, and with it the partition
            logger.error("cannot load partition=%s reason=%s", shard.partition.topic_partition, error)
            _give_up(shard)
        except Exception:
            logger.exception("cannot load partition=%s", shard.partition.topic_partition)
            _give_up(shard)

    async def _load(self, shard: Shard[Any]) -> None:
        """From the start of the log to its end; only its coordinator writes to it, so that the end stays."""
        log = shard.partition.log
        offset = start = log.log_start_offset
        self._begin_turn()
        while shard.state is ShardState.LOADING and offset < log.log_end_offset:
            self._fraction = (offset - start) / (log.log_end_offset - start)
            self._tell_progress(shard)
            data = await self._read(log, offset)
            self._begin_turn()
            offset = await self._replay(shard, data) if data else log.log_end_offset
        if shard.state is ShardState.LOADING:
            self.loads += 1
            self._current = None
            shard.activate(log.log_end_offset)

    async def _read(self, log: Log, offset: int) -> bytes:
        """Where the disk is well and only files are too many, there is hope."""
        while True:
            try:
                return await self._workers.run(_read, log, offset)
            except KafkaStorageError as error:
                if not log.directory.is_online or log.is_deleted:
                    raise
                logger.warning("cannot read yet partition=%s reason=%s", log.topic_partition, error)
                await asyncio.sleep(READ_AGAIN_S)

    async def _replay(self, shard: Shard[Any], data: bytes) -> int:
        """The offset after the last whole batch."""
        view, position, offset = memoryview(data), 0, NO_OFFSET
        while position + HEADER_BYTES <= len(view) and shard.state is ShardState.LOADING:
            header = read_header(view, position)
            end = position + max(header.size_bytes, HEADER_BYTES)
            if end > len(view):
                break
            await self._replay_batch(shard, header, view[position:end])
            position, offset = end, header.end_offset
        if offset == NO_OFFSET and shard.state is ShardState.LOADING:
            raise CorruptMessage("there is no whole batch where one should be")
        return offset

    async def _replay_batch(self, shard: Shard[Any], header: BatchHeader, batch: memoryview) -> None:
        try:
            for entry in entries_of(header, batch):
                _replay_entry(shard, entry)
                self.records += 1
                self._records_in_turn += 1
                if self._is_turn_over():
                    await asyncio.sleep(0)
                    self._begin_turn()
                    if shard.state is not ShardState.LOADING:
                        return
        except CorruptMessage as error:
            self.skipped_batches += 1
            logger.error(
                "skipped a batch that cannot be read partition=%s offset=%d reason=%s",
                shard.partition.topic_partition,
                header.base_offset,
                error,
            )

    def _begin_turn(self) -> None:
        self._turn_end_s = self._clock.monotonic() + TURN_S
        self._records_in_turn = 0

    def _is_turn_over(self) -> bool:
        count = self._records_in_turn
        if count % RECORDS_BETWEEN_LOOKS:
            return False
        return count >= RECORDS_PER_TURN or self._clock.monotonic() > self._turn_end_s

    def _tell_progress(self, shard: Shard[Any]) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._told_s < PROGRESS_EVERY_S:
            return
        self._told_s = now_s
        logger.info(
            "loading coordinator state partition=%s percent=%d records=%d waiting=%d",
            shard.partition.topic_partition,
            self._fraction * 100,
            shard.records_loaded,
            len(self._queue),
        )


def _give_up(shard: Shard[Any]) -> None:
    if shard.state is ShardState.LOADING:
        shard.give_up()


def _replay_entry(shard: Shard[Any], entry: Written | Ended) -> None:
    shard.records_loaded += 1
    try:
        entry.replay(shard.machine)
    except Exception:
        logger.exception(
            "skipped a record that cannot be replayed partition=%s offset=%d",
            shard.partition.topic_partition,
            entry.offset,
        )


def _read(log: Log, offset: int) -> bytes:
    """Whole batches, and maybe a part of one more; nothing if there is nothing up to the end. For a worker."""
    try:
        found = log.read(max(offset, log.log_start_offset), READ_BYTES, log.log_end_offset).slice
        with log.guard:
            return b"" if found is None else found.read()
    except OffsetOutOfRange:
        return b""

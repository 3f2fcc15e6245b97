"""Coordinator loader: replays partitions of an internal topic that this broker has begun to lead, in short turns.

Of several values of a key only the last is replayed, at the place of the first: a log that was not compacted for long
has little else. Values wait for that, until a tombstone or a record of a transaction follows, or there are many.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

from tidelog.errors import CorruptMessage, KafkaError, KafkaStorageError, OffsetOutOfRange
from tidelog.protocol.record_batch import HEADER_BYTES, BatchHeader, read_header
from tidelog.replicated.entries import check_crc, producer_of, record_slices, replay_end_marker
from tidelog.replicated.machine import Producer, StateRecord
from tidelog.replicated.shard import Shard, ShardState
from tidelog.runtime.clock import Clock
from tidelog.runtime.workers import Workers
from tidelog.storage.log import Log
from tidelog.types import NO_OFFSET

logger = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
TURN_S = 0.005
"""Longest turn on the event loop, so that requests are not delayed."""
RECORDS_BETWEEN_LOOKS = 50
"""Records replayed between two reads of the clock."""
RECORDS_PER_TURN = 1000
MAX_LATEST_VALUES = 25_000
"""Values of different keys that wait to be replayed, to bound memory."""
PROGRESS_EVERY_S = 5.0
READ_AGAIN_S = 1.0

_REPLAY_FAILED: Final = "skipped record that failed to replay partition=%s key=%s"
_new_record: Final = tuple.__new__  # half the time of the named tuple's own constructor


class LoadProgress(NamedTuple):
    """Progress of the partition that is being loaded."""

    partition: int
    records: int
    fraction: float
    waiting: int
    """Number of partitions queued after it."""


class Loader:
    """Loads queued partitions one at a time. Its task exists only while there are any."""

    def __init__(self, topic: str, clock: Clock, workers: Workers) -> None:
        self._topic = topic
        self._clock = clock
        self._workers = workers
        self._queue: deque[Shard[Any]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._current: Shard[Any] | None = None
        self._fraction = 0.0
        self._turn_end_s = 0.0
        self._logged_s = 0.0
        self._records_in_turn = 0
        self._records_since_look = 0
        self._latest: dict[bytes, bytes] = {}
        """Values that were read and not replayed yet, by key."""
        self.records = 0
        """Total of loaded records."""
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
        self._logged_s = started_s
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
        except KafkaError as error:  # most likely the log directory, and with it the partition, is offline
            logger.error("cannot load coordinator state partition=%s reason=%s", shard.partition.topic_partition, error)
            _mark_failed(shard)
        except Exception:
            logger.exception("cannot load coordinator state partition=%s", shard.partition.topic_partition)
            _mark_failed(shard)

    async def _load(self, shard: Shard[Any]) -> None:
        """Replay the whole log. Its end does not move meanwhile: only the coordinator writes to it."""
        log = shard.partition.log
        offset = start = log.log_start_offset
        self._latest = {}
        self._begin_turn()
        while shard.state is ShardState.LOADING and offset < log.log_end_offset:
            self._fraction = (offset - start) / (log.log_end_offset - start)
            self._log_progress(shard)
            data = await self._read(log, offset)
            log = shard.partition.log  # it may have moved to another log dir meanwhile (R30)
            self._begin_turn()
            offset = await self._replay(shard, data) if data else log.log_end_offset
        await self._replay_latest(shard)
        if shard.state is ShardState.LOADING:
            self.loads += 1
            self._current = None
            shard.activate(log.log_end_offset)

    async def _read(self, log: Log, offset: int) -> bytes:
        """Read in a worker. Retries on a shortage of descriptors or memory."""
        while True:
            try:
                return await self._workers.run(_read, log, offset)
            except KafkaStorageError as error:
                if not log.directory.is_online or log.is_deleted:
                    raise
                logger.warning("cannot read partition, retrying partition=%s reason=%s", log.topic_partition, error)
                await asyncio.sleep(READ_AGAIN_S)

    async def _replay(self, shard: Shard[Any], data: bytes) -> int:
        """Replay the complete batches. Returns the offset after the last one."""
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
            check_crc(header, batch)
            if header.is_control:
                await self._replay_latest(shard)
                self._replay_marker(shard, header, batch)
                await self._end_turn_if_over()
                return
            producer = producer_of(header)
            for keys, values in record_slices(header, batch):
                if producer is not None or not self._collect(shard, keys, values):
                    await self._replay_latest(shard)
                    await self._replay_in_order(shard, zip(keys, values, strict=True), producer)
                elif len(self._latest) >= MAX_LATEST_VALUES:
                    await self._replay_latest(shard)
                await self._end_turn_if_over()
                if shard.state is not ShardState.LOADING:
                    return
        except CorruptMessage as error:
            self.skipped_batches += 1
            logger.error(
                "skipped unreadable batch partition=%s offset=%d reason=%s",
                shard.partition.topic_partition,
                header.base_offset,
                error,
            )

    def _replay_marker(self, shard: Shard[Any], header: BatchHeader, batch: memoryview) -> None:
        self._count(shard, 1)
        try:
            replay_end_marker(shard.machine, header, batch)
        except CorruptMessage:
            raise
        except Exception:
            logger.exception(
                "skipped end marker that failed to replay partition=%s offset=%d",
                shard.partition.topic_partition,
                header.last_offset,
            )

    def _collect(self, shard: Shard[Any], keys: list[bytes | None], values: list[bytes | None]) -> bool:
        """Keep the values for later. False if there is a tombstone, or no key."""
        if None in keys or None in values:
            return False
        self._latest.update(zip(keys, values, strict=True))  # type: ignore[arg-type]  # checked above
        self._count(shard, len(keys))
        return True

    async def _replay_latest(self, shard: Shard[Any]) -> None:
        latest, self._latest = self._latest, {}
        records = iter(latest.items())
        while shard.state is ShardState.LOADING and (some := list(islice(records, RECORDS_BETWEEN_LOOKS))):
            for record in some:
                self._replay_record(shard, record, None)
            self._count_work(len(some))
            await self._end_turn_if_over()

    async def _replay_in_order(
        self, shard: Shard[Any], records: Iterable[tuple[bytes | None, bytes | None]], producer: Producer | None
    ) -> None:
        for key, value in records:
            if shard.state is not ShardState.LOADING:
                return
            if key is None:
                raise CorruptMessage("a record has no key")
            self._count(shard, 1)
            self._replay_record(shard, (key, value), producer)
            await self._end_turn_if_over()

    def _replay_record(self, shard: Shard[Any], record: tuple[bytes, bytes | None], producer: Producer | None) -> None:
        try:
            shard.machine.replay(_new_record(StateRecord, record), producer)
        except Exception:
            logger.exception(_REPLAY_FAILED, shard.partition.topic_partition, record[0].hex())

    def _count(self, shard: Shard[Any], records: int) -> None:
        shard.records_loaded += records
        self.records += records
        self._count_work(records)

    def _count_work(self, records: int) -> None:
        self._records_in_turn += records
        self._records_since_look += records

    def _begin_turn(self) -> None:
        self._turn_end_s = self._clock.monotonic() + TURN_S
        self._records_in_turn = 0

    async def _end_turn_if_over(self) -> None:
        if self._records_since_look < RECORDS_BETWEEN_LOOKS:
            return
        self._records_since_look = 0
        if self._records_in_turn >= RECORDS_PER_TURN or self._clock.monotonic() > self._turn_end_s:
            await asyncio.sleep(0)
            self._begin_turn()

    def _log_progress(self, shard: Shard[Any]) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._logged_s < PROGRESS_EVERY_S:
            return
        self._logged_s = now_s
        logger.info(
            "loading coordinator state partition=%s percent=%d records=%d waiting=%d",
            shard.partition.topic_partition,
            self._fraction * 100,
            shard.records_loaded,
            len(self._queue),
        )


def _mark_failed(shard: Shard[Any]) -> None:
    if shard.state is ShardState.LOADING:
        shard.mark_failed()


def _read(log: Log, offset: int) -> bytes:
    """Complete batches, and maybe a part of the next one; empty at the log end. For a worker."""
    try:
        found = log.read(max(offset, log.log_start_offset), READ_BYTES, log.log_end_offset).slice
        with log.guard:
            return b"" if found is None else found.read()
    except OffsetOutOfRange:
        return b""

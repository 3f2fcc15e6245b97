"""Moves of replicas between the log directories of this broker (Kafka: ReplicaAlterLogDirsManager; R30, KIP-113).

`future_log_steps` decides, this module reads, writes and waits. Each target directory has one fetcher, which copies
its partitions in turn, so that a slow disk delays only the moves to it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from tidelog.errors import (
    KafkaError,
    LogDirNotFound,
    OffsetOutOfRange,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)
from tidelog.replication.future_log_steps import (
    CopyFrom,
    PrepareSwap,
    StartFutureOverAt,
    SwapLogs,
    TruncateFutureTo,
    common_end,
    next_step,
)
from tidelog.replication.partition import Partition
from tidelog.runtime.clock import Clock
from tidelog.runtime.workers import Workers
from tidelog.storage.future_logs import truncate_future
from tidelog.storage.log import Log
from tidelog.storage.log_directory import LogDirectory
from tidelog.storage.log_manager import LogManager
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

COPY_BYTES: Final = 512 * 1024
"""Bytes appended in one step on the event loop, apart from a larger batch: about half a millisecond."""

RETRY_S: Final = 1.0
"""Pause after a step that failed: a shortage of descriptors, or a batch of the current log that is damaged."""

MAX_WAIT_S: Final = 1.0
"""Longest wait for the quota: a new rate takes effect after it at the latest."""


class MoveQuota(Protocol):
    """Limit of bytes per second: replica.alter.log.dirs.io.max.bytes.per.second."""

    def record(self, size: int, now_s: float) -> None: ...

    def wait_s(self, now_s: float) -> float:
        """Time until more may be copied; 0 if it may be now."""
        ...


class Unlimited:
    def record(self, size: int, now_s: float) -> None:
        pass

    def wait_s(self, now_s: float) -> float:
        return 0.0


class MoveProgress(NamedTuple):
    """A move of one partition that is under way."""

    topic_partition: TopicPartition
    source: str
    target: str
    lag: int
    """Offsets that the future log lacks."""


class _Move:
    """What a fetcher knows about one future log besides its records."""

    __slots__ = ("future", "is_reconciled", "logged_error", "prepared_end")

    def __init__(self, future: Log) -> None:
        self.future = future
        self.is_reconciled = False
        self.prepared_end: int | None = None
        self.logged_error = ""


class AlterLogDirsManager:
    """Starts, cancels and carries out moves. One object per broker; call every method on the event loop."""

    def __init__(
        self,
        logs: LogManager,
        get_partition: Callable[[str, int], Partition],
        clock: Clock,
        workers: Workers,
        quota: MoveQuota | None = None,
    ) -> None:
        self._logs = logs
        self._get_partition = get_partition
        self._clock = clock
        self._workers = workers
        self.quota = quota or Unlimited()
        self._moves: dict[TopicPartition, _Move] = {}
        self._wakes: dict[LogDirectory, asyncio.Event] = {directory: asyncio.Event() for directory in logs.directories}
        self.copy_bytes = COPY_BYTES
        self.swaps = 0
        self.unexpected_errors = 0
        """Errors that show a bug of this module."""

    # ---- requests

    def alter(self, topic_partition: TopicPartition, path: str) -> None:
        """Move the replica to the log dir with this path. Its current log dir cancels a move that is under way.

        A partition that is not here yet gets its log there later; until then the caller gets ReplicaNotAvailable and
        retries, as with Kafka. Raises KafkaError.
        """
        directory = self._logs.log_dirs.find(path)
        if directory is None:
            raise LogDirNotFound(f"{path} is not a log directory of this broker")
        if not directory.is_online:
            raise directory.offline_error()
        try:
            partition = self._get_partition(*topic_partition)
        except UnknownTopicOrPartition:
            self._logs.prefer_directory(topic_partition, directory)
            raise ReplicaNotAvailable(f"{topic_partition} has no log on this broker yet") from None
        future = self._logs.future.get(topic_partition)
        if future is not None and future.directory is directory:
            return
        if future is not None:
            self._logs.future.remove(topic_partition)
            self._moves.pop(topic_partition, None)
            logger.info("cancelled move partition=%s target=%s", topic_partition, future.directory.path)
        if partition.log.directory is directory:
            return
        future = self._logs.future.create(partition.log, directory)
        logger.info(
            "moving replica partition=%s from=%s to=%s bytes=%d",
            topic_partition,
            partition.log.directory.path,
            directory.path,
            partition.log.size_bytes,
        )
        self._wakes[directory].set()

    def on_leadership_change(self, leading: Iterable[Partition], not_leading: Iterable[Partition]) -> None:
        """The controller has assigned roles: continue moves that the last run of this broker has left unfinished."""
        if self._logs.future.logs:
            for partition in (*leading, *not_leading):
                future = self._logs.future.get(partition.topic_partition)
                if future is not None:
                    self._wakes[future.directory].set()

    def progress(self) -> list[MoveProgress]:
        return [
            MoveProgress(
                each,
                current.directory.path,
                future.directory.path,
                max(current.log_end_offset - future.log_end_offset, 0),
            )
            for each, future in self._logs.future.logs.items()
            if (current := self._logs.get(each)) is not None
        ]

    @property
    def failing(self) -> int:
        """Moves whose last step failed and is retried."""
        return sum(bool(move.logged_error) for move in self._moves.values())

    # ---- fetchers

    async def run(self) -> None:
        """Carry out moves until cancelled."""
        async with asyncio.TaskGroup() as group:
            for directory in self._logs.directories:
                group.create_task(self._fetch_into(directory))

    async def _fetch_into(self, directory: LogDirectory) -> None:
        wake = self._wakes[directory]
        while True:
            await wake.wait()
            wake.clear()
            while moving := self._moving_to(directory):
                for topic_partition in moving:
                    await asyncio.sleep(await self._advance(topic_partition))

    def _moving_to(self, directory: LogDirectory) -> list[TopicPartition]:
        """Future logs in the directory whose partitions are online here. Others wait for their role."""
        return [
            topic_partition
            for topic_partition, future in self._logs.future.logs.items()
            if future.directory is directory and directory.is_online and self._hosted(topic_partition) is not None
        ]

    def _hosted(self, topic_partition: TopicPartition) -> Partition | None:
        """The partition with the current log. None if it is offline, or has no role in this run of the broker yet."""
        try:
            partition = self._get_partition(*topic_partition)
        except KafkaError:
            return None
        return partition if partition.log is self._logs.get(topic_partition) else None

    async def _advance(self, topic_partition: TopicPartition) -> float:
        """One step of a move. Returns the time to wait before the next one."""
        future, partition = self._logs.future.get(topic_partition), self._hosted(topic_partition)
        if future is None or partition is None:
            self._moves.pop(topic_partition, None)
            return 0.0
        move = self._moves.get(topic_partition)
        if move is None or move.future is not future:
            move = self._moves[topic_partition] = _Move(future)
        try:
            pause_s = await self._step(partition, move)
        except OffsetOutOfRange:
            return 0.0  # the log start has passed the copied offset: the next step starts over there
        except KafkaError as error:
            if str(error) != move.logged_error:
                move.logged_error = str(error)
                logger.warning("move failed, retrying partition=%s error=%s", topic_partition, error)
            return RETRY_S
        except Exception:
            # An unexpected error of one partition does not affect the others.
            self.unexpected_errors += 1
            logger.exception("move failed, retrying partition=%s", topic_partition)
            return RETRY_S
        move.logged_error = ""
        return pause_s

    async def _step(self, partition: Partition, move: _Move) -> float:
        current, future = partition.log, move.future
        if not move.is_reconciled:
            truncate_future(future, common_end(current, future))
            move.is_reconciled = True
        match next_step(current, future, move.prepared_end):
            case CopyFrom(offset):
                wait_s = self.quota.wait_s(self._clock.monotonic())
                if wait_s > 0:
                    return min(wait_s, MAX_WAIT_S)
                await self._copy(partition, move, offset)
            case TruncateFutureTo(offset):
                truncate_future(future, offset)
            case StartFutureOverAt(offset):
                future.truncate_fully_and_start_at(offset)
            case PrepareSwap():
                if not await self._logs.future.prepare_swap(future):
                    return RETRY_S
                move.prepared_end = future.recovery_point
            case SwapLogs():
                return await self._swap(partition, move)
        return 0.0

    async def _copy(self, partition: Partition, move: _Move, offset: int) -> None:
        current, future = partition.log, move.future
        truncations = current.flusher.truncations
        records = await self._workers.run(_read, current, offset, self.copy_bytes)
        if (
            not records
            or partition.log is not current
            or self._logs.future.get(current.topic_partition) is not future
            or future.log_end_offset != offset
            or current.flusher.truncations != truncations  # what was read may be what was removed
        ):
            return
        future.append_as_follower(records)
        follow_offsets(current, future)
        self.quota.record(len(records), self._clock.monotonic())

    async def _swap(self, partition: Partition, move: _Move) -> float:
        """The swap itself is one step without a wait. What follows can be repeated by the next start."""
        topic_partition, logs = partition.topic_partition, self._logs
        if topic_partition in logs.future.finishing:
            return RETRY_S
        follow_offsets(partition.log, move.future)
        replaced = logs.future.swap(topic_partition)
        partition.replace_log(move.future)
        self._moves.pop(topic_partition, None)
        self.swaps += 1
        logger.info(
            "moved replica partition=%s from=%s to=%s log_end_offset=%d",
            topic_partition,
            replaced.directory.path,
            move.future.directory.path,
            move.future.log_end_offset,
        )
        await logs.future.finish_swap(replaced)
        return 0.0


def follow_offsets(current: Log, future: Log) -> None:
    """High watermark, log start and clean section of the current log, as far as the future log has the records."""
    future.raise_high_watermark(current.high_watermark)
    if future.log_start_offset < current.log_start_offset <= future.high_watermark:
        future.advance_log_start_offset(current.log_start_offset)
    future.cleaned_until = current.cleaned_until


def _read(log: Log, offset: int, max_bytes: int) -> bytes:
    """In a worker. Nothing if the log was truncated meanwhile."""
    end_offset = log.log_end_offset
    found = log.read(offset, max_bytes, end_offset).slice if offset < end_offset else None
    try:
        return b"" if found is None else found.read()
    except OSError as error:
        raise log.failed(error) from error

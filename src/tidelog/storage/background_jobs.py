"""Background jobs of a broker's logs: flushes, retention, checkpoints, expiry of producers and deletions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Never

from tidelog.config.broker import BrokerSettings
from tidelog.errors import KafkaStorageError
from tidelog.storage.checkpointing import CheckpointWriter
from tidelog.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from tidelog.storage.cleaner import Cleaner
from tidelog.storage.deletions import Deletions
from tidelog.storage.log import Log
from tidelog.storage.log_directory import StorageContext
from tidelog.storage.retention import load_timestamps

logger = logging.getLogger(__name__)

DELETION_INTERVAL_MS = 5_000

FLUSH_AGAIN_S = 1.0
"""Delay after a flush that failed for lack of descriptors."""

MIN_SLEEP_MS = 10
"""Lower bound for settings that allow an interval of 0, which would occupy the event loop."""

MAX_SLEEP_MS = 24 * 60 * 60 * 1000
"""Upper bound for intervals that mean "never" and exceed what a timer can hold. A daily run does no harm."""


class BackgroundJobs:
    """Runs each job at its interval. A log whose disk failed is skipped; the other logs go on."""

    def __init__(
        self,
        settings: BrokerSettings,
        context: StorageContext,
        online_logs: Callable[[], list[Log]],
        online_future_logs: Callable[[], list[Log]],
        checkpoints: CheckpointWriter,
        deletions: Deletions,
        cleaner: Cleaner,
    ) -> None:
        self.settings = settings
        self._context = context
        self._online_logs = online_logs
        self._online_future_logs = online_future_logs
        self._checkpoints = checkpoints
        self._deletions = deletions
        self._cleaner = cleaner
        self._rolled: dict[Log, None] = {}
        self._has_rolled = asyncio.Event()

    async def run(self) -> Never:
        """Run until cancelled."""
        settings, write = self.settings, self._checkpoints.write
        jobs: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (lambda: write(HIGH_WATERMARKS), settings.replica_high_watermark_checkpoint_interval_ms),
            (lambda: write(RECOVERY_POINTS), settings.log_flush_offset_checkpoint_interval_ms),
            (lambda: write(LOG_START_OFFSETS), settings.log_flush_start_offset_checkpoint_interval_ms),
            (self.flush_due_logs, settings.log_flush_scheduler_interval_ms),
            (self.enforce_retention, settings.log_retention_check_interval_ms),
            (self.expire_producers, settings.producer_id_expiration_check_interval_ms),
            (self.delete_due_files, DELETION_INTERVAL_MS),
        ]
        async with asyncio.TaskGroup() as group:
            for job, interval_ms in jobs:
                group.create_task(_repeat(job, interval_ms))
            group.create_task(self._flush_rolled_logs())
            if settings.log_cleaner_enable:
                group.create_task(self._cleaner.run(settings.log_cleaner_backoff_ms))
        raise AssertionError("the background jobs end only by cancellation")

    # ---- flushes

    def on_roll(self, log: Log) -> None:
        """Flush the log soon: its sealed segment does not change any more."""
        self._rolled[log] = None
        self._has_rolled.set()

    def forget(self, log: Log) -> None:
        """The log was deleted or set aside."""
        self._rolled.pop(log, None)

    async def _flush_rolled_logs(self) -> Never:
        while True:
            await self._has_rolled.wait()
            self._has_rolled.clear()
            while self._rolled:
                log, _ = self._rolled.popitem()
                if not await _flush_quietly(log) and log.directory.is_online and not log.is_deleted:
                    self._rolled[log] = None
                    await asyncio.sleep(FLUSH_AGAIN_S)

    async def flush_due_logs(self) -> None:
        """Flush logs whose flush.ms or flush.messages is reached."""
        now_ms = self._context.monotonic_ms()
        for log in [*self._online_logs(), *self._online_future_logs()]:
            is_due = now_ms - log.flusher.last_flush_ms >= log.settings.flush_ms
            if log.log_end_offset > log.recovery_point and (is_due or log.is_flush_due):
                await _flush_quietly(log)

    # ---- retention, expiry and deletion

    async def enforce_retention(self) -> None:
        now_ms = self._context.clock.now_ms()
        for log in self._online_logs():
            if not log.directory.is_online or log.is_deleted:
                continue
            try:
                await self._context.workers.run(load_timestamps, log.segments, log.settings, now_ms)
                deletable = log.delete_old_segments(now_ms)
            except (KafkaStorageError, FileNotFoundError):
                continue  # its directory went offline, which was logged; or the log was deleted meanwhile
            except OSError as error:
                log.directory.fail(error)
                continue
            if deletable:
                logger.info(
                    "deleted old segments partition=%s segments=%d log_start=%d",
                    log.topic_partition,
                    len(deletable),
                    log.log_start_offset,
                )

    async def expire_producers(self) -> None:
        now_ms, expiration_ms = self._context.clock.now_ms(), self.settings.producer_id_expiration_ms
        for log in self._online_logs():
            log.producers.remove_expired(self._context.monotonic_ms(), expiration_ms)
            log.producers.verifications.remove_older_than(now_ms - expiration_ms)

    async def delete_due_files(self) -> None:
        await self._deletions.delete_due([*self._online_logs(), *self._online_future_logs()])


async def _repeat(job: Callable[[], Awaitable[None]], interval_ms: int) -> Never:
    while True:
        await asyncio.sleep(max(MIN_SLEEP_MS, min(interval_ms, MAX_SLEEP_MS)) / 1000)
        await job()


async def _flush_quietly(log: Log) -> bool:
    """Whether the flush succeeded. A failure is logged and may take the directory offline."""
    if log.is_deleted:
        return True
    try:
        await log.flush()
    except KafkaStorageError as error:
        logger.debug("flush failed partition=%s error=%s", log.topic_partition, error)
        return False
    return True

"""Effects of follower decisions for one fetcher: append, truncate, delay, mark failed (R26 to R29)."""

import asyncio
import logging
from collections.abc import Callable

from tidelog.client.consumer.fetch_session import FetchSessionHandler
from tidelog.errors import KafkaError
from tidelog.protocol.messages.fetch import PartitionData
from tidelog.replication.fetcher_log_lines import FetcherLogLines
from tidelog.replication.follower import (
    DelayPartition,
    Effect,
    FetchedData,
    FollowerState,
    MarkPartitionFailed,
    TruncateFullyAndStartAt,
    TruncateTo,
    backoff_ms,
)
from tidelog.replication.leader_link import FetchingBroker
from tidelog.replication.partition_states import PartitionFetchState, PartitionStates
from tidelog.storage.disk_errors import ResourceShortage
from tidelog.storage.leader_epochs import EpochEnd
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


class FollowerEffectRunner:
    """Performs the effects that the followers of one fetcher decide. The fetcher itself only talks to the leader."""

    def __init__(
        self,
        broker: FetchingBroker,
        session: FetchSessionHandler,
        log_lines: FetcherLogLines,
        on_ready: Callable[[], None],
        on_partition_failed: Callable[[TopicPartition, str], None],
        on_write_error: Callable[[TopicPartition, str | None], None],
    ) -> None:
        """`on_ready` is called when delayed partitions may be fetched again."""
        self._broker = broker
        self._session = session
        self._log_lines = log_lines
        self._on_ready = on_ready
        self._on_partition_failed = on_partition_failed
        self._on_write_error = on_write_error
        self._loop = asyncio.get_running_loop()
        self.states = PartitionStates()
        self._write_errors: set[TopicPartition] = set()
        self._delayed: dict[int, list[tuple[PartitionFetchState, str]]] = {}
        """Partitions of this round by delay; their timers start when the round ends."""
        self._flushing: set[asyncio.Task[None]] = set()
        self.is_closed = False
        self.bytes = 0

    def remove(self, topic_partition: TopicPartition) -> None:
        fetch_state = self.states.remove(topic_partition)
        if fetch_state is None:
            return
        fetch_state.partition.on_high_watermark_wanted = None
        self._write_errors.discard(topic_partition)
        self._log_lines.forget(fetch_state)
        self._session.remove(topic_partition)

    def update(self, fetch_state: PartitionFetchState) -> None:
        """Index the partition by its current state. A partition that is not FETCHING leaves the session."""
        if self.states.is_current(fetch_state):
            self.states.update(fetch_state)
            if fetch_state.core.state is not FollowerState.FETCHING:
                self._session.remove(fetch_state.partition.topic_partition)

    async def close(self) -> None:
        """Wait for flushes in progress. `is_closed` prevents new ones."""
        await asyncio.gather(*self._flushing, return_exceptions=True)

    # ---- responses (R28)

    def process_safely(self, fetch_state: PartitionFetchState, data: PartitionData) -> None:
        """An unexpected error of one partition does not affect the others."""
        try:
            self.process_partition_data(fetch_state, data)
        except Exception as error:
            logger.exception("follower failed partition=%s", fetch_state.partition.topic_partition)
            self.perform(fetch_state, fetch_state.core.on_rejected(error))

    def process_partition_data(self, fetch_state: PartitionFetchState, data: PartitionData) -> None:
        """Process one partition of a Fetch response (R28)."""
        core, diverging = fetch_state.core, data.diverging_epoch
        if diverging is None or diverging.epoch < 0:
            effect = core.on_fetched(data.error_code, None)
        else:
            effect = core.on_fetched(data.error_code, EpochEnd(diverging.epoch, diverging.end_offset))
        if effect is FetchedData.RECORDS:
            self._append(fetch_state, data, data.records)  # type: ignore[arg-type]  # never a file when received
        elif effect is FetchedData.WATERMARKS:
            self._append(fetch_state, data, b"")
        else:
            self.perform(fetch_state, effect)

    def _append(
        self, fetch_state: PartitionFetchState, data: PartitionData, records: bytes | bytearray | memoryview | None
    ) -> None:
        core, partition = fetch_state.core, fetch_state.partition
        log_start_offset = partition.log.log_start_offset
        try:
            partition.append_as_follower(
                records or b"",
                leader_epoch=core.leader_epoch,
                leader_high_watermark=data.high_watermark,
                leader_log_start_offset=data.log_start_offset,
            )
        except KafkaError as error:
            self.perform(fetch_state, core.on_rejected(error))
            return
        core.leader_high_watermark = data.high_watermark
        self._on_appended(fetch_state)
        if records:
            self.bytes += len(records)
            if partition.throttled.as_follower:
                self._broker.quota.record(len(records), self._broker.clock.monotonic())
        if records and partition.log.is_flush_due:
            self.hold_until_flushed(fetch_state)
        elif records or partition.log.log_start_offset != log_start_offset:
            core.asked = None
            self.states.on_moved(fetch_state)

    def _on_appended(self, fetch_state: PartitionFetchState) -> None:
        fetch_state.core.on_appended()
        if self._write_errors and fetch_state.partition.topic_partition in self._write_errors:
            self._write_errors.discard(fetch_state.partition.topic_partition)
            self._on_write_error(fetch_state.partition.topic_partition, None)

    def hold_until_flushed(self, fetch_state: PartitionFetchState) -> None:
        """flush.messages: the next fetch confirms the records to the leader, so they must be on disk before it."""
        fetch_state.core.hold()
        self.update(fetch_state)
        task = self._loop.create_task(self._flush(fetch_state))
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)

    async def _flush(self, fetch_state: PartitionFetchState) -> None:
        while self.states.is_current(fetch_state) and not self.is_closed:
            try:
                await fetch_state.partition.log.flush()
            except ResourceShortage as shortage:
                # Retry the flush itself: fetching on without it would confirm records that are not on disk.
                fetch_state.core.failures += 1
                self._record_write_error(fetch_state, str(shortage))
                await asyncio.sleep(self._backoff_ms(fetch_state) / 1000)
            except KafkaError as error:
                self.perform(fetch_state, fetch_state.core.on_rejected(error))
                return
            else:
                self._on_appended(fetch_state)
                self._end_delay([fetch_state])
                return

    # ---- effects

    def perform(self, fetch_state: PartitionFetchState, effect: Effect | None) -> None:
        try:
            match effect:
                case TruncateTo(offset):
                    end_before = self._log_lines.before_truncation(fetch_state, offset)
                    fetch_state.partition.truncate_to(offset, leader_epoch=fetch_state.core.leader_epoch)
                    self._log_lines.after_truncation(fetch_state, end_before)
                case TruncateFullyAndStartAt(offset):
                    end_before = self._log_lines.before_truncation(fetch_state, offset)
                    fetch_state.partition.truncate_fully_and_start_at(
                        offset, leader_epoch=fetch_state.core.leader_epoch
                    )
                    self._log_lines.after_truncation(fetch_state, end_before)
                case DelayPartition(reason, is_own_fault):
                    if is_own_fault:
                        self._record_write_error(fetch_state, reason)
                    self._delay(fetch_state, reason)
                case MarkPartitionFailed():
                    self._mark_failed(fetch_state, effect)
                    return
                case _:
                    pass
        except KafkaError as error:
            self.perform(fetch_state, fetch_state.core.on_rejected(error))
        else:
            self.update(fetch_state)

    def _mark_failed(self, fetch_state: PartitionFetchState, end: MarkPartitionFailed) -> None:
        topic_partition = fetch_state.partition.topic_partition
        if self.states.is_current(fetch_state):
            self.remove(topic_partition)
            self._log_lines.on_partition_failed(fetch_state, end)
            self._on_partition_failed(topic_partition, end.reason)

    # ---- delays

    def _record_write_error(self, fetch_state: PartitionFetchState, reason: str) -> None:
        topic_partition = fetch_state.partition.topic_partition
        if self.states.is_current(fetch_state):
            self._write_errors.add(topic_partition)
            self._on_write_error(topic_partition, reason)

    def _backoff_ms(self, fetch_state: PartitionFetchState) -> int:
        return backoff_ms(fetch_state.core.failures, self._broker.settings().replica_fetch_backoff_ms)

    def _delay(self, fetch_state: PartitionFetchState, reason: str) -> None:
        self._delayed.setdefault(self._backoff_ms(fetch_state), []).append((fetch_state, reason))

    def begin_delays(self) -> None:
        """One timer and one log line for all partitions with the same delay."""
        if not self._delayed:
            return
        delayed, self._delayed = self._delayed, {}
        for delay_ms, waiting in delayed.items():
            self._log_lines.on_delayed(waiting, delay_ms)
            self._loop.call_later(delay_ms / 1000, self._end_delay, [fetch_state for fetch_state, _ in waiting])

    def _end_delay(self, waiting: list[PartitionFetchState]) -> None:
        for fetch_state in waiting:
            if self.states.is_current(fetch_state):
                fetch_state.core.resume()
                self.update(fetch_state)
        self._on_ready()

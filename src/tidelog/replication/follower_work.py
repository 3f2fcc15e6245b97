"""Performing of what the followers' cores of one fetcher decide: append, cut, wait, give up (R26 to R29)."""

import asyncio
import logging
from collections.abc import Callable

from tidelog.client.consumer.fetch_session import FetchSessionHandler
from tidelog.errors import KafkaError
from tidelog.protocol.messages.fetch import PartitionData
from tidelog.replication.fetcher_log_lines import FetcherLogLines
from tidelog.replication.follower import (
    AskAgainLater,
    CutTo,
    Effect,
    FollowerState,
    GiveUp,
    StartOverAt,
    Take,
    backoff_ms,
)
from tidelog.replication.leader_link import FetchingBroker
from tidelog.replication.partition_states import Followed, PartitionStates
from tidelog.storage.disk_errors import StorageShortage
from tidelog.storage.leader_epochs import EpochEnd
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


class FollowerWork:
    """What happens on this broker to the partitions of one fetcher; the fetcher talks to the leader."""

    def __init__(
        self,
        broker: FetchingBroker,
        session: FetchSessionHandler,
        story: FetcherLogLines,
        on_ready: Callable[[], None],
        on_given_up: Callable[[TopicPartition, str], None],
        on_trouble: Callable[[TopicPartition, str | None], None],
    ) -> None:
        """`on_ready` is called when partitions that waited may be asked for again."""
        self._broker = broker
        self._session = session
        self._story = story
        self._on_ready = on_ready
        self._on_given_up = on_given_up
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self.states = PartitionStates()
        self._troubled: set[TopicPartition] = set()
        self._delayed: dict[int, list[tuple[Followed, str]]] = {}
        """By their delay; from this round, not yet waiting."""
        self._flushing: set[asyncio.Task[None]] = set()
        self.is_closed = False
        self.bytes = 0

    def remove(self, topic_partition: TopicPartition) -> None:
        followed = self.states.remove(topic_partition)
        if followed is None:
            return
        self._troubled.discard(topic_partition)
        self._story.forget(followed)
        self._session.remove(topic_partition)

    def update(self, followed: Followed) -> None:
        """The core may be in another state now. A partition that is not to be fetched leaves the session."""
        if self.states.is_current(followed):
            self.states.update(followed)
            if followed.core.state is not FollowerState.FETCHING:
                self._session.remove(followed.partition.topic_partition)

    async def close(self) -> None:
        """Waits for flushes under way; `is_closed` keeps others from beginning."""
        await asyncio.gather(*self._flushing, return_exceptions=True)

    # ---- answers of the leader (R28)

    def process_safely(self, followed: Followed, data: PartitionData) -> None:
        """One partition that fails unexpectedly takes no other with it."""
        try:
            self.process_partition_data(followed, data)
        except Exception as error:
            logger.exception("follower failed partition=%s", followed.partition.topic_partition)
            self.perform(followed, followed.core.on_refused(error))

    def process_partition_data(self, followed: Followed, data: PartitionData) -> None:
        """What the leader says of one partition (R28)."""
        core, diverging = followed.core, data.diverging_epoch
        if diverging is None or diverging.epoch < 0:
            effect = core.on_fetched(data.error_code, None)
        else:
            effect = core.on_fetched(data.error_code, EpochEnd(diverging.epoch, diverging.end_offset))
        if effect is Take.RECORDS:
            self._append(followed, data, data.records)  # type: ignore[arg-type]  # never a file when received
        elif effect is Take.WATERMARKS:
            self._append(followed, data, b"")
        else:
            self.perform(followed, effect)

    def _append(self, followed: Followed, data: PartitionData, records: bytes | bytearray | memoryview | None) -> None:
        core, partition = followed.core, followed.partition
        log_start_offset = partition.log.log_start_offset
        try:
            partition.append_as_follower(
                records or b"",
                leader_epoch=core.leader_epoch,
                leader_high_watermark=data.high_watermark,
                leader_log_start_offset=data.log_start_offset,
            )
        except KafkaError as error:
            self.perform(followed, core.on_refused(error))
            return
        core.leader_high_watermark = data.high_watermark
        self._on_taken(followed)
        if records:
            self.bytes += len(records)
        if records and partition.log.is_flush_due:
            self.hold_until_flushed(followed)
        elif records or partition.log.log_start_offset != log_start_offset:
            core.asked = None
            self.states.on_moved(followed)

    def _on_taken(self, followed: Followed) -> None:
        followed.core.on_taken()
        if self._troubled and followed.partition.topic_partition in self._troubled:
            self._troubled.discard(followed.partition.topic_partition)
            self._on_trouble(followed.partition.topic_partition, None)

    def hold_until_flushed(self, followed: Followed) -> None:
        """flush.messages: the next fetch tells the leader what is safe here, so the disk has to have it first."""
        followed.core.hold()
        self.update(followed)
        task = self._loop.create_task(self._flush(followed))
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)

    async def _flush(self, followed: Followed) -> None:
        while self.states.is_current(followed) and not self.is_closed:
            try:
                await followed.partition.log.flush()
            except StorageShortage as shortage:
                # It must not go on unflushed: what is delayed is the flush.
                followed.core.failures += 1
                self._note_trouble(followed, str(shortage))
                await asyncio.sleep(self._backoff_ms(followed) / 1000)
            except KafkaError as error:
                self.perform(followed, followed.core.on_refused(error))
                return
            else:
                self._on_taken(followed)
                self._end_delay([followed])
                return

    # ---- what the core decides

    def perform(self, followed: Followed, effect: Effect | None) -> None:
        try:
            match effect:
                case CutTo(offset):
                    end_before = self._story.before_cut(followed, offset)
                    followed.partition.truncate_to(offset, leader_epoch=followed.core.leader_epoch)
                    self._story.after_cut(followed, end_before)
                case StartOverAt(offset):
                    end_before = self._story.before_cut(followed, offset)
                    followed.partition.truncate_fully_and_start_at(offset, leader_epoch=followed.core.leader_epoch)
                    self._story.after_cut(followed, end_before)
                case AskAgainLater(reason, is_own_fault):
                    if is_own_fault:
                        self._note_trouble(followed, reason)
                    self._delay(followed, reason)
                case GiveUp():
                    self._give_up(followed, effect)
                    return
                case _:
                    pass
        except KafkaError as error:
            self.perform(followed, followed.core.on_refused(error))
        else:
            self.update(followed)

    def _give_up(self, followed: Followed, end: GiveUp) -> None:
        topic_partition = followed.partition.topic_partition
        if self.states.is_current(followed):
            self.remove(topic_partition)
            self._story.on_given_up(followed, end)
            self._on_given_up(topic_partition, end.reason)

    # ---- delays

    def _note_trouble(self, followed: Followed, reason: str) -> None:
        topic_partition = followed.partition.topic_partition
        if self.states.is_current(followed):
            self._troubled.add(topic_partition)
            self._on_trouble(topic_partition, reason)

    def _backoff_ms(self, followed: Followed) -> int:
        return backoff_ms(followed.core.failures, self._broker.settings().replica_fetch_backoff_ms)

    def _delay(self, followed: Followed, reason: str) -> None:
        self._delayed.setdefault(self._backoff_ms(followed), []).append((followed, reason))

    def begin_delays(self) -> None:
        """One timer and one line for all that wait equally long."""
        if not self._delayed:
            return
        delayed, self._delayed = self._delayed, {}
        for delay_ms, waiting in delayed.items():
            self._story.on_delayed(waiting, delay_ms)
            self._loop.call_later(delay_ms / 1000, self._end_delay, [followed for followed, _ in waiting])

    def _end_delay(self, waiting: list[Followed]) -> None:
        for followed in waiting:
            if self.states.is_current(followed):
                followed.core.resume()
                self.update(followed)
        self._on_ready()

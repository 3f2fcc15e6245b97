"""Fetches partitions from one leader: reconciles, fetches and appends, one round after the other (R26).

A round is a question and its answer. The answer is handled, and the next question sent, in one synchronous step
while the frame's memory is valid: replication costs no task switch and no copy.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from tidelog.client.fetch_session import FetchSession, SessionRequest
from tidelog.errors import KafkaError
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData, ReplicaState
from tidelog.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from tidelog.protocol.structs import Response
from tidelog.replication.assignment import LeaderAddress
from tidelog.replication.fetcher_story import FetcherStory
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
from tidelog.replication.leader_link import FetchingBroker, LeaderLink
from tidelog.replication.leader_questions import epoch_ends_request, offsets_of, offsets_request
from tidelog.replication.partition import Partition
from tidelog.replication.partition_states import Followed, PartitionStates
from tidelog.storage.disk_errors import StorageShortage
from tidelog.storage.leader_epochs import EpochEnd
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

TOPIC_IDS_FROM_VERSION = 13


class FetcherStatistics(NamedTuple):
    leader: LeaderAddress
    client_id: str
    is_connected: bool
    started_s: float
    """By the monotonic clock."""
    requests: int
    bytes: int
    lags: dict[TopicPartition, int]


class Fetcher:
    """One connection to one leader, with one fetch on its way at a time."""

    def __init__(
        self,
        broker: FetchingBroker,
        leader: LeaderAddress,
        fetcher_id: int,
        on_given_up: Callable[[TopicPartition, str], None],
        on_trouble: Callable[[TopicPartition, str | None], None],
    ) -> None:
        """`on_trouble` is told why a partition cannot be written here now, though it is tried again, and None after."""
        self._broker = broker
        self._on_given_up = on_given_up
        self._on_trouble = on_trouble
        self._troubled: set[TopicPartition] = set()
        self._loop = asyncio.get_running_loop()
        self._session = FetchSession()
        self.states = PartitionStates()
        self._delayed: dict[int, list[tuple[Followed, str]]] = {}
        """By their delay; from this round, not yet waiting."""
        self._flushing: set[asyncio.Task[None]] = set()
        self._is_held = False  # a fetch on its way that the leader may hold back
        self._opens_session = True
        self._session_failures = 0
        self._is_look_due = False
        self._is_closed = False
        self._started_s = broker.clock.monotonic()
        self.requests = 0
        self.bytes = 0
        self._link = LeaderLink(
            broker, leader, f"broker-{broker.broker_id}-fetcher-{fetcher_id}", self._next_round, self._on_lost
        )
        self._story = FetcherStory(lambda: self._link.address)

    @property
    def leader(self) -> LeaderAddress:
        return self._link.address

    @property
    def lost_at(self) -> float:
        """When the leader ended the connection, until there is another one."""
        return self._link.lost_at

    def __len__(self) -> int:
        return len(self.states)

    def partitions(self) -> list[Partition]:
        return [followed.partition for followed in self.states]

    def statistics(self) -> FetcherStatistics:
        lags = {followed.partition.topic_partition: followed.core.lag for followed in self.states}
        is_connected = self._link.connection is not None
        return FetcherStatistics(
            self.leader, self._link.client_id, is_connected, self._started_s, self.requests, self.bytes, lags
        )

    # ---- what is followed

    def add(self, partition: Partition) -> None:
        """From now on, in its role of now; whatever is on its way for the partition no longer counts."""
        self.remove(partition.topic_partition)
        self._update(self.states.add(partition))
        self._look_soon()

    def remove(self, topic_partition: TopicPartition) -> None:
        followed = self.states.remove(topic_partition)
        if followed is None:
            return
        self._troubled.discard(topic_partition)
        self._story.forget(followed)
        self._session.remove(topic_partition)

    def retarget(self, leader: LeaderAddress) -> None:
        self._link.retarget(leader)

    async def close(self) -> None:
        self._is_closed = True
        await self._link.close()
        await asyncio.gather(*self._flushing, return_exceptions=True)

    def _update(self, followed: Followed) -> None:
        """The core may be in another state now. A partition that is not to be fetched leaves the session."""
        if self.states.is_current(followed):
            self.states.update(followed)
            if followed.core.state is not FollowerState.FETCHING:
                self._session.remove(followed.partition.topic_partition)

    # ---- rounds

    def _look_soon(self) -> None:
        """Once for all that is told in this turn of the loop."""
        if not self._is_look_due:
            self._is_look_due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """There may be something new to ask."""
        self._is_look_due = False
        if self._is_closed:
            return
        if self._link.connection is None:
            self._link.hurry()
        elif self._link.is_free:
            self._next_round()
        elif self._is_held:
            # The leader answers in order, so a new partition would wait behind the fetch that waits for records:
            # half a second more without its followers after an election. A further fetch of the session makes the
            # leader answer the one it holds; it keeps the connection, the session and what is on its way.
            behind = self._session.behind()
            if behind is not None:
                self._is_held = False
                self._send_fetch(behind, max_wait_ms=0)

    def _next_round(self) -> None:
        """Reconcile, then find the way back into range, then fetch (R26)."""
        if not self._link.is_free or self._is_closed:
            return
        if self.states.has_any(FollowerState.TRUNCATING):
            self._ask_epoch_ends()
        elif self.states.has_any(FollowerState.LOCATING):
            self._ask_ranges()
        elif self.states.has_any(FollowerState.FETCHING):
            self._fetch()

    def _end_round(self) -> None:
        if self._delayed:
            self._begin_delays()
        self._story.on_round_ended()
        self._next_round()

    def _on_lost(self) -> None:
        self._session.on_lost()
        self._is_held = False
        self._opens_session = True

    # ---- reconciling (R27)

    def _ask_epoch_ends(self) -> None:
        questions: list[tuple[Followed, int]] = []
        for followed in self.states.in_state(FollowerState.TRUNCATING):
            epoch = followed.core.ask_epoch()
            if epoch is None:
                self._perform(followed, followed.core.on_no_epochs())
            else:
                questions.append((followed, epoch))
        if questions:
            self._link.send(
                epoch_ends_request(
                    self._broker.broker_id,
                    ((each.partition.topic_partition, each.core.leader_epoch, epoch) for each, epoch in questions),
                ),
                self._on_epoch_ends,
            )
        else:
            self._next_round()

    def _on_epoch_ends(self, response: Response) -> None:
        assert isinstance(response, OffsetForLeaderEpochResponse)
        self._link.failures = 0
        reconciled = 0
        for topic in response.topics:
            for data in topic.partitions:
                followed = self.states.get(topic.topic, data.partition)
                if followed is None:
                    continue
                end = EpochEnd(data.leader_epoch, data.end_offset)
                self._perform(followed, followed.core.on_epoch_end(data.error_code, end))
                reconciled += followed.core.state is FollowerState.FETCHING
        if reconciled:
            self._story.on_reconciled(reconciled)
        self._end_round()

    # ---- out of range (R29)

    def _ask_ranges(self) -> None:
        followed = self.states.in_state(FollowerState.LOCATING)
        for each in followed:
            each.core.ask_range()
        asked = [(each.partition.topic_partition, each.core.leader_epoch) for each in followed]
        ends: dict[tuple[str, int], tuple[int, int]] = {}
        self._link.send(
            offsets_request(self._broker.broker_id, asked, is_end=True),
            lambda response: ends.update(offsets_of(response)),
        )
        self._link.send(
            offsets_request(self._broker.broker_id, asked, is_end=False),
            lambda response: self._on_ranges(offsets_of(response), ends),
        )

    def _on_ranges(
        self, starts: dict[tuple[str, int], tuple[int, int]], ends: dict[tuple[str, int], tuple[int, int]]
    ) -> None:
        for key, (start_error, start) in starts.items():
            followed, (end_error, end) = self.states.get(*key), ends.get(key, (0, -1))
            if followed is not None and key in ends:
                self._perform(followed, followed.core.on_range(start_error or end_error, start, end))
        self._end_round()

    # ---- fetching (R28)

    def _fetch(self) -> None:
        max_bytes = self._broker.settings().replica_fetch_max_bytes
        for topic_partition, followed in self.states.take_moved().items():
            core, log = followed.core, followed.partition.log
            wanted = FetchPartition(
                partition=topic_partition.partition,
                current_leader_epoch=core.leader_epoch,
                fetch_offset=core.ask_records(),
                last_fetched_epoch=log.leader_epochs.latest_epoch,
                log_start_offset=log.log_start_offset,
                partition_max_bytes=max_bytes,
            )
            self._session.set(topic_partition, followed.partition.topic_id, wanted)
        # The first fetch of a session is not held back: only a session can be told to hurry.
        self._is_held = not self._opens_session
        max_wait_ms = self._broker.settings().replica_fetch_wait_max_ms if self._is_held else 0
        uses_topic_ids = self._link.version_of(FetchRequest) >= TOPIC_IDS_FROM_VERSION
        self._send_fetch(self._session.build(use_topic_ids=uses_topic_ids), max_wait_ms)

    def _send_fetch(self, session: SessionRequest, max_wait_ms: int) -> None:
        settings = self._broker.settings()
        request = FetchRequest(
            replica_id=self._broker.broker_id,
            replica_state=ReplicaState(replica_id=self._broker.broker_id, replica_epoch=self._broker.broker_epoch()),
            max_wait_ms=max_wait_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.session_epoch,
            topics=session.topics,
            forgotten_topics_data=session.forgotten,
        )
        self.requests += 1
        self._link.send(request, self._on_fetched)

    def _on_fetched(self, response: Response) -> None:
        assert isinstance(response, FetchResponse)
        self._is_held = False
        if not self._session.on_answer(response):
            self._on_session_refused(response.error_code)
            return
        self._link.failures = self._session_failures = 0
        self._opens_session = False
        for topic in response.responses:
            for data in topic.partitions:
                index = data.partition_index
                followed = (
                    self.states.get(topic.topic, index) if topic.topic else self.states.get_by_id(topic.topic_id, index)
                )
                if followed is not None:
                    self._process_safely(followed, data)
        self._end_round()

    def _on_session_refused(self, error_code: int) -> None:
        """Start over with a full fetch: once at once, then more slowly."""
        self._opens_session = True
        delay_ms = backoff_ms(self._session_failures, self._broker.settings().replica_fetch_backoff_ms)
        self._session_failures += 1
        self._story.on_session_refused(error_code, delay_ms)
        self._loop.call_later(delay_ms / 1000, self._next_round)

    def _process_safely(self, followed: Followed, data: PartitionData) -> None:
        """One partition that fails unexpectedly takes no other with it."""
        try:
            self.process_partition_data(followed, data)
        except Exception as error:
            logger.exception("follower failed partition=%s", followed.partition.topic_partition)
            self._perform(followed, followed.core.on_refused(error))

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
            self._perform(followed, effect)

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
            self._perform(followed, core.on_refused(error))
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
        self._update(followed)
        task = self._loop.create_task(self._flush(followed))
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)

    async def _flush(self, followed: Followed) -> None:
        while self.states.is_current(followed) and not self._is_closed:
            try:
                await followed.partition.log.flush()
            except StorageShortage as shortage:
                # It must not go on unflushed: what is delayed is the flush.
                followed.core.failures += 1
                self._note_trouble(followed, str(shortage))
                await asyncio.sleep(self._backoff_ms(followed) / 1000)
            except KafkaError as error:
                self._perform(followed, followed.core.on_refused(error))
                return
            else:
                self._on_taken(followed)
                self._end_delay([followed])
                return

    # ---- what the core decides

    def _perform(self, followed: Followed, effect: Effect | None) -> None:
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
            self._perform(followed, followed.core.on_refused(error))
        else:
            self._update(followed)

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

    def _begin_delays(self) -> None:
        """One timer and one line for all that wait equally long."""
        delayed, self._delayed = self._delayed, {}
        for delay_ms, waiting in delayed.items():
            self._story.on_delayed(waiting, delay_ms)
            self._loop.call_later(delay_ms / 1000, self._end_delay, [followed for followed, _ in waiting])

    def _end_delay(self, waiting: list[Followed]) -> None:
        for followed in waiting:
            if self.states.is_current(followed):
                followed.core.resume()
                self._update(followed)
        self._look_soon()

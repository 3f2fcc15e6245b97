"""Fetches partitions from one leader: reconciles, fetches and appends, one round after the other (R26).

A round is a question and its answer. The answer is handled, and the next question sent, in one synchronous step
while the frame's memory is valid: replication costs no task switch and no copy.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from tidelog.client.consumer.fetch_session import FetchSession, SessionRequest
from tidelog.protocol.messages.fetch import (
    TOPIC_IDS_FROM_VERSION,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ReplicaState,
)
from tidelog.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from tidelog.protocol.structs import Response
from tidelog.replication.assignment import LeaderAddress
from tidelog.replication.fetcher_log_lines import FetcherLogLines
from tidelog.replication.follower import (
    FollowerState,
    backoff_ms,
)
from tidelog.replication.follower_work import FollowerWork
from tidelog.replication.leader_link import FetchingBroker, LeaderLink
from tidelog.replication.leader_queries import epoch_ends_request, offsets_of, offsets_request
from tidelog.replication.partition import Partition
from tidelog.replication.partition_states import Followed
from tidelog.storage.leader_epochs import EpochEnd
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


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
        self._loop = asyncio.get_running_loop()
        self._session = FetchSession()
        self._is_held = False  # a fetch on its way that the leader may hold back
        self._opens_session = True
        self._session_failures = 0
        self._is_look_due = False
        self._is_closed = False
        self._started_s = broker.clock.monotonic()
        self.requests = 0
        self._link = LeaderLink(
            broker, leader, f"broker-{broker.broker_id}-fetcher-{fetcher_id}", self._next_round, self._on_lost
        )
        self._story = FetcherLogLines(lambda: self._link.address)
        self._work = FollowerWork(broker, self._session, self._story, self._look_soon, on_given_up, on_trouble)
        self._states = self._work.states

    @property
    def leader(self) -> LeaderAddress:
        return self._link.address

    @property
    def lost_at(self) -> float:
        """When the leader ended the connection, until there is another one."""
        return self._link.lost_at

    def __len__(self) -> int:
        return len(self._states)

    def partitions(self) -> list[Partition]:
        return [followed.partition for followed in self._states]

    def statistics(self) -> FetcherStatistics:
        lags = {followed.partition.topic_partition: followed.core.lag for followed in self._states}
        is_connected = self._link.connection is not None
        return FetcherStatistics(
            self.leader, self._link.client_id, is_connected, self._started_s, self.requests, self._work.bytes, lags
        )

    # ---- what is followed

    def add(self, partition: Partition) -> None:
        """From now on, in its role of now; whatever is on its way for the partition no longer counts."""
        self.remove(partition.topic_partition)
        self._work.update(self._states.add(partition))
        self._look_soon()

    def remove(self, topic_partition: TopicPartition) -> None:
        self._work.remove(topic_partition)

    def retarget(self, leader: LeaderAddress) -> None:
        self._link.retarget(leader)

    async def close(self) -> None:
        self._is_closed = self._work.is_closed = True
        await self._link.close()
        await self._work.close()

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
        if self._states.has_any(FollowerState.TRUNCATING):
            self._ask_epoch_ends()
        elif self._states.has_any(FollowerState.LOCATING):
            self._ask_ranges()
        elif self._states.has_any(FollowerState.FETCHING):
            self._fetch()

    def _end_round(self) -> None:
        self._work.begin_delays()
        self._story.on_round_ended()
        self._next_round()

    def _on_lost(self) -> None:
        self._session.on_lost()
        self._is_held = False
        self._opens_session = True

    # ---- reconciling (R27)

    def _ask_epoch_ends(self) -> None:
        questions: list[tuple[Followed, int]] = []
        for followed in self._states.in_state(FollowerState.TRUNCATING):
            epoch = followed.core.ask_epoch()
            if epoch is None:
                self._work.perform(followed, followed.core.on_no_epochs())
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
                followed = self._states.get(topic.topic, data.partition)
                if followed is None:
                    continue
                end = EpochEnd(data.leader_epoch, data.end_offset)
                self._work.perform(followed, followed.core.on_epoch_end(data.error_code, end))
                reconciled += followed.core.state is FollowerState.FETCHING
        if reconciled:
            self._story.on_reconciled(reconciled)
        self._end_round()

    # ---- out of range (R29)

    def _ask_ranges(self) -> None:
        followed = self._states.in_state(FollowerState.LOCATING)
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
            followed, (end_error, end) = self._states.get(*key), ends.get(key, (0, -1))
            if followed is not None and key in ends:
                self._work.perform(followed, followed.core.on_range(start_error or end_error, start, end))
        self._end_round()

    # ---- fetching (R28)

    def _fetch(self) -> None:
        max_bytes = self._broker.settings().replica_fetch_max_bytes
        for topic_partition, followed in self._states.take_moved().items():
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
                    self._states.get(topic.topic, index)
                    if topic.topic
                    else self._states.get_by_id(topic.topic_id, index)
                )
                if followed is not None:
                    self._work.process_safely(followed, data)
        self._end_round()

    def _on_session_refused(self, error_code: int) -> None:
        """Start over with a full fetch: once at once, then more slowly."""
        self._opens_session = True
        delay_ms = backoff_ms(self._session_failures, self._broker.settings().replica_fetch_backoff_ms)
        self._session_failures += 1
        self._story.on_session_refused(error_code, delay_ms)
        self._loop.call_later(delay_ms / 1000, self._next_round)

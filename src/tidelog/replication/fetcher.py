"""Replica fetcher (Kafka: ReplicaFetcherThread): fetches all partitions that it follows from one leader (R26).

A round is one request and its response. The response is processed and the next request sent in one synchronous step
while the frame's memory is valid: replication costs no task switch and no copy.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidelog.client.consumer.fetch_session import FetchSessionHandler, SessionRequest
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
from tidelog.replication.follower_effects import FollowerEffectRunner
from tidelog.replication.follower_throttle import FollowerThrottle
from tidelog.replication.leader_link import FetchingBroker, LeaderLink
from tidelog.replication.leader_queries import epoch_ends_request, offsets_of, offsets_request
from tidelog.replication.partition import Partition
from tidelog.replication.partition_states import PartitionFetchState
from tidelog.runtime.broker_loop import call_at_end_of_turn
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
    """One connection to one leader, with one fetch in flight at a time."""

    def __init__(
        self,
        broker: FetchingBroker,
        leader: LeaderAddress,
        fetcher_id: int,
        on_partition_failed: Callable[[TopicPartition, str], None],
        on_write_error: Callable[[TopicPartition, str | None], None],
    ) -> None:
        """`on_write_error` gets the reason while a partition cannot be written here (it is retried), then None."""
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._session = FetchSessionHandler()
        self._is_held = False  # a fetch on its way that the leader may hold back
        self._opens_session = True
        self._session_failures = 0
        self._is_work_scheduled = False
        self._is_closed = False
        self._started_s = broker.clock.monotonic()
        self.requests = 0
        self._link = LeaderLink(
            broker, leader, f"broker-{broker.broker_id}-fetcher-{fetcher_id}", self._next_round, self._on_lost
        )
        self._log_lines = FetcherLogLines(lambda: self._link.address)
        self._effects = FollowerEffectRunner(
            broker, self._session, self._log_lines, self._schedule_work, on_partition_failed, on_write_error
        )
        self._states = self._effects.states
        self._throttle = FollowerThrottle(broker, self._states, self._session)
        self._quota_pause: asyncio.TimerHandle | None = None

    @property
    def leader(self) -> LeaderAddress:
        return self._link.address

    @property
    def lost_at(self) -> float:
        """When the leader closed the connection; -inf while connected."""
        return self._link.lost_at

    def __len__(self) -> int:
        return len(self._states)

    def partitions(self) -> list[Partition]:
        return [fetch_state.partition for fetch_state in self._states]

    def statistics(self) -> FetcherStatistics:
        lags = {fetch_state.partition.topic_partition: fetch_state.core.lag for fetch_state in self._states}
        is_connected = self._link.connection is not None
        return FetcherStatistics(
            self.leader, self._link.client_id, is_connected, self._started_s, self.requests, self._effects.bytes, lags
        )

    # ---- partitions

    def add(self, partition: Partition) -> None:
        """Fetch the partition in its current role. Responses to earlier requests for it are ignored."""
        self.remove(partition.topic_partition)
        fetch_state = self._states.add(partition)
        partition.on_high_watermark_wanted = partial(self._ask_high_watermark, fetch_state)
        self._effects.update(fetch_state)
        self._schedule_work()

    def _ask_high_watermark(self, fetch_state: PartitionFetchState) -> None:
        """Consumers wait at this follower: the next fetch, which is sent now, says so (R23)."""
        if self._states.is_current(fetch_state) and fetch_state.core.state is FollowerState.FETCHING:
            self._states.on_moved(fetch_state)
            self._schedule_work()

    def remove(self, topic_partition: TopicPartition) -> None:
        self._effects.remove(topic_partition)

    def retarget(self, leader: LeaderAddress) -> None:
        self._link.retarget(leader)

    async def close(self) -> None:
        self._is_closed = self._effects.is_closed = True
        await self._link.close()
        await self._effects.close()

    # ---- rounds

    def _schedule_work(self) -> None:
        """Runs `_do_work` once for all changes of this turn of the event loop."""
        if not self._is_work_scheduled:
            self._is_work_scheduled = True
            call_at_end_of_turn(self._do_work)

    def _do_work(self) -> None:
        """Start the next round, or cut short a wait, because a partition may be ready to fetch."""
        self._is_work_scheduled = False
        if self._is_closed:
            return
        if self._link.connection is None:
            self._link.hurry()
        elif self._link.is_free:
            self._next_round()
        elif self._is_held:
            # The leader answers in order, so a new partition would wait behind the fetch that waits for records:
            # half a second without followers after each election. Another fetch in the same session makes the leader
            # answer the one that it holds, without a new connection or session.
            behind = self._session.behind()
            if behind is not None:
                self._is_held = False
                self._send_fetch(behind, max_wait_ms=0)

    def _next_round(self) -> None:
        """Truncation comes first, then partitions out of range, then fetching (R26)."""
        if not self._link.is_free or self._is_closed:
            return
        if self._states.has_any(FollowerState.TRUNCATING):
            self._ask_epoch_ends()
        elif self._states.has_any(FollowerState.LOCATING):
            self._ask_ranges()
        elif self._states.has_any(FollowerState.FETCHING):
            self._fetch()

    def _end_round(self) -> None:
        self._effects.begin_delays()
        self._log_lines.on_round_ended()
        self._next_round()

    def _on_lost(self) -> None:
        self._session.on_lost()
        self._is_held = False
        self._opens_session = True

    # ---- truncation (R27)

    def _ask_epoch_ends(self) -> None:
        questions: list[tuple[PartitionFetchState, int]] = []
        for fetch_state in self._states.in_state(FollowerState.TRUNCATING):
            epoch = fetch_state.core.ask_epoch()
            if epoch is None:
                self._effects.perform(fetch_state, fetch_state.core.on_no_epochs())
            else:
                questions.append((fetch_state, epoch))
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
                fetch_state = self._states.get(topic.topic, data.partition)
                if fetch_state is None:
                    continue
                end = EpochEnd(data.leader_epoch, data.end_offset)
                self._effects.perform(fetch_state, fetch_state.core.on_epoch_end(data.error_code, end))
                reconciled += fetch_state.core.state is FollowerState.FETCHING
        if reconciled:
            self._log_lines.on_reconciled(reconciled)
        self._end_round()

    # ---- out of range (R29)

    def _ask_ranges(self) -> None:
        fetch_state = self._states.in_state(FollowerState.LOCATING)
        for each in fetch_state:
            each.core.ask_range()
        asked = [(each.partition.topic_partition, each.core.leader_epoch) for each in fetch_state]
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
            fetch_state, (end_error, end) = self._states.get(*key), ends.get(key, (0, -1))
            if fetch_state is not None and key in ends:
                self._effects.perform(fetch_state, fetch_state.core.on_range(start_error or end_error, start, end))
        self._end_round()

    # ---- fetching (R28)

    def _fetch(self) -> None:
        self._throttle.apply()
        max_bytes = self._broker.settings().replica_fetch_max_bytes
        for topic_partition, fetch_state in self._states.pop_moved().items():
            core, log = fetch_state.core, fetch_state.partition.log
            wanted = FetchPartition(
                partition=topic_partition.partition,
                current_leader_epoch=core.leader_epoch,
                fetch_offset=core.ask_records(),
                last_fetched_epoch=log.leader_epochs.latest_epoch,
                log_start_offset=log.log_start_offset,
                partition_max_bytes=max_bytes,
                high_watermark=core.ask_high_watermark(do_consumers_wait=fetch_state.partition.watchers.has_waiting),
            )
            self._session.set(topic_partition, fetch_state.partition.topic_id, wanted)
        if self._throttle.is_everything_left_out:
            self._pause_for_quota()
            return
        # The first fetch of a session must not wait: only a later fetch of a session can interrupt a wait.
        self._is_held = not self._opens_session
        max_wait_ms = self._broker.settings().replica_fetch_wait_max_ms if self._is_held else 0
        uses_topic_ids = self._link.version_of(FetchRequest) >= TOPIC_IDS_FROM_VERSION
        self._send_fetch(self._session.build(use_topic_ids=uses_topic_ids), max_wait_ms)

    def _pause_for_quota(self) -> None:
        """One timer at a time; a round that starts earlier, for another partition, finds it running."""
        if self._quota_pause is None:
            self._quota_pause = self._loop.call_later(self._throttle.pause_s, self._end_quota_pause)

    def _end_quota_pause(self) -> None:
        self._quota_pause = None
        self._next_round()

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
        if not self._session.on_response(response):
            self._on_session_rejected(response.error_code)
            return
        self._link.failures = self._session_failures = 0
        self._opens_session = False
        for topic in response.responses:
            for data in topic.partitions:
                index = data.partition_index
                fetch_state = (
                    self._states.get(topic.topic, index)
                    if topic.topic
                    else self._states.get_by_id(topic.topic_id, index)
                )
                if fetch_state is not None:
                    self._effects.process_safely(fetch_state, data)
        self._end_round()

    def _on_session_rejected(self, error_code: int) -> None:
        """Open a new session with a full fetch: the first time at once, then with backoff."""
        self._opens_session = True
        delay_ms = backoff_ms(self._session_failures, self._broker.settings().replica_fetch_backoff_ms)
        self._session_failures += 1
        self._log_lines.on_session_rejected(error_code, delay_ms)
        self._loop.call_later(delay_ms / 1000, self._next_round)

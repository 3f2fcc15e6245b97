"""How transactions ended, told to the leaders of their partitions: WriteTxnMarkers, repeated until it is done.

A marker that a partition has already is harmless, so whenever it is doubtful whether one was written it is sent again.
Each broker has one request under way; what comes meanwhile goes with the next one.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple

from tidelog.client.network.connection import ConnectionLost
from tidelog.client.network.lanes import BrokerLane, Links, close_lanes
from tidelog.client.network.retries import Backoff
from tidelog.cluster.image import ClusterImage
from tidelog.errors import (
    ERRORS_BY_CODE,
    NO_ERROR,
    InvalidProducerEpoch,
    TransactionCoordinatorFenced,
    UnknownServerError,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.runtime.clock import Clock
from tidelog.types import NO_BROKER, BrokerId, TopicPartition, indexes_by_topic

logger = logging.getLogger(__name__)

MAX_MARKERS_PER_REQUEST = 1000
REQUEST_TIMEOUT_S = 40.0
BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 2.0
MISSING_TOPIC_GRACE_S = 1.0
"""A topic that the image lacks for so long is deleted; one that is missing for a moment may be quite new."""


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_committed: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]
    coordinator_partition: int
    """Of the transaction state topic: whose leader sends the marker."""


OnWritten = Callable[[frozenset[TopicPartition]], None]


class _Pending:
    """A marker, as far as it is not written yet."""

    __slots__ = ("left", "marker", "on_written", "since_s")

    def __init__(self, marker: Marker, on_written: OnWritten, since_s: float) -> None:
        self.marker = marker
        self.left = set(marker.partitions)
        self.on_written = on_written
        self.since_s = since_s

    def written(self, partitions: Iterable[TopicPartition]) -> None:
        done = frozenset(self.left.intersection(partitions))
        if done:
            self.left -= done
            self.on_written(done)


class _Lane(BrokerLane[_Pending, set[TopicPartition]]):
    """What one broker is to be told, or what has no leader for now."""

    def __init__(self, send: Callable[[], Awaitable[None]]) -> None:
        super().__init__(
            send, key=lambda pending: pending.marker.producer_id, parts=set, max_items=MAX_MARKERS_PER_REQUEST
        )
        self.flight: dict[_Pending, set[TopicPartition]] = {}
        """What the request under way is about, as far as it still matters what this broker answers."""
        self.refused: dict[_Pending, set[TopicPartition]] = defaultdict(set)
        """What it could not write, to be asked for again in a while. Everything else goes on meanwhile."""
        self.timer: asyncio.TimerHandle | None = None
        self.lost = Backoff(None, BACKOFF_S, LONGEST_BACKOFF_S)
        self.refusals = Backoff(None, BACKOFF_S, LONGEST_BACKOFF_S)

    def put_back(self, partitions_of: dict[_Pending, set[TopicPartition]]) -> None:
        for pending, partitions in partitions_of.items():
            if partitions & pending.left:
                self.queue[pending] |= partitions & pending.left


class MarkerSender:
    """Sends markers until every partition has them, follows their leaders, and forgets what is no longer ours."""

    def __init__(self, links: Links, clock: Clock, image: Callable[[], ClusterImage]) -> None:
        self._links = links
        self._clock = clock
        self._image = image
        self._seen = image()
        self._pending: dict[int, set[_Pending]] = defaultdict(set)
        self._lanes: dict[BrokerId, _Lane] = {}
        self._missing: set[TopicPartition] = set()
        """Partitions without a leader whose topics the image lacked a while ago."""
        self._is_closed = False

    # ---- what others see

    def send(self, marker: Marker, on_written: OnWritten) -> None:
        """`on_written` hears of partitions as their leaders have the marker, or as their topics are gone."""
        pending = _Pending(marker, on_written, self._clock.monotonic())
        if not pending.left:
            on_written(frozenset())
            return
        self._pending[marker.coordinator_partition].add(pending)
        self._assign(pending, pending.left)

    def forget(self, coordinator_partition: int) -> None:
        """Another broker is the coordinator now, and sends them itself."""
        for pending in self._pending.pop(coordinator_partition, ()):
            pending.left.clear()
            for lane in self._lanes.values():
                lane.queue.pop(pending, None)
                lane.refused.pop(pending, None)

    def on_image(self, image: ClusterImage) -> None:
        """Leaders may have moved: what is unsent, or was sent to another than the leader of now, follows them."""
        if image.topics is self._seen.topics and image.brokers is self._seen.brokers:
            return
        self._seen = image
        for broker_id, lane in list(self._lanes.items()):
            for waiting in (lane.queue, lane.refused, lane.flight):
                self._follow_leaders(broker_id, waiting)

    def _follow_leaders(self, broker_id: BrokerId, waiting: dict[_Pending, set[TopicPartition]]) -> None:
        for pending, partitions in list(waiting.items()):
            moved = {each for each in partitions if self._leader_of(each) != broker_id}
            partitions -= moved
            if not partitions:
                del waiting[pending]
            self._assign(pending, moved)

    @property
    def pending_count(self) -> int:
        """Partitions that lack a marker."""
        return sum(len(pending.left) for pending in self._all_pending())

    @property
    def unknown_destination_count(self) -> int:
        """Of those, partitions that have no leader who could be told."""
        lane = self._lanes.get(NO_BROKER)
        return 0 if lane is None else sum(map(len, lane.queue.values()))

    @property
    def oldest_age_s(self) -> float:
        """For how long the marker that waits longest has waited; 0 if none does."""
        now_s = self._clock.monotonic()
        return max((now_s - pending.since_s for pending in self._all_pending()), default=0.0)

    def _all_pending(self) -> Iterator[_Pending]:
        for several in self._pending.values():
            yield from several

    async def close(self) -> None:
        self._is_closed = True
        for lane in self._lanes.values():
            if lane.timer is not None:
                lane.timer.cancel()
        await close_lanes(self._lanes.values())

    # ---- who is to be told

    def _leader_of(self, topic_partition: TopicPartition) -> BrokerId:
        """NO_BROKER also for a leader that is not alive, and for a partition that is not known."""
        image = self._image()
        partition = image.partition(topic_partition)
        return partition.leader if partition is not None and partition.leader in image.brokers else NO_BROKER

    def _assign(self, pending: _Pending, partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in sorted(partitions):  # in one order, however strings hash
            leader = self._leader_of(topic_partition)
            lane = self._lane_to(leader)
            lane.queue[pending].add(topic_partition)
            self._run(lane)

    def _lane_to(self, broker_id: BrokerId) -> _Lane:
        lane = self._lanes.get(broker_id)
        if lane is None:
            if broker_id == NO_BROKER:
                lane = _Lane(self._wait_for_leaders)
            else:
                lane = _Lane(lambda: self._tell(broker_id))
            self._lanes[broker_id] = lane
        return lane

    def _run(self, lane: _Lane) -> None:
        if not self._is_closed:
            lane.run()

    async def _wait_for_leaders(self) -> None:
        """Leaders are told by images; only that a topic stays away has to be noticed."""
        lane = self._lanes[NO_BROKER]
        await asyncio.sleep(MISSING_TOPIC_GRACE_S)
        waiting = {each for partitions in lane.queue.values() for each in partitions}
        before, self._missing = self._missing, {each for each in waiting if self._image().partition(each) is None}
        for pending, partitions in list(lane.queue.items()):
            gone = partitions & self._missing & before
            partitions -= gone
            if not partitions:
                del lane.queue[pending]
            self._on_gone(pending, gone)
        if not lane.queue:
            self._missing = set()

    def _on_gone(self, pending: _Pending, partitions: set[TopicPartition]) -> None:
        if partitions:
            logger.info(
                "no marker is needed, the topics are gone producer_id=%d partitions=%s",
                pending.marker.producer_id,
                ",".join(sorted(map(str, partitions))),
            )
            self._on_written(pending, partitions)

    def _on_written(self, pending: _Pending, partitions: Iterable[TopicPartition]) -> None:
        pending.written(partitions)
        if not pending.left:
            several = self._pending.get(pending.marker.coordinator_partition)
            if several is not None:
                several.discard(pending)

    # ---- telling one broker

    async def _tell(self, broker_id: BrokerId) -> None:
        lane = self._lanes[broker_id]
        if not await self._tell_once(broker_id, lane):
            await asyncio.sleep(lane.lost.next_s())

    async def _tell_once(self, broker_id: BrokerId, lane: _Lane) -> bool:
        """Whether it answered."""
        lane.flight = flight = lane.take()
        request = WriteTxnMarkersRequest([_message(pending.marker, parts) for pending, parts in flight.items()])
        try:
            answer = await self._links.ask(broker_id, request, WriteTxnMarkersResponse, REQUEST_TIMEOUT_S)
            lane.lost.reset()
            self._on_answer(broker_id, lane, answer)
        except ConnectionLost as error:
            logger.info("markers were not written, trying again broker=%d error=%s", broker_id, error)
        except Exception:
            logger.exception("markers were not written, trying again broker=%d", broker_id)
        is_answered = not lane.flight
        lane.put_back(lane.flight)
        lane.flight = {}
        return is_answered

    def _on_answer(self, broker_id: BrokerId, lane: _Lane, answer: WriteTxnMarkersResponse) -> None:
        codes = _codes(answer)
        for pending, partitions in list(lane.flight.items()):
            told = codes.get(pending.marker.producer_id, {})
            # What has moved meanwhile was sent to others too, and is as good as written if this broker did it.
            self._on_written(pending, [each for each in pending.left if _is_done(told.get(each))])
            del lane.flight[pending]
            if partitions & pending.left:
                self._on_refused(broker_id, lane, pending, partitions & pending.left)
                self._log_failure(broker_id, pending, partitions & pending.left, told)
        if not lane.refused:
            lane.refusals.reset()

    def _on_refused(self, broker_id: BrokerId, lane: _Lane, pending: _Pending, partitions: set[TopicPartition]) -> None:
        """Asked again after a rest, or as soon as there is another leader."""
        moved = {each for each in partitions if self._leader_of(each) != broker_id}
        self._assign(pending, moved)
        if partitions - moved:
            lane.refused[pending] |= partitions - moved
            if lane.timer is None:
                loop = asyncio.get_running_loop()
                lane.timer = loop.call_later(lane.refusals.next_s(), self._ask_again, broker_id, lane)

    def _ask_again(self, broker_id: BrokerId, lane: _Lane) -> None:
        lane.timer = None
        lane.put_back(lane.refused)
        lane.refused.clear()
        self._run(lane)

    def _log_failure(
        self, broker_id: BrokerId, pending: _Pending, left: set[TopicPartition], told: dict[TopicPartition, int]
    ) -> None:
        first = min(left)
        error = ERRORS_BY_CODE.get(told.get(first, UnknownServerError.code), UnknownServerError)
        log = logger.warning if error is TransactionCoordinatorFenced else logger.info
        log(
            "a marker was refused, trying again broker=%d producer_id=%d partition=%s of=%d error=%s",
            broker_id,
            pending.marker.producer_id,
            first,
            len(left),
            error.__name__,
        )


def _is_done(code: int | None) -> bool:
    """A later epoch of the producer writes there only since this transaction has ended there."""
    return code in (NO_ERROR, InvalidProducerEpoch.code)


def _message(marker: Marker, partitions: set[TopicPartition]) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_committed,
        topics=[
            WritableTxnMarkerTopic(name, indexes) for name, indexes in indexes_by_topic(sorted(partitions)).items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _codes(answer: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, int]]:
    """By producer id and partition."""
    return {
        result.producer_id: {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for topic in result.topics
            for partition in topic.partitions
        }
        for result in answer.markers
    }

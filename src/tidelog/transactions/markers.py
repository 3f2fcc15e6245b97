"""Transaction marker sender: WriteTxnMarkers to partition leaders, retried until every partition has its marker.

A duplicate marker is harmless, so a marker is sent again whenever it is uncertain whether it was written. Each broker
has one request in flight; markers that arrive in the meantime go with the next one.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple

from tidelog.client.network.broker_request_queue import BrokerRequestQueue, Links, close_queues
from tidelog.client.network.connection import ConnectionLost
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
MAX_BACKOFF_S = 2.0
MISSING_TOPIC_GRACE_S = 1.0
"""A topic missing from the image for this long counts as deleted; one missing for less may be new."""


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_committed: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]
    coordinator_partition: int
    """Partition of `__transaction_state` whose leader sends the marker."""


OnWritten = Callable[[frozenset[TopicPartition]], None]


class _PendingMarker:
    """A marker with the partitions (`left`) that do not have it yet."""

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


class _BrokerMarkers(BrokerRequestQueue[_PendingMarker, set[TopicPartition]]):
    """Markers for one broker. The queue of NO_BROKER has those whose partitions have no leader."""

    def __init__(self, send: Callable[[], Awaitable[None]]) -> None:
        super().__init__(
            send, key=lambda pending: pending.marker.producer_id, parts=set, max_items=MAX_MARKERS_PER_REQUEST
        )
        self.flight: dict[_PendingMarker, set[TopicPartition]] = {}
        """Partitions of the request in flight, without those that have another leader by now."""
        self.rejected: dict[_PendingMarker, set[TopicPartition]] = defaultdict(set)
        """Partitions that the broker refused, sent again after a pause. Other markers do not wait for them."""
        self.timer: asyncio.TimerHandle | None = None
        self.lost = Backoff(None, BACKOFF_S, MAX_BACKOFF_S)
        self.rejections = Backoff(None, BACKOFF_S, MAX_BACKOFF_S)

    def put_back(self, partitions_of: dict[_PendingMarker, set[TopicPartition]]) -> None:
        for pending, partitions in partitions_of.items():
            if partitions & pending.left:
                self.queue[pending] |= partitions & pending.left


class MarkerSender:
    """Sends markers until every partition has them; follows leader and coordinator changes."""

    def __init__(
        self,
        links: Links,
        clock: Clock,
        image: Callable[[], ClusterImage],
        identity: Callable[[], tuple[BrokerId, int]] = lambda: (NO_BROKER, -1),
    ) -> None:
        """`identity`: this broker's id and epoch, by which it proves to be a broker."""
        self._links = links
        self._clock = clock
        self._image = image
        self._identity = identity
        self._seen = image()
        self._pending: dict[int, set[_PendingMarker]] = defaultdict(set)
        self._by_broker: dict[BrokerId, _BrokerMarkers] = {}
        self._missing: set[TopicPartition] = set()
        """Partitions that were missing from the image at the last check."""
        self._is_closed = False

    # ---- interface

    def send(self, marker: Marker, on_written: OnWritten) -> None:
        """`on_written` is called with partitions once they have the marker, or once their topics are deleted."""
        pending = _PendingMarker(marker, on_written, self._clock.monotonic())
        if not pending.left:
            on_written(frozenset())
            return
        self._pending[marker.coordinator_partition].add(pending)
        self._assign(pending, pending.left)

    def forget(self, coordinator_partition: int) -> None:
        """Drop the markers of a partition that another broker coordinates now: that broker sends them."""
        for pending in self._pending.pop(coordinator_partition, ()):
            pending.left.clear()
            for markers in self._by_broker.values():
                markers.queue.pop(pending, None)
                markers.rejected.pop(pending, None)

    def on_image(self, image: ClusterImage) -> None:
        """Reassign markers to new leaders, also those in flight to a previous leader."""
        if image.topics is self._seen.topics and image.brokers is self._seen.brokers:
            return
        self._seen = image
        for broker_id, markers in list(self._by_broker.items()):
            for waiting in (markers.queue, markers.rejected, markers.flight):
                self._follow_leaders(broker_id, waiting)

    def _follow_leaders(self, broker_id: BrokerId, waiting: dict[_PendingMarker, set[TopicPartition]]) -> None:
        for pending, partitions in list(waiting.items()):
            moved = {each for each in partitions if self._leader_of(each) != broker_id}
            partitions -= moved
            if not partitions:
                del waiting[pending]
            self._assign(pending, moved)

    @property
    def pending_count(self) -> int:
        """Number of partitions that lack a marker."""
        return sum(len(pending.left) for pending in self._all_pending())

    @property
    def unknown_destination_count(self) -> int:
        """Number of partitions that lack a marker and have no leader."""
        markers = self._by_broker.get(NO_BROKER)
        return 0 if markers is None else sum(map(len, markers.queue.values()))

    @property
    def oldest_age_s(self) -> float:
        """Age of the oldest pending marker; 0 if there is none."""
        now_s = self._clock.monotonic()
        return max((now_s - pending.since_s for pending in self._all_pending()), default=0.0)

    def _all_pending(self) -> Iterator[_PendingMarker]:
        for several in self._pending.values():
            yield from several

    async def close(self) -> None:
        self._is_closed = True
        for markers in self._by_broker.values():
            if markers.timer is not None:
                markers.timer.cancel()
        await close_queues(self._by_broker.values())

    # ---- queues by leader

    def _leader_of(self, topic_partition: TopicPartition) -> BrokerId:
        """NO_BROKER also if the leader is not alive or the partition is unknown."""
        image = self._image()
        partition = image.partition(topic_partition)
        return partition.leader if partition is not None and partition.leader in image.brokers else NO_BROKER

    def _assign(self, pending: _PendingMarker, partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in sorted(partitions):  # sorted, so that the order does not depend on string hashes
            leader = self._leader_of(topic_partition)
            markers = self._markers_for(leader)
            markers.queue[pending].add(topic_partition)
            self._run(markers)

    def _markers_for(self, broker_id: BrokerId) -> _BrokerMarkers:
        markers = self._by_broker.get(broker_id)
        if markers is None:
            if broker_id == NO_BROKER:
                markers = _BrokerMarkers(self._wait_for_leaders)
            else:
                markers = _BrokerMarkers(lambda: self._send_to(broker_id))
            self._by_broker[broker_id] = markers
        return markers

    def _run(self, markers: _BrokerMarkers) -> None:
        if not self._is_closed:
            markers.run()

    async def _wait_for_leaders(self) -> None:
        """Drop partitions of deleted topics. `on_image` handles new leaders."""
        markers = self._by_broker[NO_BROKER]
        await asyncio.sleep(MISSING_TOPIC_GRACE_S)
        waiting = {each for partitions in markers.queue.values() for each in partitions}
        before, self._missing = self._missing, {each for each in waiting if self._image().partition(each) is None}
        for pending, partitions in list(markers.queue.items()):
            gone = partitions & self._missing & before
            partitions -= gone
            if not partitions:
                del markers.queue[pending]
            self._on_gone(pending, gone)
        if not markers.queue:
            self._missing = set()

    def _on_gone(self, pending: _PendingMarker, partitions: set[TopicPartition]) -> None:
        if partitions:
            logger.info(
                "dropped markers of deleted topics producer_id=%d partitions=%s",
                pending.marker.producer_id,
                ",".join(sorted(map(str, partitions))),
            )
            self._on_written(pending, partitions)

    def _on_written(self, pending: _PendingMarker, partitions: Iterable[TopicPartition]) -> None:
        pending.written(partitions)
        if not pending.left:
            several = self._pending.get(pending.marker.coordinator_partition)
            if several is not None:
                several.discard(pending)

    # ---- requests

    async def _send_to(self, broker_id: BrokerId) -> None:
        markers = self._by_broker[broker_id]
        if not await self._send_once(broker_id, markers):
            await asyncio.sleep(markers.lost.next_s())

    async def _send_once(self, broker_id: BrokerId, markers: _BrokerMarkers) -> bool:
        """True if the broker answered."""
        markers.flight = flight = markers.take()
        messages = [_message(pending.marker, parts) for pending, parts in flight.items()]
        sender_id, sender_epoch = self._identity()
        request = WriteTxnMarkersRequest(messages, broker_id=sender_id, broker_epoch=sender_epoch)
        try:
            response = await self._links.ask(broker_id, request, WriteTxnMarkersResponse, REQUEST_TIMEOUT_S)
            markers.lost.reset()
            self._on_response(broker_id, markers, response)
        except ConnectionLost as error:
            logger.info("failed to write markers, retrying broker=%d error=%s", broker_id, error)
        except Exception:
            logger.exception("failed to write markers, retrying broker=%d", broker_id)
        is_answered = not markers.flight
        markers.put_back(markers.flight)
        markers.flight = {}
        return is_answered

    def _on_response(self, broker_id: BrokerId, markers: _BrokerMarkers, response: WriteTxnMarkersResponse) -> None:
        codes_by_producer = _codes(response)
        for pending, partitions in list(markers.flight.items()):
            codes = codes_by_producer.get(pending.marker.producer_id, {})
            # Includes partitions that moved to another leader: if this broker wrote the marker, it is written.
            self._on_written(pending, [each for each in pending.left if _is_done(codes.get(each))])
            del markers.flight[pending]
            if partitions & pending.left:
                self._on_rejected(broker_id, markers, pending, partitions & pending.left)
                self._log_rejected(broker_id, pending, partitions & pending.left, codes)
        if not markers.rejected:
            markers.rejections.reset()

    def _on_rejected(
        self, broker_id: BrokerId, markers: _BrokerMarkers, pending: _PendingMarker, partitions: set[TopicPartition]
    ) -> None:
        """Retry after a pause, or at once if there is another leader."""
        moved = {each for each in partitions if self._leader_of(each) != broker_id}
        self._assign(pending, moved)
        if partitions - moved:
            markers.rejected[pending] |= partitions - moved
            if markers.timer is None:
                loop = asyncio.get_running_loop()
                markers.timer = loop.call_later(markers.rejections.next_s(), self._retry_rejected, broker_id, markers)

    def _retry_rejected(self, broker_id: BrokerId, markers: _BrokerMarkers) -> None:
        markers.timer = None
        markers.put_back(markers.rejected)
        markers.rejected.clear()
        self._run(markers)

    def _log_rejected(
        self, broker_id: BrokerId, pending: _PendingMarker, left: set[TopicPartition], codes: dict[TopicPartition, int]
    ) -> None:
        first = min(left)
        error = ERRORS_BY_CODE.get(codes.get(first, UnknownServerError.code), UnknownServerError)
        log = logger.warning if error is TransactionCoordinatorFenced else logger.info
        log(
            "broker refused marker, retrying broker=%d producer_id=%d partition=%s partitions=%d error=%s",
            broker_id,
            pending.marker.producer_id,
            first,
            len(left),
            error.__name__,
        )


def _is_done(code: int | None) -> bool:
    """True if the partition has the marker. InvalidProducerEpoch: a later epoch writes only after this marker."""
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


def _codes(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, int]]:
    """Error codes by producer id and partition."""
    return {
        result.producer_id: {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for topic in result.topics
            for partition in topic.partitions
        }
        for result in response.markers
    }

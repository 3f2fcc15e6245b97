"""WriteTxnMarkers (API key 27): appends commit and abort markers to partitions that this broker leads.

Transaction coordinators send it, and administrators who abort a hanging transaction. Without an authorizer a commit
marker needs the proof that a broker sends it, or a listener that only brokers use; an abort marker does not, since
Kafka's tools send it for administrators. Coordinators of Apache Kafka cannot prove anything: in a cluster with such
brokers no proof is needed. A repeated marker is harmless, so that senders without a response retry.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

from tidelog.cluster.topic_names import GROUP_TOPIC
from tidelog.controller.context_loading import load_brokers
from tidelog.errors import (
    NO_ERROR,
    ClusterAuthorizationFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaError,
    NotCoordinator,
    NotLeaderOrFollower,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.protocol.records import ControlType, build_end_marker
from tidelog.replicated.machine import Producer
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.runtime.deferred import Deferred, gather
from tidelog.runtime.delayed_reply import DelayedReply
from tidelog.runtime.purgatory import Watchers
from tidelog.server.commit_waits import CommitWait
from tidelog.server.dispatch import RequestContext
from tidelog.server.sliced_requests import MANY
from tidelog.storage.validation import AppendOrigin
from tidelog.store.interface import StoreError

EPOCH_PER_TRANSACTION_FROM_VERSION = 2
"""Version of transactions, not of the API: the marker has a higher producer epoch than its transaction (KIP-890)."""

COMMIT_TIMEOUT_S = 30.0
BROKER_MARKERS_AT_ONCE = 20
COORDINATOR_IS_AWAY = (CoordinatorNotAvailable, CoordinatorLoadInProgress, NotCoordinator)


def reject_write_txn_markers(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [WritableTxnMarkerPartitionResult(index, error.code) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def handle_write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> Deferred[WriteTxnMarkersResponse] | Coroutine[Any, Any, WriteTxnMarkersResponse]:
    is_proved = context.session.is_only_for_brokers or context.is_from_broker(request.broker_id, request.broker_epoch)
    if not is_proved and any(marker.transaction_result for marker in request.markers):
        return _write_if_store_permits(request, context)
    if sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics) > MANY:
        return _write_in_slices(request, context, may_commit=is_proved)
    written = _Written(context, may_commit=is_proved)
    return written.answer_with(_response(request, [written.write(*each) for each in _markers_of(request)]))


async def _write_if_store_permits(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    may_commit = context.session.is_inter_broker and await _is_permitted_by_store(request, context)
    return await _write_in_slices(request, context, may_commit=may_commit)


async def _write_in_slices(
    request: WriteTxnMarkersRequest, context: RequestContext, *, may_commit: bool
) -> WriteTxnMarkersResponse:
    """Each marker is one step, with other work in between. Requests of brokers do not queue behind clients."""
    written = _Written(context, may_commit=may_commit)
    response = WriteTxnMarkersResponse([])
    number = 0
    for marker in request.markers:
        result = WritableTxnMarkerResult(marker.producer_id, [])
        response.markers.append(result)
        for topic in marker.topics:
            partitions: list[WritableTxnMarkerPartitionResult] = []
            result.topics.append(WritableTxnMarkerTopicResult(topic.name, partitions))
            for index in topic.partition_indexes:
                partitions.append(written.write(marker, topic.name, index))
                number += 1
                if not context.connection.is_privileged:
                    await context.services.turns.yield_turn()
                elif number % BROKER_MARKERS_AT_ONCE == 0:
                    await asyncio.sleep(0)
    return await written.answer_with(response).wait()


def _markers_of(request: WriteTxnMarkersRequest) -> Iterator[tuple[WritableTxnMarker, str, int]]:
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                yield marker, topic.name, index


async def _is_permitted_by_store(request: WriteTxnMarkersRequest, context: RequestContext) -> bool:
    """The epoch may be newer than the image; a controller of Apache Kafka puts no epochs there at all."""
    try:
        brokers = await load_brokers(context.services.membership.store)
    except StoreError:
        return False
    sender = brokers.get(request.broker_id)
    is_registered = sender is not None and sender.epoch == request.broker_epoch
    return is_registered or any(not broker.directory_ids for broker in brokers.values())  # only Tidelog's have ids


def _response(
    request: WriteTxnMarkersRequest, results: Iterable[WritableTxnMarkerPartitionResult]
) -> WriteTxnMarkersResponse:
    """`results`: of each partition, in the order of the request."""
    rest = iter(results)
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(topic.name, [next(rest) for _ in topic.partition_indexes])
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


class _Written:
    """The markers of one request. The response is sent when each of them is committed or has failed."""

    def __init__(self, context: RequestContext, *, may_commit: bool) -> None:
        self._context = context
        self._may_commit = may_commit
        self._services = context.services
        self._waits: list[_Wait] = []
        self._of_groups: list[Deferred[None]] = []

    def write(self, marker: WritableTxnMarker, topic: str, index: int) -> WritableTxnMarkerPartitionResult:
        result = WritableTxnMarkerPartitionResult(index, NO_ERROR)
        try:
            self._write(marker, topic, index, result)
        except KafkaError as error:
            result.error_code = error.code
        return result

    def _write(
        self, marker: WritableTxnMarker, topic: str, index: int, result: WritableTxnMarkerPartitionResult
    ) -> None:
        self._context.require_inter_broker_listener()
        if marker.transaction_result and not self._may_commit:
            raise ClusterAuthorizationFailed("only brokers commit transactions")
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise InvalidRequest("a marker needs a producer id and a producer epoch")
        partition = self._services.replicas.get(topic, index)
        partition.require_leader()
        if marker.transaction_version >= EPOCH_PER_TRANSACTION_FROM_VERSION:
            partition.log.producers.check_newer_epoch(marker.producer_id, marker.producer_epoch)
        else:
            # The epoch of such a marker does not show whether waiting batches belong to the next transaction.
            partition.log.producers.verifications.end(marker.producer_id)
            if topic == GROUP_TOPIC:
                self._services.groups.break_guards(index, marker.producer_id)
        if topic == GROUP_TOPIC:
            self._write_to_group_coordinator(marker, index, result)
        else:
            self._append(marker, partition, result)

    def _append(
        self, marker: WritableTxnMarker, partition: Partition, result: WritableTxnMarkerPartitionResult
    ) -> None:
        batch = build_end_marker(
            ControlType.COMMIT if marker.transaction_result else ControlType.ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self._services.clock.now_ms(),
        )
        appended = partition.append_as_leader(memoryview(batch), ACKS_ALL, AppendOrigin.COORDINATOR)
        self._waits.append(_Wait(partition, appended.last_offset + 1, result))

    def _write_to_group_coordinator(
        self, marker: WritableTxnMarker, index: int, result: WritableTxnMarkerPartitionResult
    ) -> None:
        """Pending offsets of the transaction become committed, or are dropped."""

        def on_failed(error: KafkaError) -> None:
            # Transaction coordinators retry on partition errors, and do not know errors of groups.
            is_away = isinstance(error, COORDINATOR_IS_AWAY)
            result.error_code = NotLeaderOrFollower.code if is_away else error.code

        ended: Deferred[None] = Deferred(on_failed)
        self._of_groups.append(ended)
        self._services.groups.topic.append_end_marker(
            index,
            Producer(marker.producer_id, marker.producer_epoch),
            is_committed=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            reply=ended,
        )

    def answer_with(self, response: WriteTxnMarkersResponse) -> Deferred[WriteTxnMarkersResponse]:
        return gather([self._committed(), *self._of_groups]).map(lambda _: response)

    def _committed(self) -> Deferred[None]:
        operation = DelayedMarkers(self._waits)
        if all(wait.is_over() for wait in self._waits):
            operation.on_completed()
            return operation.reply
        watched = {id(wait.partition): wait.partition.watchers for wait in self._waits}.values()
        return operation.wait_in(self._services.purgatory, watched, COMMIT_TIMEOUT_S)


class _Wait(CommitWait):
    __slots__ = ("_result",)

    def __init__(self, partition: Partition, end_offset: int, result: WritableTxnMarkerPartitionResult) -> None:
        super().__init__(partition, end_offset)
        self._result = result

    def finish(self) -> None:
        error = self.failure()
        self._result.error_code = NO_ERROR if error is None else error.code


class DelayedMarkers(DelayedReply[None]):
    """Waits until the markers are committed, or can no longer be."""

    __slots__ = ("_waits",)

    kind = "WriteTxnMarkers"

    def __init__(self, waits: list[_Wait]) -> None:
        super().__init__()
        self._waits = waits

    def is_satisfied(self, changed: Watchers) -> bool:
        return all(wait.is_over() for wait in self._waits)

    def on_completed(self) -> None:
        for wait in self._waits:
            wait.finish()
        self.reply.resolve(None)

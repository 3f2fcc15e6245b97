"""State of one controller term: context, pending requests and the channels to brokers."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol, TypeAlias

from tidelog.cluster.image import BrokerRegistration, PartitionRegistration
from tidelog.config.broker import BrokerSettings
from tidelog.controller.context import ControllerContext, LogEndQuery
from tidelog.controller.events import Event, LeaderAndIsrResponseReceived
from tidelog.controller.fenced_store import FencedStore
from tidelog.controller.registration import ControllerFence
from tidelog.controller.request_batch import RequestBatch
from tidelog.controller.response_events import (
    QueriedLog,
    deletions_in,
    is_plain_success,
    leader_and_isr_response_event,
    log_ends_response_event,
    stop_replica_response_event,
)
from tidelog.controller.states import Replica
from tidelog.controller.statistics import ControllerStatistics
from tidelog.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.protocol.messages.stop_replica import StopReplicaRequest
from tidelog.protocol.structs import Request, Response
from tidelog.store.interface import Store, Watch, WatchEvent
from tidelog.types import BrokerId, TopicPartition, Uuid

logger = logging.getLogger(__name__)


class Channels(Protocol):
    """Interface of controller.channels.ControllerChannels, faked in tests."""

    def add(self, broker: BrokerRegistration) -> None: ...

    def remove(self, broker_id: BrokerId) -> None: ...

    def send(
        self, broker_id: BrokerId, request: Request, on_response: Callable[[Response], None] | None = None
    ) -> None: ...

    async def settle(self, timeout_s: float) -> None: ...

    async def close(self) -> None: ...


ChannelsFactory: TypeAlias = Callable[[], Channels]


class ControllerTerm:
    """Exists from the election of this broker as controller until its resignation."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        fence: ControllerFence,
        store: Store,
        channels: Channels,
        settings: Callable[[], BrokerSettings],
        statistics: ControllerStatistics,
        put_event: Callable[[Event], None],
    ) -> None:
        self.broker_id = broker_id
        self.fence = fence
        self.store = FencedStore(store, fence)
        self.channels = channels
        self.settings = settings
        self.statistics = statistics
        self.context = ControllerContext()
        self._listener_name = settings().listener_of_peers
        self.batch = self._new_batch()
        self._log_end_queries: dict[BrokerId, dict[TopicPartition, QueriedLog]] = {}
        self._put_event = put_event
        self._attempts = itertools.count(1)
        self._has_seen_errors = False
        self._scheduled: set[Event] = set()

    def put(self, event: Event) -> None:
        """Queue the event, unless the term has ended."""
        if not self.store.is_over:
            self._put_event(event)

    def put_later(self, event: Event, delay_s: float) -> None:
        asyncio.get_running_loop().call_later(delay_s, self.put, event)

    def put_once_later(self, event: Event, delay_s: float) -> None:
        """Schedule the event, unless an equal one is scheduled already."""
        if event not in self._scheduled:
            self._scheduled.add(event)
            asyncio.get_running_loop().call_later(delay_s, self._put_scheduled, event)

    def _put_scheduled(self, event: Event) -> None:
        self._scheduled.discard(event)
        self.put(event)

    def watch(self, event: Event) -> Watch:
        """A watch that queues the event."""

        def changed(_: WatchEvent) -> None:
            self.put(event)

        return changed

    def close(self) -> None:
        """End the term: it makes no more writes, requests or events."""
        self.store.is_over = True
        for broker_id in self.context.brokers:
            self.channels.remove(broker_id)

    async def close_channels(self) -> None:
        await self.channels.close()

    # ---- requests to brokers, sent at the end of the event

    def enqueue_leader_and_isr(
        self, topic_partition: TopicPartition, brokers: Iterable[BrokerId], *, is_new: bool
    ) -> None:
        topic = self.context.topics[topic_partition.topic]
        partition = topic.partitions[topic_partition.partition]
        self.batch.add_leader_and_isr(brokers, topic.name, topic.topic_id, partition, is_new=is_new)

    def enqueue_update_metadata(self, partitions: Iterable[TopicPartition]) -> None:
        """Publish these partitions to all brokers, for metadata responses to clients."""
        described = [self._described(each, self.context.partition(each)) for each in partitions]
        self.batch.add_metadata(self.context.brokers, described)

    def enqueue_whole_metadata(self, brokers: Iterable[BrokerId]) -> None:
        described = [
            self._described(topic_partition, partition)
            for topic_partition, partition in self.context.partitions()
            if not self.context.is_being_deleted(topic_partition)
        ]
        self.batch.add_metadata(brokers, described, is_whole_cluster=True)

    def _described(
        self, topic_partition: TopicPartition, partition: PartitionRegistration
    ) -> tuple[str, Uuid, PartitionRegistration]:
        topic = self.context.topics[topic_partition.topic]
        if partition.eligible_leader_replicas:
            partition = self._with_last_known_eligible(topic_partition, partition)
        return topic.name, topic.topic_id, partition

    def _with_last_known_eligible(
        self, topic_partition: TopicPartition, partition: PartitionRegistration
    ) -> PartitionRegistration:
        """As in Kafka, a replica that restarted uncleanly moves from the eligible to the last known eligible ones."""
        health = self.context.health(topic_partition)
        doubted = health.restarted - health.clean
        return replace(
            partition,
            eligible_leader_replicas=tuple(each for each in partition.eligible_leader_replicas if each not in doubted),
            last_known_eligible=tuple(each for each in partition.eligible_leader_replicas if each in doubted),
        )

    def enqueue_log_end_query(self, broker_id: BrokerId, topic_partition: TopicPartition, query: LogEndQuery) -> None:
        """Sent at the end of the event, after LeaderAndIsr says that the partition has no leader."""
        topic_id = self.context.topics[topic_partition.topic].topic_id
        self._log_end_queries.setdefault(broker_id, {})[topic_partition] = QueriedLog(topic_id, query)

    def send(self) -> None:
        """Send everything enqueued since the last call (R36)."""
        if self.store.is_over:
            return
        batch, self.batch = self.batch, self._new_batch()
        for broker_id, request in batch.build(self.context.brokers):
            self.channels.send(broker_id, request, self._response_handler(broker_id, request))
        questions, self._log_end_queries = self._log_end_queries, {}
        for broker_id, logs in questions.items():
            self._send_log_end_query(broker_id, logs)

    def _send_log_end_query(self, broker_id: BrokerId, logs: Mapping[TopicPartition, QueriedLog]) -> None:
        indexes: dict[str, list[int]] = {}
        for topic, index in logs:
            indexes.setdefault(topic, []).append(index)
        topics = [DescribableLogDirTopic(topic=topic, partitions=found) for topic, found in indexes.items()]
        self.channels.send(
            broker_id,
            DescribeLogDirsRequest(topics=topics),
            lambda response: self.put(log_ends_response_event(broker_id, logs, response)),
        )

    def _new_batch(self) -> RequestBatch:
        return RequestBatch(self.broker_id, self.fence.epoch, self._listener_name)

    def _response_handler(self, broker_id: BrokerId, request: Request) -> Callable[[Response], None] | None:
        if isinstance(request, LeaderAndIsrRequest):
            return lambda response: self._on_leader_and_isr_response(broker_id, request, response)
        if isinstance(request, StopReplicaRequest):
            attempt = self._record_attempt(broker_id, request)
            return lambda response: self._put_response_event(
                stop_replica_response_event(broker_id, request, response, attempt)
            )
        return None

    def _on_leader_and_isr_response(
        self, broker_id: BrokerId, request: LeaderAndIsrRequest, response: Response
    ) -> None:
        # Without earlier errors a success contains nothing new, which is the usual case.
        if self._has_seen_errors or not is_plain_success(request, response):
            self._put_response_event(leader_and_isr_response_event(broker_id, request, response))

    def _record_attempt(self, broker_id: BrokerId, request: StopReplicaRequest) -> int:
        """R43: only the response to the latest StopReplica counts for the replicas that it deletes."""
        attempt = next(self._attempts)
        for topic_partition in deletions_in(request):
            self.context.deletion_attempts[Replica(topic_partition, broker_id)] = attempt
        return attempt

    def _put_response_event(self, event: Event | None) -> None:
        match event:
            case LeaderAndIsrResponseReceived(failed=failed, rejected=rejected) if not (failed or rejected):
                if self._has_seen_errors:
                    self.put(event)  # otherwise the response contains nothing new, which is the usual case
            case LeaderAndIsrResponseReceived():
                # Recorded now, not when the event is handled: a response that reverses it may arrive before that.
                self._has_seen_errors = True
                self.put(event)
            case Event():
                self.put(event)

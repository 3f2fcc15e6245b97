"""One term of the controller: what its events work with, and how what they decide reaches the brokers."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol, TypeAlias

from tidelog.cluster.image import Broker, Partition
from tidelog.config.broker import BrokerSettings
from tidelog.controller.context import Asked, ControllerContext
from tidelog.controller.events import Event, LeaderAndIsrAnswered
from tidelog.controller.fenced_store import FencedStore
from tidelog.controller.registration import ControllerFence
from tidelog.controller.request_batch import RequestBatch
from tidelog.controller.response_events import (
    AskedLog,
    deletions_in,
    leader_and_isr_answered,
    log_ends_answered,
    stop_replica_answered,
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
    """The way to the brokers: controller.channels.ControllerChannels, or what stands for it in tests."""

    def add(self, broker: Broker) -> None: ...

    def remove(self, broker_id: BrokerId) -> None: ...

    def send(
        self, broker_id: BrokerId, request: Request, on_answer: Callable[[Response], None] | None = None
    ) -> None: ...

    async def settle(self, timeout_s: float) -> None: ...

    async def close(self) -> None: ...


ChannelsFactory: TypeAlias = Callable[[], Channels]


class ControllerTerm:
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
        self._listener_name = settings().inter_broker_listener_name
        self.batch = self._new_batch()
        self._questions: dict[BrokerId, dict[TopicPartition, AskedLog]] = {}
        self._put_event = put_event
        self._attempts = itertools.count(1)
        self._has_seen_errors = False
        self._scheduled: set[Event] = set()

    def put(self, event: Event) -> None:
        """Unless the term is over."""
        if not self.store.is_over:
            self._put_event(event)

    def put_later(self, event: Event, delay_s: float) -> None:
        asyncio.get_running_loop().call_later(delay_s, self.put, event)

    def put_once_later(self, event: Event, delay_s: float) -> None:
        """Unless an equal event is scheduled this way already."""
        if event not in self._scheduled:
            self._scheduled.add(event)
            asyncio.get_running_loop().call_later(delay_s, self._put_scheduled, event)

    def _put_scheduled(self, event: Event) -> None:
        self._scheduled.discard(event)
        self.put(event)

    def watch(self, event: Event) -> Watch:
        """A watch that puts the event."""

        def changed(_: WatchEvent) -> None:
            self.put(event)

        return changed

    def close(self) -> None:
        """From now on nothing has effect: no write, no request, no event."""
        self.store.is_over = True
        for broker_id in self.context.brokers:
            self.channels.remove(broker_id)

    async def close_channels(self) -> None:
        await self.channels.close()

    # -- what goes to brokers at the end of the event

    def enqueue_leader_and_isr(
        self, topic_partition: TopicPartition, brokers: Iterable[BrokerId], *, is_new: bool
    ) -> None:
        topic = self.context.topics[topic_partition.topic]
        partition = topic.partitions[topic_partition.partition]
        self.batch.add_leader_and_isr(brokers, topic.name, topic.topic_id, partition, is_new=is_new)

    def enqueue_update_metadata(self, partitions: Iterable[TopicPartition]) -> None:
        """What all brokers answer to clients about these partitions."""
        described = [self._described(each, self.context.partition(each)) for each in partitions]
        self.batch.add_metadata(self.context.brokers, described)

    def enqueue_whole_metadata(self, brokers: Iterable[BrokerId]) -> None:
        described = [
            self._described(topic_partition, partition)
            for topic_partition, partition in self.context.partitions()
            if not self.context.is_being_deleted(topic_partition)
        ]
        self.batch.add_metadata(brokers, described, is_whole_cluster=True)

    def _described(self, topic_partition: TopicPartition, partition: Partition) -> tuple[str, Uuid, Partition]:
        topic = self.context.topics[topic_partition.topic]
        if partition.eligible_replicas:
            partition = self._with_last_known_eligible(topic_partition, partition)
        return topic.name, topic.topic_id, partition

    def _with_last_known_eligible(self, topic_partition: TopicPartition, partition: Partition) -> Partition:
        """As Kafka tells it: who restarted uncleanly is not eligible any more, and was the last one known to be."""
        health = self.context.health(topic_partition)
        doubted = health.restarted - health.clean
        return replace(
            partition,
            eligible_replicas=tuple(each for each in partition.eligible_replicas if each not in doubted),
            last_known_eligible=tuple(each for each in partition.eligible_replicas if each in doubted),
        )

    def ask_for_log_end(self, broker_id: BrokerId, topic_partition: TopicPartition, asked: Asked) -> None:
        """At the end of the event, after the broker was told that the partition has no leader."""
        topic_id = self.context.topics[topic_partition.topic].topic_id
        self._questions.setdefault(broker_id, {})[topic_partition] = AskedLog(topic_id, asked)

    def send(self) -> None:
        """All that was decided since the last time (R36)."""
        if self.store.is_over:
            return
        batch, self.batch = self.batch, self._new_batch()
        for broker_id, request in batch.build(self.context.brokers):
            self.channels.send(broker_id, request, self._on_answer_of(broker_id, request))
        questions, self._questions = self._questions, {}
        for broker_id, logs in questions.items():
            self._send_question(broker_id, logs)

    def _send_question(self, broker_id: BrokerId, logs: Mapping[TopicPartition, AskedLog]) -> None:
        indexes: dict[str, list[int]] = {}
        for topic, index in logs:
            indexes.setdefault(topic, []).append(index)
        topics = [DescribableLogDirTopic(topic=topic, partitions=found) for topic, found in indexes.items()]
        self.channels.send(
            broker_id,
            DescribeLogDirsRequest(topics=topics),
            lambda answer: self.put(log_ends_answered(broker_id, logs, answer)),
        )

    def _new_batch(self) -> RequestBatch:
        return RequestBatch(self.broker_id, self.fence.epoch, self._listener_name)

    def _on_answer_of(self, broker_id: BrokerId, request: Request) -> Callable[[Response], None] | None:
        if isinstance(request, LeaderAndIsrRequest):
            return lambda answer: self._put_found(leader_and_isr_answered(broker_id, request, answer))
        if isinstance(request, StopReplicaRequest):
            attempt = self._note_attempt(broker_id, request)
            return lambda answer: self._put_found(stop_replica_answered(broker_id, request, answer, attempt))
        return None

    def _note_attempt(self, broker_id: BrokerId, request: StopReplicaRequest) -> int:
        """R43: from now on only the answer to this request tells what became of the replicas that it deletes."""
        attempt = next(self._attempts)
        for topic_partition in deletions_in(request):
            self.context.deletion_attempts[Replica(topic_partition, broker_id)] = attempt
        return attempt

    def _put_found(self, event: Event | None) -> None:
        match event:
            case LeaderAndIsrAnswered(failed=failed, refused=refused) if not (failed or refused):
                if self._has_seen_errors:
                    self.put(event)  # else it says nothing new, as nearly always
            case LeaderAndIsrAnswered():
                # Noted here, not when the event is worked on: an answer that takes it back may arrive before that.
                self._has_seen_errors = True
                self.put(event)
            case Event():
                self.put(event)

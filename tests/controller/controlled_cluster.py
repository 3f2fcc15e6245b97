"""Brokers registered in one store and the controllers of some; what controllers send is recorded and answered."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from tests.controller.cluster_under_test import broker
from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration, PartitionRegistration
from tidelog.config.broker import BrokerSettings
from tidelog.controller.context_loading import load_topics
from tidelog.controller.controller import Controller
from tidelog.controller.registration import find_cluster_id, prepare_store, register_broker
from tidelog.errors import NO_ERROR, KafkaStorageError
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.types import TopicPartition

RequestT = TypeVar("RequestT", bound=Request)


@dataclass
class Sent:
    broker_id: int
    request: Request


@dataclass
class FakeBrokers:
    """What brokers would answer. The answers of a broker in `silent` are held back."""

    sent: list[Sent] = field(default_factory=list)
    silent: set[int] = field(default_factory=set)
    held_back: list[Callable[[], None]] = field(default_factory=list)
    failed_replicas: set[tuple[int, TopicPartition]] = field(default_factory=set)
    log_ends: dict[int, dict[tuple[str, int], tuple[int, int]]] = field(default_factory=dict)
    """By broker and partition, last epoch and end of the log: for those that can be asked (R42)."""

    def answer(self, broker_id: int, request: Request) -> Response:
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(
                topics=[
                    LeaderAndIsrTopicError(
                        topic.topic_id,
                        [
                            LeaderAndIsrPartitionError(
                                state.partition_index,
                                self._code(broker_id, TopicPartition(topic.topic_name, state.partition_index)),
                            )
                            for state in topic.partition_states
                        ],
                    )
                    for topic in request.topic_states
                ]
            )
        if isinstance(request, StopReplicaRequest):
            return StopReplicaResponse(
                partition_errors=[
                    StopReplicaPartitionError(
                        topic.topic_name,
                        state.partition_index,
                        self._code(broker_id, TopicPartition(topic.topic_name, state.partition_index)),
                    )
                    for topic in request.topic_states
                    for state in topic.partition_states
                ]
            )
        if isinstance(request, DescribeLogDirsRequest):
            return self._log_ends(broker_id, request)
        return UpdateMetadataResponse()

    def _log_ends(self, broker_id: int, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        """A broker that is not in `log_ends` answers as Apache Kafka would."""
        ends = self.log_ends.get(broker_id)
        topics = [
            DescribeLogDirsTopic(
                name=topic.topic,
                partitions=[DescribeLogDirsPartition(partition_index=index) for index in topic.partitions]
                if ends is None
                else [
                    DescribeLogDirsPartition(
                        partition_index=index,
                        last_epoch=ends[topic.topic, index][0],
                        log_end_offset=ends[topic.topic, index][1],
                    )
                    for index in topic.partitions
                    if (topic.topic, index) in ends
                ],
            )
            for topic in request.topics or ()
        ]
        directory_id = "" if ends is None else f"directory-of-{broker_id}"
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(topics=topics, directory_id=directory_id)])

    def _code(self, broker_id: int, partition: TopicPartition) -> int:
        return KafkaStorageError.code if (broker_id, partition) in self.failed_replicas else NO_ERROR


class FakeChannels:
    def __init__(self, brokers: FakeBrokers) -> None:
        self._brokers = brokers
        self.open: dict[int, BrokerRegistration] = {}
        self.is_closed = False

    def add(self, broker: BrokerRegistration) -> None:
        assert broker.id not in self.open
        self.open[broker.id] = broker

    def remove(self, broker_id: int) -> None:
        self.open.pop(broker_id, None)

    def send(self, broker_id: int, request: Request, on_response: Callable[[Response], None] | None = None) -> None:
        if broker_id not in self.open:
            return
        self._brokers.sent.append(Sent(broker_id, request))
        if on_response is None:
            return
        deliver = partial(on_response, self._brokers.answer(broker_id, request))
        if broker_id in self._brokers.silent:
            self._brokers.held_back.append(deliver)
        else:
            asyncio.get_running_loop().call_soon(deliver)

    async def settle(self, timeout_s: float) -> None: ...

    async def close(self) -> None:
        self.is_closed = True


class ControlledCluster:
    def __init__(self, settings: BrokerSettings) -> None:
        self.state = MemoryStoreState()
        self.settings = settings
        self.brokers = FakeBrokers()
        self.stores: dict[int, MemoryStore] = {}
        self.controllers: dict[int, Controller] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.store: MemoryStore
        """Of somebody who is no broker."""

    @classmethod
    async def start(
        cls, broker_ids: Sequence[int] = (1, 2, 3), settings: BrokerSettings | None = None, *, controller: bool = True
    ) -> "ControlledCluster":
        cluster = cls(settings or BrokerSettings())
        cluster.store = MemoryStore(cluster.state)
        await prepare_store(cluster.store)
        await find_cluster_id(cluster.store, SeededRandomness(1))
        for broker_id in broker_ids:
            await cluster.start_broker(broker_id)
        if controller:
            await cluster.start_controller(broker_ids[0])
        return cluster

    # -- brokers and controllers

    async def start_broker(self, broker_id: int, **fields: Any) -> BrokerRegistration:
        store = self.stores[broker_id] = MemoryStore(self.state)
        registered = await register_broker(store, replace(broker(broker_id), **fields), ManualClock())
        await self.settle()
        return registered

    async def kill_broker(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.state.expire(self.stores.pop(broker_id).session_id)
        await self.settle()

    async def restart_broker(self, broker_id: int) -> None:
        """So fast that the controller sees only the new registration."""
        self.state.expire(self.stores.pop(broker_id).session_id)
        self.stores[broker_id] = MemoryStore(self.state)
        await register_broker(self.stores[broker_id], broker(broker_id), ManualClock())
        await self.settle()

    async def start_controller(self, broker_id: int, **options: Any) -> Controller:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        controller = self.controllers[broker_id] = Controller(
            broker_id=broker_id,
            store=self.stores[broker_id],
            clock=VirtualClock(loop),
            settings=lambda: self.settings,
            channels=lambda: FakeChannels(self.brokers),
            **options,
        )
        self.tasks.append(loop.create_task(controller.run()))
        await self.settle()
        return controller

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def settle(self) -> None:
        """Until everything that follows has happened."""
        await asyncio.sleep(0.01)

    # -- the store

    async def create_topic(self, name: str, assignment: Sequence[tuple[int, ...]], **configs: str) -> None:
        partitions = [
            PartitionRegistration(index, replicas, -1, 0, (), version=-1) for index, replicas in enumerate(assignment)
        ]
        topic_id = name.encode().ljust(16, b"-")
        await self.store.create(
            znodes.topic_config_path(name),
            znodes.encode_config({key.replace("_", "."): value for key, value in configs.items()}),
        )
        await self.store.create(znodes.topic_path(name), znodes.encode_topic(topic_id, partitions))
        await self.settle()

    async def partition(self, name: str, index: int = 0) -> PartitionRegistration:
        (topic,) = await load_topics(self.store, [name])
        return topic.partitions[index]

    async def set_in_sync(
        self, name: str, index: int, in_sync: tuple[int, ...], epochs: Mapping[int, int] | None = None
    ) -> None:
        """As the leader would, without notifying the controller."""
        found = await self.partition(name, index)
        changed = replace(found, in_sync_replicas=in_sync, in_sync_epochs=epochs or {})
        await self.store.set(znodes.state_path(name, index), znodes.encode_state(changed), found.version)

    async def announce(self, name: str, *indexes: int) -> None:
        """R21"""
        data = znodes.encode_partition_list([TopicPartition(name, index) for index in indexes])
        await self.store.create(znodes.IN_SYNC_CHANGE_PREFIX, data, sequential=True)
        await self.settle()

    def paths(self, below: str) -> list[str]:
        return sorted(path for path in self.state.nodes if path.startswith(below + "/"))

    # -- what was sent

    def requests(self, kind: type[RequestT], broker_id: int | None = None) -> list[RequestT]:
        return [
            each.request
            for each in self.brokers.sent
            if isinstance(each.request, kind) and broker_id in (None, each.broker_id)
        ]

    def forget_requests(self) -> None:
        self.brokers.sent.clear()

    def sent_leadership(self, broker_id: int, topic: str, index: int = 0) -> LeaderAndIsrPartitionState:
        """The last one."""
        return next(
            state
            for request in reversed(self.requests(LeaderAndIsrRequest, broker_id))
            for named in request.topic_states
            if named.topic_name == topic
            for state in named.partition_states
            if state.partition_index == index
        )

    def known_leader(self, broker_id: int, topic: str, index: int = 0) -> int:
        """What the broker would answer to clients; -2 if the controller has deleted the topic."""
        return next(
            state.leader
            for request in reversed(self.requests(UpdateMetadataRequest, broker_id))
            for named in request.topic_states
            if named.topic_name == topic
            for state in named.partition_states
            if state.partition_index == index
        )

    def stops(self, broker_id: int) -> list[tuple[str, int, bool]]:
        return [
            (topic.topic_name, state.partition_index, state.delete_partition)
            for request in self.requests(StopReplicaRequest, broker_id)
            for topic in request.topic_states
            for state in topic.partition_states
        ]


def active_epoch(controller: Controller) -> int | None:
    return None if controller.fence is None else controller.fence.epoch


def on_virtual_time(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtually(scenario())

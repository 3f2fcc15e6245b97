"""A machine that counts, kept in a topic of which broker 1 holds a replica: everything around it is in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.replication.leaders import Replicas, assignment_of, fetch_as_follower
from tidelog.config.topic import TopicSettings
from tidelog.errors import KafkaError
from tidelog.protocol.messages.heartbeat import HeartbeatResponse
from tidelog.protocol.structs import Response
from tidelog.replicated.machine import Effects, Producer, Reply, StateRecord
from tidelog.replicated.memory_shard import MemoryReply
from tidelog.replicated.topic import ReplicatedTopic
from tidelog.replication.partition import Partition
from tidelog.runtime.deadlines import Deadlines
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.runtime.purgatory import Purgatory
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.runtime.workers import InlineWorkers
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.types import TopicPartition

TOPIC = "__counts"
COMMIT_TIMEOUT_MS = 5000
KEY = "a"


class CountingMachine:
    """The total of what was added, by key; adding in a transaction counts when that ends."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.totals: dict[bytes, int] = {}
        self.open: dict[Producer, list[StateRecord]] = {}
        self.waiting: list[Reply] = []
        self.timers: list[Any] = []
        self.replayed: list[bytes] = []
        """Keys of all replayed records."""
        self.is_loaded = False
        self.is_unloaded = False

    def add(self, key: str, number: int, reply: Reply, effects: Effects, producer: Producer | None = None) -> None:
        total = self.totals.get(key.encode(), 0) + number
        effects.write(key.encode(), str(total).encode())
        effects.producer = producer
        effects.answer(reply, response_with(total))

    def put(self, key: str, total: int, reply: Reply, effects: Effects) -> None:
        """Whatever was there before."""
        effects.write(key.encode(), str(total).encode())
        effects.may_be_batched = True
        effects.answer(reply, response_with(total))

    def get(self, key: str, reply: Reply, effects: Effects) -> None:
        effects.is_read_of_state = True
        effects.answer(reply, response_with(self.totals.get(key.encode(), 0)))

    def remove(self, key: str, effects: Effects) -> None:
        effects.write(key.encode(), None)

    def replay(self, record: StateRecord, producer: Producer | None) -> None:
        self.replayed.append(record.key)
        if producer is not None:
            self.open.setdefault(producer, []).append(record)
        elif record.value is None:
            self.totals.pop(record.key, None)
        else:
            self.totals[record.key] = int(record.value)

    def replay_end_marker(self, producer: Producer, *, is_committed: bool) -> None:
        for record in self.open.pop(producer, []):
            if is_committed:
                self.replay(record, None)

    def on_loaded(self, effects: Effects) -> None:
        self.is_loaded = True

    def on_timer(self, key: Any, effects: Effects) -> None:
        self.timers.append(key)

    def on_unloaded(self, effects: Effects) -> None:
        self.is_unloaded = True
        for reply in self.waiting:
            effects.fail(reply, KafkaError("unloaded"))


def response_with(total: int) -> HeartbeatResponse:
    """A response that can carry a number."""
    return HeartbeatResponse(throttle_time_ms=total)


def total_in(response: Response | KafkaError) -> int:
    assert isinstance(response, HeartbeatResponse), response
    return response.throttle_time_ms


class CountingHarness:
    def __init__(self, replicas: Replicas, topic: ReplicatedTopic[CountingMachine], store: MemoryStore) -> None:
        self.replicas = replicas
        self.topic = topic
        self._store = store
        self.epoch = 0

    @classmethod
    async def make(cls, settings: TopicSettings | None, partition_count: int = 1) -> "CountingHarness":
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        clock = VirtualClock(loop)
        disk = MemoryDisk(clock)
        store = MemoryStore(MemoryStoreState())
        replicas = await Replicas.on(disk, clock=clock, store=store, topic_settings=settings)
        topic = ReplicatedTopic(
            TOPIC,
            replicas.manager,
            clock,
            CountingMachine,
            partition_count=lambda: partition_count,
            commit_timeout_ms=lambda: COMMIT_TIMEOUT_MS,
            purgatory=Purgatory(loop, Deadlines(loop)),
            workers=InlineWorkers(),
        )
        return cls(replicas, topic, store)

    def end_lease(self) -> None:
        """Nobody has noticed yet."""
        self._store.lease.end = -1.0

    # -- what the controller says

    def lead(self, *replicas: int, partition: int = 0, in_sync: tuple[int, ...] | None = None) -> None:
        self._assign(1, replicas or (1, 2), partition, in_sync)

    def follow(self, *replicas: int, partition: int = 0) -> None:
        self._assign(2, replicas or (1, 2), partition, None)

    def _assign(self, leader: int, replicas: tuple[int, ...], partition: int, in_sync: tuple[int, ...] | None) -> None:
        self.epoch += 1
        self.replicas.take(
            assignment_of(
                *replicas,
                leader=leader,
                in_sync=in_sync,
                epoch=self.epoch,
                topic_partition=TopicPartition(TOPIC, partition),
                topic_id=b"2" * 16,
            )
        )

    def replicate(self, partition: int = 0) -> None:
        """Broker 2 has everything."""
        hosted = self.partition(partition)
        fetch_as_follower(hosted, 2, hosted.log.log_end_offset, 0, 0)

    # -- what is there

    def partition(self, index: int = 0) -> Partition:
        return self.replicas.manager.get(TOPIC, index)

    def machine(self, index: int = 0) -> CountingMachine:
        return dict(self.topic.loaded())[index]

    # -- what clients do

    def add(self, number: int, key: str = KEY) -> MemoryReply:
        reply = MemoryReply()
        self.topic.perform(key, reply, lambda machine, effects: machine.add(key, number, reply, effects))
        return reply

    def put(self, total: int, key: str = KEY) -> MemoryReply:
        """With all others of the same turn."""
        reply = MemoryReply()
        self.topic.perform_batched(key, reply, lambda machine, effects: machine.put(key, total, reply, effects))
        return reply

    def get(self, key: str = KEY) -> MemoryReply:
        reply = MemoryReply()
        self.topic.perform(key, reply, lambda machine, effects: machine.get(key, reply, effects))
        return reply


def with_harness(
    scenario: Callable[[CountingHarness], Awaitable[None]],
    settings: TopicSettings | None = None,
    partition_count: int = 1,
) -> None:
    async def main() -> None:
        await scenario(await CountingHarness.make(settings, partition_count))

    run_virtually(main())

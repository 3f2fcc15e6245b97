"""Simulated clients: a writer and a reader that record all results in the client history."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from tidelog.client.consumer.consumer import BEGINNING, Consumer
from tidelog.client.network.bootstrap import Address
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.producer.producer import Delivery, NoSuchPartition, Producer, ProducerSettings
from tidelog.client.producer.producer_settings import ACKS_ALL
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import KafkaError
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.cluster import PORT, SimulatedCluster, host_of
from tidelog.simulation.history import History, Write
from tidelog.types import TopicPartition

ClientErrors = (KafkaError, ConnectionLost, GaveUp)

REQUEST_TIMEOUT_S = 5.0
DELIVERY_TIMEOUT_S = 3600.0
"""Longer than any fault: a write that fails shows that the cluster did not recover."""
MAX_PAUSE_MS = 200
RECORDS_PER_BURST = 5
MAX_READ_MS = 20_000
"""Maximum time before a consumer starts again from the beginning and reads all records again."""


def client_cluster(cluster: SimulatedCluster, seed: int, client_id: str) -> Cluster:
    bootstrap = [Address(host_of(broker_id), PORT) for broker_id in cluster.machines]
    return Cluster(
        cluster.network,
        bootstrap,
        SeededRandomness(seed),
        client_id=client_id,
        client_rack=cluster.client_rack(seed),
        request_timeout_s=REQUEST_TIMEOUT_S,
    )


async def knows_partition(client: Cluster, target: TopicPartition) -> bool:
    """True if the client knows the partition. If it was added recently, the client refreshes its metadata."""
    topic = client.metadata.topics.get(target.topic)
    if topic is None or target.partition in topic.partitions:
        return True
    with suppress(*ClientErrors):
        await client.refresh(client.metadata.version)
    return False


class Writer:
    """Producer, idempotent with acks=all: acknowledged records exist once, in order."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        name: str,
        seed: int,
        acks: int = ACKS_ALL,
        longest_pause_ms: int = MAX_PAUSE_MS,
    ) -> None:
        self._longest_pause_ms = longest_pause_ms
        self._clock = cluster.clock
        self._acks = acks
        self._client = client_cluster(cluster, seed, name)
        self._randomness = SeededRandomness(seed)
        self._history = history
        self._name = name
        self._last_offsets: dict[TopicPartition, int] = {}
        self._unacknowledged: dict[TopicPartition, deque[tuple[Delivery, Write]]] = {}
        self._waiting: dict[asyncio.Task[None], None] = {}
        """One task for each partition with writes that are not acknowledged."""
        self._sent = 0
        self.failures: list[str] = []

    async def run(self, partitions: Sequence[TopicPartition], is_over: Callable[[], bool]) -> None:
        """Write until `is_over`, then wait for all acknowledgements."""
        settings = ProducerSettings(
            acks=self._acks,
            request_timeout_s=REQUEST_TIMEOUT_S,
            delivery_timeout_s=DELIVERY_TIMEOUT_S,
            metadata_timeout_s=DELIVERY_TIMEOUT_S,
            may_create_topics=False,
        )
        async with Producer(self._client, self._clock, settings) as producer:
            while not is_over():
                await asyncio.sleep(self._randomness.below(self._longest_pause_ms) / 1000)
                target = partitions[self._randomness.below(len(partitions))]
                for _ in range(1 + self._randomness.below(RECORDS_PER_BURST)):
                    await self._write(producer, target)
            while self._waiting:
                await asyncio.wait(list(self._waiting))
        self._client.close()

    async def _write(self, producer: Producer, target: TopicPartition) -> None:
        if not await knows_partition(self._client, target):
            return
        value = f"{self._name}-{self._sent}".encode()
        self._sent += 1
        write = self._history.begin(Write(target, value, self._name, self._acks, is_idempotent=self._acks == ACKS_ALL))
        try:
            delivery = await producer.enqueue(target.topic, value, partition=target.partition)
        except NoSuchPartition:
            self._history.reject(write)  # a broker that is cut off may have returned fewer partitions meanwhile
            return
        unacknowledged = self._unacknowledged.setdefault(target, deque())
        unacknowledged.append((delivery, write))
        if len(unacknowledged) == 1:
            task = start(self._follow_all(unacknowledged))
            self._waiting[task] = None
            task.add_done_callback(self._waiting.pop)

    async def _follow_all(self, unacknowledged: deque[tuple[Delivery, Write]]) -> None:
        """Writes to one partition are acknowledged in order."""
        while unacknowledged:
            await self._follow(*unacknowledged[0])
            unacknowledged.popleft()

    async def _follow(self, delivery: Delivery, write: Write) -> None:
        target, value = write.topic_partition, write.value
        try:
            offset = (await delivery).offset
        except ClientErrors as error:
            self.failures.append(f"I7 {target} never took {value!r}: {error!r}")
            return
        self._history.acknowledge(write, offset)
        if self._acks != ACKS_ALL:
            return
        if offset <= self._last_offsets.get(target, -1):
            self.failures.append(f"I5 {target} took {value!r} at {offset}, before what {self._name} wrote earlier")
        self._last_offsets[target] = offset


class Reader:
    """Consumer of all partitions that starts again from the beginning at intervals."""

    def __init__(self, cluster: SimulatedCluster, history: History, name: str, seed: int) -> None:
        self._client = client_cluster(cluster, seed, name)
        self._randomness = SeededRandomness(seed)
        self._history = history
        self.positions: dict[TopicPartition, int] = {}

    async def run(self, partitions: Sequence[TopicPartition]) -> None:
        """Until cancelled."""
        while True:
            self.positions = dict.fromkeys(partitions, 0)
            try:
                await self._read_for_a_while()
            except ClientErrors:
                await asyncio.sleep(1)

    async def _read_for_a_while(self) -> None:
        now = asyncio.get_running_loop().time
        end = now() + self._randomness.below(MAX_READ_MS) / 1000
        async with Consumer(self._client) as consumer:
            await consumer.assign(dict.fromkeys(self.positions, BEGINNING))
            async for record in consumer:
                topic_partition = TopicPartition(record.topic, record.partition)
                assert record.value is not None
                self._history.on_read(topic_partition, record.offset, record.value)
                self.positions[topic_partition] = record.offset + 1
                if now() > end:
                    return


def start(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    return asyncio.get_running_loop().create_task(work)

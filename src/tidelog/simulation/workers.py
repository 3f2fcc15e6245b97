"""Workers that read a topic as a group and write what they make of it with transactions: killed, stopped, replaced."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.client.consumer.consumer import BEGINNING, ConsumedRecord, ConsumerSettings
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.groups.group_consumer import GroupConsumer, GroupConsumerSettings
from tidelog.client.network.bootstrap import Address
from tidelog.client.network.connection import ClientConnection
from tidelog.client.producer.producer_settings import ProducerSettings
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.client.routing.cluster import Cluster
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.clients import REQUEST_TIMEOUT_S, ClientErrors
from tidelog.simulation.cluster import PORT, SimulatedCluster, host_of
from tidelog.simulation.processes import Process
from tidelog.types import TopicPartition

INPUT, OUTPUT, TOTALS = "input", "output", "totals"
PARTITIONS = 3
GROUP = "workers"
NEVER = b"never"
"""What is written in transactions that are to be aborted."""
ABORT_ONE_IN = 10
DAWDLE_ONE_IN = 3
LONGEST_DAWDLE_MS = 1500
POLL_S = 0.5
REST_S = 0.5
TRANSACTION_TIMEOUT_MS = 15_000
SESSION_TIMEOUT_MS = 3000
"""A worker that was stopped for a while finds its transaction open, and its partitions given to others."""
HEARTBEAT_MS = 1000
REBALANCE_TIMEOUT_MS = 10_000
TIMEOUT_S = 20.0
FETCH_WAIT_MS = 2000
"""Idle consumers ask seldom; records are given to them as soon as they come."""
READ_BYTES = 2000
"""At once: little, so that there are many transactions, but enough to catch up soon when all faults are over."""


class Manner(NamedTuple):
    is_classic: bool
    """How the worker is a member of its group."""
    is_explicit: bool
    """It adds partitions to its transactions itself, as before KIP-890."""


class Claims:
    """Who reads what: in one generation, or member epoch, a partition has one owner.

    A group that changes from one protocol to the other while it is empty counts from 1 again, as Kafka's do: nothing is
    said of groups that may.
    """

    def __init__(self, *, may_count_anew: bool) -> None:
        self._may_count_anew = may_count_anew
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        self.violations: list[str] = []

    def note(self, consumer: GroupConsumer) -> None:
        member = consumer.member
        for each in () if self._may_count_anew else consumer.partitions:
            owner = self._owners.setdefault((member.generation, each), member.member_id)
            if owner != member.member_id:
                self.violations.append(
                    f"G1 {each} belongs to {owner} and to {member.member_id} in generation {member.generation}"
                )


class _ChangedItsMind(Exception):
    """As a program that meets a record it cannot work off."""


class Worker:
    def __init__(
        self,
        cluster: SimulatedCluster,
        number: int,
        seed: int,
        manner: Manner,
        claims: Claims,
        is_over: Callable[[], bool],
    ) -> None:
        self.number = number
        self.manner = manner
        self.committed = 0
        self.failures: list[str] = []
        self._cluster = cluster
        self._seed = seed
        self._claims = claims
        self._is_over = is_over
        self._starts = 0
        self._living: list[_Life] = []

    def start(self) -> None:
        """Beside those that may still run under the same transactional id."""
        self._starts += 1
        life = _Life(f"worker-{self.number}-{self._starts}", self._seed * 100 + self._starts)
        task = life.process.start(self._run(life))
        task.add_done_callback(lambda done: self._on_done(life, done))
        self._living.append(life)

    def _on_done(self, life: "_Life", done: "asyncio.Task[None]") -> None:
        if life in self._living:
            self._living.remove(life)
        if not done.cancelled() and done.exception() is not None:
            self.failures.append(f"a worker failed: {done.exception()!r}")

    @property
    def is_running(self) -> bool:
        return bool(self._living)

    def kill(self) -> None:
        for life in self._living:
            life.process.kill()
            self._cluster.network.power_off(life.host)
        self._living.clear()

    def pause(self) -> None:
        for life in self._living:
            life.process.stop()

    def go_on(self) -> None:
        for life in self._living:
            life.process.go_on()

    def note_claims(self) -> None:
        for life in self._living:
            if life.consumer is not None:
                self._claims.note(life.consumer)

    # -- what it does

    async def _run(self, life: "_Life") -> None:
        """Until it is over, or another one has taken its place."""
        while not self._is_over():
            try:
                await self._work(life)
            except ClientErrors:
                await asyncio.sleep(REST_S)
                if self._living and self._living[-1] is not life:
                    return

    async def _work(self, life: "_Life") -> None:
        async with (
            self._client(life) as client,
            self._producer(client) as producer,
            GroupConsumer(client, GROUP, [INPUT], self._group_settings()) as consumer,
        ):
            life.consumer = consumer
            while not self._is_over():
                records = await consumer.poll(POLL_S)
                if records:
                    await self._copy_or_not(life, producer, consumer, records)

    def _client(self, life: "_Life") -> Cluster:
        bootstrap = [Address(host_of(broker_id), PORT) for broker_id in self._cluster.machines]
        return Cluster(
            self._cluster.network.at(life.host),
            bootstrap,
            life.randomness,
            client_id=f"worker-{self.number}",
            request_timeout_s=REQUEST_TIMEOUT_S,
        )

    def _producer(self, client: Cluster) -> TransactionalProducer:
        producer = TransactionalProducer(
            client,
            self._cluster.clock,
            f"worker-{self.number}",
            ProducerSettings(
                request_timeout_s=REQUEST_TIMEOUT_S, delivery_timeout_s=TIMEOUT_S, may_create_topics=False
            ),
            timeout_s=TIMEOUT_S,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        if self.manner.is_explicit:
            producer._identity.note_features = _notice_nothing  # type: ignore[method-assign]
        return producer

    def _group_settings(self) -> GroupConsumerSettings:
        return GroupConsumerSettings(
            is_classic=self.manner.is_classic,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            start_at=BEGINNING,
            timeout_s=TIMEOUT_S,
            reading=ConsumerSettings(
                isolation_level=READ_COMMITTED, max_wait_ms=FETCH_WAIT_MS, partition_max_bytes=READ_BYTES
            ),
        )

    async def _copy_or_not(
        self,
        life: "_Life",
        producer: TransactionalProducer,
        consumer: GroupConsumer,
        records: Sequence[ConsumedRecord],
    ) -> None:
        producer.begin()
        try:
            await self._copy(life, producer, consumer, records)
        except (*ClientErrors, _ChangedItsMind):
            await producer.abort()
            await consumer.rewind()
        else:
            self.committed += 1

    async def _copy(
        self,
        life: "_Life",
        producer: TransactionalProducer,
        consumer: GroupConsumer,
        records: Sequence[ConsumedRecord],
    ) -> None:
        """Each record to the same partition of the output, and how many there were to a topic of its own."""
        member, offsets = consumer.member, dict[TopicPartition, int]()
        is_in_vain = life.randomness.below(ABORT_ONE_IN) == 0
        for record in records:
            await producer.enqueue(OUTPUT, NEVER if is_in_vain else record.value, partition=record.partition)
            offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
        for (_, partition), end_offset in offsets.items():
            count = sum(record.partition == partition for record in records)
            total = NEVER if is_in_vain else b"%d %d %d" % (partition, count, end_offset)
            await producer.enqueue(TOTALS, total, partition=0)
        await self._dawdle(life)
        await producer.send_offsets(offsets, member)
        await self._dawdle(life)
        if is_in_vain:
            await producer.flush()
            raise _ChangedItsMind
        await producer.commit()

    async def _dawdle(self, life: "_Life") -> None:
        if life.randomness.below(DAWDLE_ONE_IN) == 0:
            await asyncio.sleep(life.randomness.below(LONGEST_DAWDLE_MS) / 1000)


class _Life:
    """From one start of a worker to its end."""

    def __init__(self, host: str, seed: int) -> None:
        self.host = host
        self.randomness = SeededRandomness(seed)
        self.process = Process(host)
        self.consumer: GroupConsumer | None = None


def _notice_nothing(connection: ClientConnection) -> None:
    """As a client that does not know of transactions of version 2."""

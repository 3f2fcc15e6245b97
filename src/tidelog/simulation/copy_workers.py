"""Workers of exactly-once copying: members of a group that write their output with transactions; killed and paused."""

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
"""Value written in transactions that will be aborted."""
ABORT_ONE_IN = 10
DAWDLE_ONE_IN = 3
MAX_DAWDLE_MS = 1500
POLL_S = 0.5
REST_S = 0.5
TRANSACTION_TIMEOUT_MS = 15_000
SESSION_TIMEOUT_MS = 3000
"""A worker that was paused may find its transaction open and its partitions reassigned."""
HEARTBEAT_MS = 1000
REBALANCE_TIMEOUT_MS = 10_000
TIMEOUT_S = 20.0
FETCH_WAIT_MS = 2000
"""Idle consumers fetch rarely; new records complete the fetch at once."""
READ_BYTES = 2000
"""Records per transaction: few, so that there are many transactions, but enough to catch up after the faults."""


class WorkerOptions(NamedTuple):
    is_classic: bool
    """True if the worker uses the classic group protocol."""
    is_explicit: bool
    """True if the worker adds partitions to its transactions itself, as before KIP-890."""


class Claims:
    """Owners by generation or member epoch: a partition has one owner in each (G1).

    A group that changes its protocol while it is empty restarts at generation 1, as in Kafka: such groups are not
    checked.
    """

    def __init__(self, *, may_restart_generations: bool) -> None:
        self._may_restart_generations = may_restart_generations
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        self.violations: list[str] = []

    def note(self, consumer: GroupConsumer) -> None:
        member = consumer.member
        for each in () if self._may_restart_generations else consumer.partitions:
            owner = self._owners.setdefault((member.generation, each), member.member_id)
            if owner != member.member_id:
                self.violations.append(
                    f"G1 {each} belongs to {owner} and to {member.member_id} in generation {member.generation}"
                )


class _SimulatedFailure(Exception):
    """Simulated error while records are processed."""


class Worker:
    def __init__(
        self,
        cluster: SimulatedCluster,
        number: int,
        seed: int,
        manner: WorkerOptions,
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
        self._living: list[_Incarnation] = []

    def start(self) -> None:
        """Start a process; earlier ones may still run with the same transactional id."""
        self._starts += 1
        incarnation = _Incarnation(f"worker-{self.number}-{self._starts}", self._seed * 100 + self._starts)
        task = incarnation.process.start(self._run(incarnation))
        task.add_done_callback(lambda done: self._on_done(incarnation, done))
        self._living.append(incarnation)

    def _on_done(self, incarnation: "_Incarnation", done: "asyncio.Task[None]") -> None:
        if incarnation in self._living:
            self._living.remove(incarnation)
        if not done.cancelled() and done.exception() is not None:
            self.failures.append(f"a worker failed: {done.exception()!r}")

    @property
    def is_running(self) -> bool:
        return bool(self._living)

    def kill(self) -> None:
        for incarnation in self._living:
            incarnation.process.kill()
            self._cluster.network.power_off(incarnation.host)
        self._living.clear()

    def pause(self) -> None:
        for incarnation in self._living:
            incarnation.process.stop()

    def resume(self) -> None:
        for incarnation in self._living:
            incarnation.process.resume()

    def note_claims(self) -> None:
        for incarnation in self._living:
            if incarnation.consumer is not None:
                self._claims.note(incarnation.consumer)

    # ---- processing

    async def _run(self, incarnation: "_Incarnation") -> None:
        """Run until the end, or until another process has fenced this one."""
        while not self._is_over():
            try:
                await self._work(incarnation)
            except ClientErrors:
                await asyncio.sleep(REST_S)
                if self._living and self._living[-1] is not incarnation:
                    return

    async def _work(self, incarnation: "_Incarnation") -> None:
        async with (
            self._client(incarnation) as client,
            self._producer(client) as producer,
            GroupConsumer(client, GROUP, [INPUT], self._group_settings()) as consumer,
        ):
            incarnation.consumer = consumer
            while not self._is_over():
                records = await consumer.poll(POLL_S)
                if records:
                    await self._copy_or_not(incarnation, producer, consumer, records)

    def _client(self, incarnation: "_Incarnation") -> Cluster:
        bootstrap = [Address(host_of(broker_id), PORT) for broker_id in self._cluster.machines]
        return Cluster(
            self._cluster.network.at(incarnation.host),
            bootstrap,
            incarnation.randomness,
            client_id=f"worker-{self.number}",
            client_rack=self._cluster.client_rack(self.number),
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
            producer._identity.update_features = _ignore_features  # type: ignore[method-assign]
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
        incarnation: "_Incarnation",
        producer: TransactionalProducer,
        consumer: GroupConsumer,
        records: Sequence[ConsumedRecord],
    ) -> None:
        producer.begin()
        try:
            await self._copy(incarnation, producer, consumer, records)
        except (*ClientErrors, _SimulatedFailure):
            await producer.abort()
            await consumer.rewind()
        else:
            self.committed += 1

    async def _copy(
        self,
        incarnation: "_Incarnation",
        producer: TransactionalProducer,
        consumer: GroupConsumer,
        records: Sequence[ConsumedRecord],
    ) -> None:
        """Copy each record to the same partition of the output, and write the number of records to another topic."""
        member, offsets = consumer.member, dict[TopicPartition, int]()
        is_in_vain = incarnation.randomness.below(ABORT_ONE_IN) == 0
        for record in records:
            await producer.enqueue(OUTPUT, NEVER if is_in_vain else record.value, partition=record.partition)
            offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
        for (_, partition), end_offset in offsets.items():
            count = sum(record.partition == partition for record in records)
            total = NEVER if is_in_vain else b"%d %d %d" % (partition, count, end_offset)
            await producer.enqueue(TOTALS, total, partition=0)
        await self._pause_sometimes(incarnation)
        await producer.send_offsets(offsets, member)
        await self._pause_sometimes(incarnation)
        if is_in_vain:
            await producer.flush()
            raise _SimulatedFailure
        await producer.commit()

    async def _pause_sometimes(self, incarnation: "_Incarnation") -> None:
        if incarnation.randomness.below(DAWDLE_ONE_IN) == 0:
            await asyncio.sleep(incarnation.randomness.below(MAX_DAWDLE_MS) / 1000)


class _Incarnation:
    """One process of a worker, from its start to its end."""

    def __init__(self, host: str, seed: int) -> None:
        self.host = host
        self.randomness = SeededRandomness(seed)
        self.process = Process(host)
        self.consumer: GroupConsumer | None = None


def _ignore_features(connection: ClientConnection) -> None:
    """Behave like a client without transactions version 2."""

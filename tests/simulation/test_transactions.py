"""The coordinator of a transaction group dies at any moment: a batch counts as a whole, and once."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from tests.server.harness import batch_of
from tests.simulation.scenario import TOPIC, create_topic, simulate, stored, wait_for
from tidelog.client.consumer.consumer import BEGINNING, Consumer, ConsumerSettings
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.producer.encoded_batches import BatchProducer, EncodedBatch
from tidelog.client.producer.transaction_group import OpenGroup, TransactionGroup, member_identity
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.coordinators import Coordinators
from tidelog.simulation.clients import client_cluster
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.transactions.machine import TransactionMachine
from tidelog.types import TopicPartition

STATE_TOPIC = "__transaction_state"
PARTITIONS = [TopicPartition(TOPIC, 0), TopicPartition("shipments", 0)]
TIMEOUT_MS = 60_000


class Driver:
    """Writes batches, each with members that win and one that loses."""

    def __init__(self, client: Cluster) -> None:
        self._client = client
        self._coordinators = Coordinators(client)
        self._group = TransactionGroup(self._coordinators, "copies", timeout_s=60, transaction_timeout_ms=TIMEOUT_MS)

    async def write_batch(self, batch_id: int) -> None:
        opened = await self._group.open()
        if batch_id <= opened.last_batch_id:
            return
        winners = [
            await self._write(opened, f"{index}", b"%d" % batch_id, partition)
            for index, partition in enumerate(PARTITIONS)
        ]
        await self._write(opened, "loser", b"never", PARTITIONS[0])
        await self._group.commit(opened, batch_id, winners)

    async def _write(self, opened: OpenGroup, member: str, value: bytes, partition: TopicPartition) -> str:
        identity = member_identity(self._coordinators, opened, member, timeout_s=60, transaction_timeout_ms=TIMEOUT_MS)
        await identity.initialize()
        identity.begin()
        async with BatchProducer(self._client, identity=identity) as producer:
            await producer.send(partition, EncodedBatch(bytearray(batch_of(value)), 1))
        return identity.transactional_id


async def committed(client: Cluster, partition: TopicPartition, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    async with Consumer(client, ConsumerSettings(isolation_level=READ_COMMITTED)) as consumer:
        await consumer.assign({partition: BEGINNING})
        async with asyncio.timeout(60):
            while len(values) < count:
                values += [record.value for record in await consumer.poll(1.0)]
        values += [record.value for record in await consumer.poll(1.0)]
    return values


async def prepare(cluster: SimulatedCluster) -> None:
    """Broker 1 coordinates all transactions; 2 and 3 have its records too, and lead what is written."""
    await create_topic(cluster, [2, 3, 1])
    await create_topic(cluster, [3, 2, 1], name="shipments")
    await create_topic(cluster, [1, 2, 3], name=STATE_TOPIC, cleanup_policy="compact", min_insync_replicas=2)


async def die_in_a_batch(cluster: SimulatedCluster, delay_s: float) -> None:
    await prepare(cluster)
    async with client_cluster(cluster, 1, "driver") as client:
        driver = Driver(client)
        await driver.write_batch(0)
        writing = asyncio.ensure_future(driver.write_batch(1))
        await asyncio.sleep(delay_s)
        cluster.kill(1)
        with_error = (await asyncio.gather(writing, return_exceptions=True))[0]
        if with_error is not None:  # as Spark does, the batch is run again
            await driver.write_batch(1)
        await driver.write_batch(2)
        for partition in PARTITIONS:
            assert await committed(client, partition, 3) == [b"0", b"1", b"2"]
        await wait_for(lambda: stored(cluster, STATE_TOPIC).leader in (2, 3))


@pytest.mark.parametrize("delay_ms", range(0, 90, 6))
def test_a_batch_is_whole_and_there_once_whenever_its_coordinator_dies(delay_ms: int) -> None:
    simulate(lambda cluster: die_in_a_batch(cluster, delay_ms / 1000), controller=2)


@contextmanager
def decisions_are_not_taken_over() -> Iterator[None]:
    with patch.object(TransactionMachine, "_order_markers", lambda self, transaction, effects: None):
        yield


async def die_once_decided(cluster: SimulatedCluster) -> None:
    """Broker 1 has promised the commit, and dies before it has answered or sent a marker."""
    await prepare(cluster)
    async with client_cluster(cluster, 1, "driver") as client:
        driver = Driver(client)
        await driver.write_batch(0)
        with patch.object(cluster.broker(1)._services.coordinators.markers, "_run", lambda broker_id: None):
            await driver.write_batch(1)
            cluster.kill(1)
        for partition in PARTITIONS:
            assert await committed(client, partition, 2) == [b"0", b"1"]


def test_a_promise_is_kept_by_the_next_coordinator() -> None:
    simulate(die_once_decided, controller=2)


def test_a_promise_that_is_not_kept_is_noticed() -> None:
    with decisions_are_not_taken_over(), pytest.raises(TimeoutError):
        simulate(die_once_decided, controller=2)

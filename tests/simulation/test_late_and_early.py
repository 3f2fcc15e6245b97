"""Batches that come too late for their transaction, and markers that come too early, for an open decision."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from unittest.mock import patch

import pytest

from tests.simulation.broken_coordinators import markers_before_the_decision_is_committed, no_epoch_of_its_own
from tests.simulation.scenario import create_topic, leading, simulate, stored, wait_for
from tests.simulation.test_transactions import STATE_TOPIC
from tidelog.client.consumer.consumer import BEGINNING, Consumer, ConsumerSettings
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.producer.producer_settings import ProducerSettings
from tidelog.client.producer.transactional_identity import TransactionalIdentity
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import InvalidTxnState
from tidelog.runtime.memory_network import CLIENT_HOST
from tidelog.simulation.clients import ClientErrors, client_cluster
from tidelog.simulation.cluster import SimulatedCluster, host_of
from tidelog.transactions.verifier import TransactionVerifier
from tidelog.types import TopicPartition

LEFT, RIGHT = "left", "right"
TIMEOUT_MS = 10_000
QUICK = ProducerSettings(request_timeout_s=1.0, delivery_timeout_s=2.0, may_create_topics=False)


def producer_of(client: Cluster, cluster: SimulatedCluster) -> TransactionalProducer:
    return TransactionalProducer(
        client, cluster.clock, "copier", QUICK, timeout_s=5.0, transaction_timeout_ms=TIMEOUT_MS
    )


async def committed(client: Cluster, topic: str) -> list[bytes | None]:
    async with Consumer(client, ConsumerSettings(isolation_level=READ_COMMITTED)) as consumer:
        await consumer.assign({TopicPartition(topic, 0): BEGINNING})
        values: list[bytes | None] = []
        while records := await consumer.poll(2.0):
            values += [record.value for record in records]
        return values


@contextmanager
def as_before_kip_890() -> Iterator[None]:
    with patch.object(TransactionalIdentity, "update_features", lambda self, connection: None):
        yield


# ---- too late


async def be_held_up(cluster: SimulatedCluster) -> None:
    """A batch of a transaction that was given up arrives while the next one goes on."""
    await create_topic(cluster, [2, 3], name=LEFT)
    await create_topic(cluster, [3, 2], name=RIGHT)
    await create_topic(cluster, [1, 2, 3], name=STATE_TOPIC, cleanup_policy="compact", min_insync_replicas=2)
    async with client_cluster(cluster, 1, "copier") as client, producer_of(client, cluster) as producer:
        producer.begin()
        await producer.send(RIGHT, b"never")
        await producer.send(LEFT, b"never")
        cluster.network.cut(host_of(2), CLIENT_HOST)
        await producer.enqueue(LEFT, b"late")
        await producer.abort()
        producer.begin()
        await producer.send(RIGHT, b"right")
        cluster.network.mend(host_of(2), CLIENT_HOST)
        await asyncio.sleep(1)
        await producer.commit()
        await asyncio.sleep(1)
        assert await committed(client, RIGHT) == [b"right"]
        assert await committed(client, LEFT) == [], "a batch of one transaction became part of another"
        await asyncio.sleep(2 * TIMEOUT_MS / 1000)
        leader = leading(cluster, 2, LEFT)
        assert leader is not None
        log = cluster.broker(2).replicas.get(LEFT, 0).log
        assert log.last_stable_offset == log.log_end_offset, "a transaction hangs that nobody will end"


def test_a_batch_that_comes_late_is_not_part_of_the_next_transaction() -> None:
    simulate(be_held_up, controller=1)


def test_a_batch_that_comes_late_begins_no_transaction() -> None:
    with as_before_kip_890():
        simulate(be_held_up, controller=1)


def test_transactions_without_an_epoch_of_their_own_are_noticed() -> None:
    """Leaders take the next transaction for the one before, which they have asked about."""
    with no_epoch_of_its_own(), pytest.raises((AssertionError, InvalidTxnState)):
        simulate(be_held_up, controller=1)


@contextmanager
def nothing_is_verified() -> Iterator[None]:
    with as_before_kip_890(), patch.object(TransactionVerifier, "is_enabled", property(lambda self: False)):
        yield


def test_leaders_that_do_not_ask_the_coordinator_are_noticed() -> None:
    with nothing_is_verified(), pytest.raises(AssertionError, match="a transaction hangs"):
        simulate(be_held_up, controller=1)


# ---- too early


async def die_with_an_open_decision(cluster: SimulatedCluster) -> None:
    """Broker 1 decides to commit, which nobody else learns, and dies; the client, too, is not heard of again."""
    await create_topic(cluster, [2], name=LEFT)
    await create_topic(cluster, [3], name=RIGHT)
    await create_topic(cluster, [1, 3], name=STATE_TOPIC, cleanup_policy="compact", min_insync_replicas=1)
    client = client_cluster(cluster, 1, "copier")
    producer = await producer_of(client, cluster).__aenter__()
    producer.begin()
    await producer.send(LEFT, b"left")
    await producer.send(RIGHT, b"right")
    cluster.cut(1, [3])
    deciding = asyncio.ensure_future(producer.commit())
    await asyncio.sleep(0.1)
    deciding.cancel()
    cluster.kill(1)
    await wait_for(lambda: stored(cluster, STATE_TOPIC).leader == 3)
    await asyncio.sleep(2 * TIMEOUT_MS / 1000)
    async with client_cluster(cluster, 2, "reader") as reader:
        found = await committed(reader, LEFT), await committed(reader, RIGHT)
        assert found in (([], []), ([b"left"], [b"right"])), f"half a transaction is committed: {found}"
    with suppress(*ClientErrors):
        await producer.__aexit__(None, RuntimeError(), None)


def test_nobody_learns_of_a_decision_that_may_be_lost() -> None:
    simulate(die_with_an_open_decision, controller=2)


def test_markers_that_are_sent_too_early_are_noticed() -> None:
    with markers_before_the_decision_is_committed(), pytest.raises(AssertionError, match="half a transaction"):
        simulate(die_with_an_open_decision, controller=2)

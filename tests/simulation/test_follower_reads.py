"""Consumers that read from the replica in their rack (R23, KIP-392): three brokers, one in each rack."""

import asyncio
from collections.abc import Awaitable, Callable
from unittest.mock import patch

import pytest

from tests.server.harness import fetch_request
from tests.simulation.scenario import (
    TOPIC,
    ask,
    create_topic,
    follower_core,
    is_leading,
    produce,
    replica,
    stored,
    wait_for,
)
from tidelog.client.consumer.consumer import BEGINNING, Consumer, ConsumerSettings
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.consumer.range_reader import RangeReader
from tidelog.client.network.bootstrap import Address
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.client.routing.cluster import Cluster
from tidelog.config.broker import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from tidelog.errors import NotLeaderOrFollower, OffsetOutOfRange, UnknownLeaderEpoch
from tidelog.protocol.messages.fetch import FetchResponse, PartitionData
from tidelog.replication.follower import PartitionFollower
from tidelog.runtime.disk import FileSlice
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.cluster import LATENCY_S, PORT, SimulatedCluster, host_of
from tidelog.simulation.processes import run_simulation
from tidelog.types import BrokerId, TopicPartition

LEADER, NEAREST, OTHER = 1, 2, 3
ORDERS = TopicPartition(TOPIC, 0)
PROMPT_S = 20 * LATENCY_S
"""A few round trips, and far less than replica.fetch.wait.max.ms."""


def rack_of(broker_id: BrokerId) -> str:
    return f"rack-{broker_id}"


def in_racks(
    scenario: Callable[[SimulatedCluster], Awaitable[None]], selector: str | None = RACK_AWARE_SELECTOR
) -> None:
    """A topic with three replicas; broker 1 leads."""

    async def main() -> None:
        cluster = SimulatedCluster(3, replica_selector_class=selector, auto_leader_rebalance_enable=False)
        await cluster.start(LEADER, broker_rack=rack_of(LEADER))
        await asyncio.gather(*(cluster.start(each, broker_rack=rack_of(each)) for each in (NEAREST, OTHER)))
        await create_topic(cluster, (LEADER, NEAREST, OTHER))
        await scenario(cluster)

    run_simulation(main())


def client_in(cluster: SimulatedCluster, broker_id: BrokerId) -> Cluster:
    """A client in the rack of this broker."""
    bootstrap = [Address(host_of(each), PORT) for each in cluster.machines]
    return Cluster(cluster.network, bootstrap, SeededRandomness(1), client_rack=rack_of(broker_id))


def bytes_out(cluster: SimulatedCluster) -> dict[BrokerId, int]:
    """Sent to consumers, by broker: only those that have sent any."""
    sent = {broker.broker_id: replica(cluster, broker.broker_id).traffic.bytes_out for broker in cluster.running}
    return {broker_id: size for broker_id, size in sent.items() if size}


async def fetch_at(
    cluster: SimulatedCluster,
    broker_id: BrokerId,
    offset: int,
    *,
    version: int = 12,
    rack: str = "",
    max_wait_ms: int = 0,
    epoch: int = -1,
    replica_id: int = -1,
    isolation_level: int = 0,
) -> PartitionData:
    request = fetch_request(
        TOPIC, offset, max_wait_ms=max_wait_ms, current_leader_epoch=epoch, isolation_level=isolation_level
    )
    request.rack_id, request.replica_id = rack, replica_id
    response = await ask(cluster, broker_id, request, FetchResponse, version)
    return response.responses[0].partitions[0]


async def produce_everywhere(cluster: SimulatedCluster, *values: bytes) -> None:
    """Committed, and every follower knows it."""
    await produce(cluster, *values)
    end = replica(cluster, LEADER).log.log_end_offset
    await wait_for(lambda: all(replica(cluster, each).log.high_watermark == end for each in (LEADER, NEAREST, OTHER)))


def test_the_leader_sends_a_consumer_to_its_rack() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await produce_everywhere(cluster, b"a")
        data = await fetch_at(cluster, LEADER, 0, rack=rack_of(NEAREST), max_wait_ms=500)
        assert (data.preferred_read_replica, data.records, data.high_watermark) == (NEAREST, b"", 1)
        for rack in (rack_of(LEADER), "elsewhere", ""):
            data = await fetch_at(cluster, LEADER, 0, rack=rack)
            assert data.preferred_read_replica == -1
            assert data.records

    in_racks(scenario)


@pytest.mark.parametrize("selector", [None, LEADER_SELECTOR])
def test_without_the_selector_the_leader_serves_everybody(selector: str | None) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await produce_everywhere(cluster, b"a")
        assert (await fetch_at(cluster, LEADER, 0, rack=rack_of(NEAREST))).records

    in_racks(scenario, selector)


def test_a_follower_answers_as_kafka_does() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await produce_everywhere(cluster, b"a", b"b")
        epoch = stored(cluster).leader_epoch
        assert (await fetch_at(cluster, NEAREST, 0, epoch=epoch)).records
        assert (await fetch_at(cluster, NEAREST, 0, version=10)).error_code == NotLeaderOrFollower.code
        assert (await fetch_at(cluster, NEAREST, 0, version=10, replica_id=-2)).records
        assert (await fetch_at(cluster, NEAREST, 0, epoch=epoch + 1)).error_code == UnknownLeaderEpoch.code
        assert (await fetch_at(cluster, NEAREST, 3)).error_code == OffsetOutOfRange.code
        assert not (await fetch_at(cluster, NEAREST, 2)).records

    in_racks(scenario)


def test_a_consumer_that_waits_at_a_follower_gets_records_at_once() -> None:
    """KAFKA-14334. Without a word from the leader the high watermark would arrive with its next answer."""

    async def scenario(cluster: SimulatedCluster) -> None:
        loop = asyncio.get_running_loop()
        for offset in range(3):
            waiting = asyncio.create_task(fetch_at(cluster, NEAREST, offset, max_wait_ms=5000))
            await asyncio.sleep(0.3)
            started = loop.time()
            await produce(cluster, b"x")
            assert (await waiting).records
            assert loop.time() - started < PROMPT_S

    in_racks(scenario)


def test_followers_where_nobody_reads_are_not_sent_high_watermarks() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await produce_everywhere(cluster, b"a")
        cores = [follower_core(cluster, each) for each in (NEAREST, OTHER)]
        assert [_wants(core) for core in cores] == [False, False]
        waiting = asyncio.create_task(fetch_at(cluster, NEAREST, 1, max_wait_ms=1000))
        await asyncio.sleep(0.1)
        assert [_wants(core) for core in cores] == [True, False]
        await waiting
        await produce(cluster, b"b")
        await produce(cluster, b"c")
        await asyncio.sleep(0.1)
        assert [_wants(core) for core in cores] == [False, False]

    in_racks(scenario)


def _wants(core: PartitionFollower | None) -> bool:
    assert core is not None
    return core.is_high_watermark_wanted


async def read_until(consumer: Consumer, count: int) -> list[bytes | None]:
    async with asyncio.timeout(20):
        return [(await anext(consumer)).value for _ in range(count)]


def test_our_consumer_reads_in_its_rack_and_comes_back_when_the_replica_dies() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await produce_everywhere(cluster, b"a", b"b")
        async with client_in(cluster, NEAREST) as client, Consumer(client) as consumer:
            await consumer.assign({ORDERS: BEGINNING})
            assert await read_until(consumer, 2) == [b"a", b"b"]
            started = asyncio.get_running_loop().time()
            await produce(cluster, b"c")
            assert await read_until(consumer, 1) == [b"c"]
            assert asyncio.get_running_loop().time() - started < PROMPT_S
            assert bytes_out(cluster).keys() == {NEAREST}
            cluster.kill(NEAREST)
            await produce(cluster, b"d")
            assert await read_until(consumer, 1) == [b"d"]
            assert bytes_out(cluster).keys() == {LEADER}

    in_racks(scenario)


def test_our_consumer_goes_on_when_the_leader_dies() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await produce_everywhere(cluster, b"a")
        async with client_in(cluster, NEAREST) as client, Consumer(client) as consumer:
            await consumer.assign({ORDERS: BEGINNING})
            assert await read_until(consumer, 1) == [b"a"]
            cluster.kill(LEADER)
            await wait_for(lambda: is_leading(cluster, NEAREST) or is_leading(cluster, OTHER))
            await produce(cluster, b"b")
            assert await read_until(consumer, 1) == [b"b"]

    in_racks(scenario)


def test_a_replica_that_lags_is_not_preferred_until_it_is_in_sync_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await produce_everywhere(cluster, b"a")
        cluster.kill(NEAREST)
        await wait_for(lambda: stored(cluster).in_sync_replicas == (LEADER, OTHER))
        assert (await fetch_at(cluster, LEADER, 0, rack=rack_of(NEAREST))).records
        await cluster.start(NEAREST, broker_rack=rack_of(NEAREST))
        await wait_for(lambda: NEAREST in stored(cluster).in_sync_replicas)
        await produce(cluster, b"b")
        assert (await fetch_at(cluster, LEADER, 0, rack=rack_of(NEAREST))).preferred_read_replica == NEAREST

    in_racks(scenario)


def uncommitted_read() -> list[bytes]:
    """What a consumer at a follower gets while the other follower does not fetch."""
    found: list[bytes] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        await produce_everywhere(cluster, b"a")
        cluster.cut(OTHER, [LEADER])
        await produce(cluster, b"uncommitted", acks=1)
        await wait_for(lambda: replica(cluster, NEAREST).log.log_end_offset == 2)
        data = await fetch_at(cluster, NEAREST, 1, max_wait_ms=500)
        records = data.records or b""
        assert not isinstance(records, FileSlice)
        found.append(bytes(records))

    in_racks(scenario)
    return found


def test_a_consumer_at_a_follower_never_sees_what_is_not_committed() -> None:
    """And with a follower that serves up to its log end it would."""
    assert uncommitted_read() == [b""]
    with patch("tidelog.replication.fetch_reads.readable_end", lambda log, *_, **__: log.log_end_offset):
        assert b"uncommitted" in uncommitted_read()[0]


def test_a_follower_knows_open_and_aborted_transactions() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        async with (
            client_in(cluster, LEADER) as writing,
            TransactionalProducer(writing, cluster.clock, "writer") as producer,
        ):
            producer.begin()
            await producer.enqueue(TOPIC, b"aborted", partition=0)
            await producer.flush()
            data = await fetch_at(cluster, NEAREST, 0, max_wait_ms=1000)
            assert (data.high_watermark, data.last_stable_offset) == (1, 0)
            assert not (await fetch_at(cluster, NEAREST, 0, isolation_level=READ_COMMITTED)).records
            await producer.abort()
            await produce_everywhere(cluster, b"kept")
        data = await fetch_at(cluster, NEAREST, 0, isolation_level=READ_COMMITTED)
        assert data.last_stable_offset == data.high_watermark == 3
        assert [aborted.first_offset for aborted in data.aborted_transactions or ()] == [0]
        async with (
            client_in(cluster, NEAREST) as client,
            Consumer(client, ConsumerSettings(isolation_level=READ_COMMITTED)) as consumer,
        ):
            await consumer.assign({ORDERS: BEGINNING})
            assert await read_until(consumer, 1) == [b"kept"]
        assert bytes_out(cluster).keys() == {NEAREST}

    in_racks(scenario)


def test_a_range_is_read_in_the_rack() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await produce_everywhere(cluster, b"a", b"b")
        async with client_in(cluster, OTHER) as client, RangeReader(client, ORDERS, 0, 2) as reader:
            assert [fetched.next_offset async for fetched in reader] == [2]
        assert bytes_out(cluster).keys() == {OTHER}
        cluster.network.cut(host_of(OTHER), "client")
        async with client_in(cluster, OTHER) as client, RangeReader(client, ORDERS, 0, 2) as reader:
            assert [fetched.next_offset async for fetched in reader] == [2]

    in_racks(scenario)

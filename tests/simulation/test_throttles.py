"""Replication throttles (R24) on a simulated cluster: a move takes the time it must, and harms nobody beside it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from tests.simulation.scenario import (
    TOPIC,
    ask,
    assert_replicas_identical,
    create_topic,
    in_sync,
    produce,
    produce_to,
    replica,
    simulate,
    wait_for,
)
from tests.simulation.test_reassignment import alter, is_at
from tidelog.errors import NO_ERROR
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.simulation.cluster import SimulatedCluster

TOPIC_RESOURCE, BROKER_RESOURCE, SET, DELETE = 2, 4, 0, 1
BATCH_BYTES = 8000
BATCHES = 1250
RATE = 100_000
"""A hundredth of 1 GB at 10 MB/s, and of what followers fetch at a time: it takes as long."""
SCALED = {"replica_fetch_max_bytes": 10_485, "replica_fetch_response_max_bytes": 104_857}
LEADER, FOLLOWER = "leader.replication.throttled", "follower.replication.throttled"


async def configure(
    cluster: SimulatedCluster, broker_id: int, resource: int, name: str, settings: Mapping[str, str | None]
) -> None:
    configs = [
        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in settings.items()
    ]
    changed = AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[changed])
    response = await ask(cluster, broker_id, request, IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == NO_ERROR, response


async def throttle(cluster: SimulatedCluster, *sides: str, rate: int | None = RATE) -> None:
    """As kafka-reassign-partitions --throttle does it: rates for each broker, lists for the topic."""
    for broker in cluster.running:
        rates = {f"{side}.rate": None if rate is None else str(rate) for side in sides}
        await configure(cluster, broker.broker_id, BROKER_RESOURCE, str(broker.broker_id), rates)
    lists = {LEADER: "0:1,0:2", FOLLOWER: "0:3"}
    await configure(
        cluster, 1, TOPIC_RESOURCE, TOPIC, {f"{side}.replicas": None if rate is None else lists[side] for side in sides}
    )


async def fill(cluster: SimulatedCluster) -> int:
    """Size of the log to move."""
    await create_topic(cluster, [1, 2])
    for number in range(BATCHES):
        await produce(cluster, b"%d" % number + bytes(BATCH_BYTES))
    return replica(cluster, 1).log.size_bytes


async def seconds_of(done: Callable[[], bool], limit_s: float) -> float:
    return await wait_for(done, limit_s)


@pytest.mark.parametrize("sides", [(LEADER,), (FOLLOWER,), (LEADER, FOLLOWER)])
def test_a_move_takes_the_time_that_its_throttle_demands(sides: tuple[str, ...]) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        size_bytes = await fill(cluster)
        await throttle(cluster, *sides)
        assert await alter(cluster, (1, 3)) == NO_ERROR
        took_s = await seconds_of(lambda: is_at(cluster, 1, 3), 200.0)
        assert 0.85 < took_s / (size_bytes / RATE) < 1.15, took_s
        await throttle(cluster, *sides, rate=None)
        assert not any(quota.is_limited for _, quota in cluster.broker(1)._services.quotas.by_name())
        await wait_for(lambda: in_sync(cluster) == {1, 3})
        assert_replicas_identical(cluster)

    simulate(scenario, **SCALED)


async def latencies(cluster: SimulatedCluster, topic: str, count: int) -> list[float]:
    loop, found = asyncio.get_running_loop(), []
    for number in range(count):
        started = loop.time()
        response = await produce_to(cluster, 1, b"%d" % number + bytes(500), topic=topic)
        assert response.error_code == NO_ERROR
        found.append(loop.time() - started)
        await asyncio.sleep(0.05)
    return sorted(found)


@pytest.mark.parametrize("topic", [TOPIC, "beside"])
def test_writes_beside_a_throttled_move_are_as_fast_as_before(topic: str) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await fill(cluster)
        await create_topic(cluster, [1, 2, 3], name="beside")
        before = await latencies(cluster, topic, 200)
        await throttle(cluster, LEADER, FOLLOWER)
        assert await alter(cluster, (1, 2, 3)) == NO_ERROR
        meanwhile = await latencies(cluster, topic, 600)
        assert not is_at(cluster, 1, 2, 3), "the move goes on"
        assert meanwhile[594] <= before[198] + 0.002, "99 of 100"
        assert meanwhile[-1] <= before[-1] + 0.01

    simulate(scenario, **SCALED)


def test_a_move_without_throttle_takes_a_moment() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await fill(cluster)
        assert await alter(cluster, (1, 3)) == NO_ERROR
        assert await seconds_of(lambda: is_at(cluster, 1, 3), 20.0) < 10.0

    simulate(scenario, **SCALED)


def after_move_began(change: Callable[[SimulatedCluster], Awaitable[None]]) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await fill(cluster)
        await throttle(cluster, LEADER, FOLLOWER, rate=RATE // 100)
        assert await alter(cluster, (1, 3)) == NO_ERROR
        await asyncio.sleep(10)
        assert replica(cluster, 3).log.size_bytes < 500_000
        await change(cluster)
        assert await seconds_of(lambda: is_at(cluster, 1, 3), 40.0) < 15.0
        assert_replicas_identical(cluster)

    simulate(scenario, **SCALED)


def test_a_rate_for_all_brokers_counts_until_it_is_removed() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await fill(cluster)
        lists = {f"{side}.replicas": "*" for side in (LEADER, FOLLOWER)}
        await configure(cluster, 1, TOPIC_RESOURCE, TOPIC, lists)
        await configure(cluster, 2, BROKER_RESOURCE, "", {f"{FOLLOWER}.rate": "1000"})
        assert await alter(cluster, (1, 3)) == NO_ERROR
        await asyncio.sleep(10)
        assert replica(cluster, 3).log.size_bytes < 500_000
        assert cluster.broker(3)._services.quotas.follower.is_limited
        await configure(cluster, 2, BROKER_RESOURCE, "", {f"{FOLLOWER}.rate": None})
        await wait_for(lambda: is_at(cluster, 1, 3), 15.0)

    simulate(scenario, **SCALED)


def test_removed_rates_let_the_move_go_on_at_once() -> None:
    after_move_began(lambda cluster: throttle(cluster, LEADER, FOLLOWER, rate=None))


def test_removed_lists_let_the_move_go_on_at_once() -> None:
    async def unlist(cluster: SimulatedCluster) -> None:
        lists = {f"{side}.replicas": "" for side in (LEADER, FOLLOWER)}
        await configure(cluster, 2, TOPIC_RESOURCE, TOPIC, lists)

    after_move_began(unlist)


def test_a_throttled_move_survives_a_restart_of_its_target() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        size_bytes = await fill(cluster)
        await throttle(cluster, LEADER, FOLLOWER)
        assert await alter(cluster, (1, 3)) == NO_ERROR
        await asyncio.sleep(20)
        cluster.kill(3)
        await cluster.start(3)
        assert cluster.broker(3)._services.quotas.follower.bytes_per_second == RATE, "read from the store at its start"
        took_s = 20 + await seconds_of(lambda: is_at(cluster, 1, 3), 200.0)
        assert 0.85 < took_s / (size_bytes / RATE) < 1.4, took_s
        assert_replicas_identical(cluster)

    simulate(scenario, **SCALED)

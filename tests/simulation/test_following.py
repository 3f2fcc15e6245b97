"""Followers among whole brokers, on virtual time."""

import asyncio

from tests.replication.fetcher_harness import content
from tests.server.harness import batch_of, produce_request
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.replication.partition import Partition
from tidelog.simulation.cluster import DEATH_IS_NOTICED_AFTER_S, SimulatedCluster
from tidelog.simulation.processes import run_simulation

PLACES = {"orders": [[1, 2, 3], [2, 1, 3]], "pairs": [[2, 3]]}
"""Broker 3 fetches from 2 whatever happens to 1, and its fetch waits while nobody writes."""


async def cluster_with_orders() -> SimulatedCluster:
    cluster = SimulatedCluster(3)
    await cluster.start_all()
    connection = await cluster.connect(1)
    topics = [topic(name, places) for name, places in PLACES.items()]
    response = await connection.ask(CreateTopicsRequest(topics=topics, timeout_ms=5000), CreateTopicsResponse)
    assert [each.error_code for each in response.topics] == [0, 0]
    await asyncio.sleep(2)
    return cluster


def topic(name: str, places: list[list[int]]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=place) for index, place in enumerate(places)
        ],
        configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
    )


async def produce(cluster: SimulatedCluster, broker_id: int, partition: int, value: bytes) -> int:
    connection = await cluster.connect(broker_id)
    request = produce_request("orders", batch_of(value), partition)
    response = await connection.ask(request, ProduceResponse, version=9)
    return response.responses[0].partition_responses[0].error_code


async def produce_until_taken(cluster: SimulatedCluster, broker_id: int, partition: int, value: bytes) -> None:
    for _ in range(10_000):
        if not await produce(cluster, broker_id, partition, value):
            return
        await asyncio.sleep(0.001)
    raise AssertionError("no leader takes records")


def replica(cluster: SimulatedCluster, broker_id: int, partition: int) -> Partition:
    return cluster.broker(broker_id)._services.replicas.get("orders", partition)


def test_after_the_death_of_a_leader_its_successor_has_followers_at_once() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_orders()
        assert await produce(cluster, 1, 0, b"before") == 0
        await asyncio.sleep(0.2)
        killed_at = cluster.clock.monotonic()
        cluster.kill(1)
        await produce_until_taken(cluster, 2, 0, b"after")
        took_s = cluster.clock.monotonic() - killed_at
        assert took_s < DEATH_IS_NOTICED_AFTER_S + 0.1
        assert [replica(cluster, broker_id, 0).log.log_end_offset for broker_id in (2, 3)] == [2, 2]
        await cluster.stop_all()

    run_simulation(scenario())


def test_a_broker_that_comes_back_catches_up_with_what_it_missed() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_orders()
        cluster.kill(3)
        for partition, leader in ((0, 1), (1, 2)):
            await produce_until_taken(cluster, leader, partition, b"missed")
        await cluster.start(3)
        await asyncio.sleep(2)
        for partition, leader in ((0, 1), (1, 2)):
            ours, theirs = replica(cluster, 3, partition).log, replica(cluster, leader, partition).log
            assert ours.high_watermark == theirs.log_end_offset >= 1
            assert content(ours) == content(theirs)
        await cluster.stop_all()

    run_simulation(scenario())

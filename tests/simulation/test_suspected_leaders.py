"""Metadata about a leader whose broker has just gone, before the controller has reacted."""

import asyncio

from tests.simulation.test_following import cluster_with_orders
from tidelog.errors import NO_ERROR, LeaderNotAvailable
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.replication.fetcher_manager import DOUBT_S
from tidelog.server.departed_brokers import REMEMBERED_S
from tidelog.server.handlers.metadata import ELECTION_WAIT_S
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.processes import run_simulation

NOBODY = (LeaderNotAvailable.code, -1)
A_MOMENT_S = 0.02


async def metadata(cluster: SimulatedCluster, asked: int, *topics: str) -> MetadataResponse:
    """Of the named topics, or of all if none is named."""
    connection = await cluster.connect(asked)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics] or None)
    return await connection.ask(request, MetadataResponse)


async def leaders_of_orders(cluster: SimulatedCluster, asked: int) -> list[tuple[int, int]]:
    (topic,) = (await metadata(cluster, asked, "orders")).topics
    return [(partition.error_code, partition.leader_id) for partition in topic.partitions]


def test_dead_leader_is_not_named_once_its_connections_have_ended() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_orders()
        cluster.kill(1, noticed_after_s=DOUBT_S / 2)
        await asyncio.sleep(A_MOMENT_S)
        answers = await asyncio.gather(leaders_of_orders(cluster, 2), leaders_of_orders(cluster, 3))
        assert list(answers) == [[NOBODY, (NO_ERROR, 2)]] * 2
        await asyncio.sleep(DOUBT_S)
        assert await leaders_of_orders(cluster, 3) == [(NO_ERROR, 2), (NO_ERROR, 2)]
        await cluster.stop_all()

    run_simulation(scenario())


def test_leader_that_the_controller_goes_on_to_count_on_is_named_again() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_orders()
        cluster.kill(1, noticed_after_s=10 * DOUBT_S)
        await asyncio.sleep(A_MOMENT_S)
        assert (await leaders_of_orders(cluster, 2))[0] == NOBODY
        await asyncio.sleep(DOUBT_S)
        assert (await leaders_of_orders(cluster, 2))[0] == (NO_ERROR, 1)
        await cluster.stop_all()

    run_simulation(scenario())


def test_leader_that_can_be_connected_to_again_is_named_at_once() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_orders()
        for connection in list(cluster.broker(1).acceptor.registry._connections):
            connection.channel.close("a connection can be lost for other reasons")
        await asyncio.sleep(10 * A_MOMENT_S)
        assert (await leaders_of_orders(cluster, 2))[0] == (NO_ERROR, 1)
        assert cluster.broker(2).fetchers.suspected_leaders() == set()
        await cluster.stop_all()

    run_simulation(scenario())


def test_metadata_request_waits_for_an_election_that_is_near() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_orders()
        cluster.kill(1, noticed_after_s=ELECTION_WAIT_S / 2)
        await asyncio.sleep(A_MOMENT_S)
        assert await leaders_of_orders(cluster, 2) == [(NO_ERROR, 2), (NO_ERROR, 2)]
        await cluster.stop_all()

    run_simulation(scenario())


def test_metadata_of_all_topics_is_answered_at_once() -> None:
    async def scenario() -> None:
        cluster = await cluster_with_orders()
        cluster.kill(1, noticed_after_s=ELECTION_WAIT_S / 2)
        await asyncio.sleep(A_MOMENT_S)
        asked = cluster.clock.monotonic()
        await metadata(cluster, 2)
        assert cluster.clock.monotonic() - asked < ELECTION_WAIT_S / 4
        await cluster.stop_all()

    run_simulation(scenario())


def test_dead_broker_is_listed_for_a_while_with_the_partitions_it_had() -> None:
    """librdkafka takes a second longer if a partition moves in the same response in which its old leader is gone."""

    async def scenario() -> None:
        cluster = await cluster_with_orders()
        cluster.kill(1)
        await asyncio.sleep(1.0)
        response = await metadata(cluster, 2, "orders")
        assert {broker.node_id for broker in response.brokers} == {1, 2, 3}
        assert [(each.leader_id, list(each.offline_replicas)) for each in response.topics[0].partitions] == [
            (2, [1])
        ] * 2
        assert {broker.node_id for broker in (await metadata(cluster, 2)).brokers} == {2, 3}
        await asyncio.sleep(REMEMBERED_S)
        assert {broker.node_id for broker in (await metadata(cluster, 2, "orders")).brokers} == {2, 3}
        await cluster.stop_all()

    run_simulation(scenario())

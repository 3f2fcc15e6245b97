"""ElectLeaders, through the wire protocol."""

import asyncio

import pytest

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_forwarding import BROKERS, create, others, topics_of, with_cluster
from tidelog.errors import ElectionNotNeeded, InvalidRequest, PreferredLeaderNotAvailable, UnknownTopicOrPartition
from tidelog.protocol.messages.elect_leaders import (
    PREFERRED,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
)
from tidelog.simulation.cluster import SimulatedCluster

Outcomes = dict[tuple[str, int], int]


def request(*partitions: tuple[str, int], election_type: int = PREFERRED) -> ElectLeadersRequest:
    named = [ElectLeadersTopic(topic=topic, partitions=[index]) for topic, index in partitions]
    return ElectLeadersRequest(election_type=election_type, topic_partitions=named, timeout_ms=5000)


def outcomes(response: ElectLeadersResponse) -> Outcomes:
    return {
        (topic.topic, partition.partition_id): partition.error_code
        for topic in response.replica_election_results
        for partition in topic.partition_result
    }


@pytest.mark.parametrize("version", range(3))
def test_a_partition_that_is_led_as_it_should_be_and_one_that_is_not_there(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", partitions=2)
        asked = request(("t", 2), ("t", 1), ("missing", 0))
        response = await client.ask(asked, version, ElectLeadersResponse)
        assert response.error_code == 0
        assert list(outcomes(response).items()) == [
            (("t", 2), UnknownTopicOrPartition.code),
            (("t", 1), ElectionNotNeeded.code),
            (("missing", 0), UnknownTopicOrPartition.code),
        ], "in the order of the request"

    with_broker(scenario)


def test_of_all_partitions_only_those_are_returned_that_needed_an_election() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", partitions=2)
        response = await client.ask(ElectLeadersRequest(topic_partitions=None), 2, ElectLeadersResponse)
        assert [(result.topic, result.partition_result) for result in response.replica_election_results] == [("t", [])]

    with_broker(scenario)


def test_nothing_asked_nothing_done() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        response = await client.ask(request(election_type=7), 2, ElectLeadersResponse)
        assert (response.error_code, outcomes(response)) == (0, {})

    with_broker(scenario)


def test_an_unknown_kind_of_election_is_refused() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        response = await client.ask(request(("t", 0), election_type=7), 2, ElectLeadersResponse)
        assert response.error_code == InvalidRequest.code
        assert outcomes(response) == {("t", 0): InvalidRequest.code}

    with_broker(scenario)


def test_any_broker_brings_a_preferred_leader_back_and_shows_it_as_soon_as_it_has_answered() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        for asked in BROKERS:
            preferred = next(each for each in others(cluster) if each != asked)
            name = f"by-{asked}"
            connection = await cluster.connect(asked)
            await create(connection, name, partitions=len(BROKERS))
            (index,) = (each.index for each in topics_of(cluster, asked)[name].partitions if each.leader == preferred)
            await cluster.stop(preferred)
            absent = await connection.ask(request((name, index)), ElectLeadersResponse)
            assert outcomes(absent) == {(name, index): PreferredLeaderNotAvailable.code}
            await cluster.start(preferred)
            await asyncio.sleep(5)
            assert topics_of(cluster, asked)[name].partitions[index].leader != preferred
            elected = await connection.ask(request((name, index)), ElectLeadersResponse)
            assert outcomes(elected) == {(name, index): 0}
            assert topics_of(cluster, asked)[name].partitions[index].leader == preferred

    with_cluster(scenario)

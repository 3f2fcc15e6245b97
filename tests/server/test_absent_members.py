"""Topics that are created while a broker is away, and brokers that are gone for good."""

import asyncio

import pytest

from tests.simulation.scenario import ask, hosts, in_sync, produce, simulate, stored, wait_for
from tidelog.errors import BrokerIdNotRegistered, InvalidReplicaAssignment, InvalidReplicationFactor, InvalidRequest
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.inspection import stored_partitions
from tidelog.types import TopicPartition


async def create(cluster: SimulatedCluster, topic: CreatableTopic, asked: int = 1) -> CreatableTopicResult:
    response = await ask(cluster, asked, CreateTopicsRequest(topics=[topic], timeout_ms=5000), CreateTopicsResponse)
    return response.topics[0]


def assigned(cluster: SimulatedCluster, topic: str, partition: int) -> tuple[int, ...]:
    return dict(stored_partitions(cluster.store_state))[TopicPartition(topic, partition)].state.replicas


def orders(factor: int, partitions: int = 1) -> CreatableTopic:
    return CreatableTopic(name="orders", num_partitions=partitions, replication_factor=factor)


async def without_broker_3(cluster: SimulatedCluster) -> None:
    cluster.kill(3)
    await asyncio.sleep(1)


async def unregister(cluster: SimulatedCluster, broker_id: int, asked: int = 2) -> UnregisterBrokerResponse:
    return await ask(cluster, asked, UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse)


def test_a_topic_is_created_with_a_broker_that_is_away_and_the_broker_joins_when_it_is_back() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await without_broker_3(cluster)
        assert (await create(cluster, orders(3, partitions=4))).error_code == 0
        for index in range(4):
            replicas = assigned(cluster, "orders", index)
            assert (sorted(replicas), replicas[2]) == ([1, 2, 3], 3)
            assert in_sync(cluster, partition=index) == {1, 2}
        await produce(cluster, b"while broker 3 is away")
        await cluster.start(3)
        await wait_for(lambda: in_sync(cluster) == {1, 2, 3})
        assert hosts(cluster).keys() == {1, 2, 3}

    simulate(scenario, min_insync_replicas=2)


def test_more_replicas_than_the_cluster_has_members_are_refused() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await without_broker_3(cluster)
        rejected = await create(cluster, orders(4))
        assert rejected.error_code == InvalidReplicationFactor.code
        assert rejected.error_message is not None
        assert "only 3 broker(s) are registered" in rejected.error_message

    simulate(scenario)


@pytest.mark.parametrize(("replicas", "code"), [([1, 3], 0), ([3], InvalidReplicaAssignment.code)])
def test_an_assignment_may_name_a_broker_that_is_away_beside_one_that_lives(replicas: list[int], code: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await without_broker_3(cluster)
        topic = CreatableTopic(
            name="orders",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
        )
        assert (await create(cluster, topic)).error_code == code

    simulate(scenario)


@pytest.mark.parametrize("is_chosen", [True, False])
def test_internal_topics_are_created_in_an_outage_with_all_their_replicas(is_chosen: bool) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await without_broker_3(cluster)
        await ask(cluster, 1, FindCoordinatorRequest(coordinator_keys=["group"]), FindCoordinatorResponse, version=4)
        await wait_for(lambda: "/brokers/topics/__consumer_offsets" in cluster.store_state.nodes)
        await wait_for(lambda: stored(cluster, "__consumer_offsets").leader > 0)
        assert set(assigned(cluster, "__consumer_offsets", 0)) == {1, 2, 3}

    chosen = {"originals": {"offsets.topic.replication.factor": "3"}} if is_chosen else {}
    simulate(scenario, offsets_topic_num_partitions=2, **chosen)  # type: ignore[arg-type]


def test_a_broker_that_is_gone_for_good_is_unregistered() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await without_broker_3(cluster)
        assert (await unregister(cluster, 3)).error_code == 0
        assert (await create(cluster, orders(3))).error_code == InvalidReplicationFactor.code
        assert (await unregister(cluster, 3)).error_code == BrokerIdNotRegistered.code
        await cluster.start(3)
        assert (await create(cluster, orders(3))).error_code == 0
        await without_broker_3(cluster)
        cluster_of_three = CreatableTopic(name="payments", num_partitions=1, replication_factor=3)
        assert (await create(cluster, cluster_of_three)).error_code == 0

    simulate(scenario)


def test_a_broker_that_lives_or_has_replicas_is_not_unregistered() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        running = await unregister(cluster, 3)
        assert (running.error_code, running.error_message) == (
            InvalidRequest.code,
            "Broker 3 is running. Stop it before you unregister it.",
        )
        await create(cluster, orders(3))
        await without_broker_3(cluster)
        hosting = await unregister(cluster, 3)
        assert (hosting.error_code, hosting.error_message) == (
            InvalidRequest.code,
            "Broker 3 has replicas of 1 topic(s) (orders). Move them to other brokers, or delete the topics,"
            " before you unregister it.",
        )

    simulate(scenario)


def test_members_that_are_down_are_described_on_request_until_they_are_unregistered() -> None:
    async def described(cluster: SimulatedCluster, *, include_fenced: bool) -> dict[int, bool]:
        request = DescribeClusterRequest(include_fenced_brokers=include_fenced)
        response = await ask(cluster, 1, request, DescribeClusterResponse)
        return {each.broker_id: each.is_fenced for each in response.brokers}

    async def scenario(cluster: SimulatedCluster) -> None:
        await without_broker_3(cluster)
        assert await described(cluster, include_fenced=False) == {1: False, 2: False}
        assert await described(cluster, include_fenced=True) == {1: False, 2: False, 3: True}
        await unregister(cluster, 3)
        assert await described(cluster, include_fenced=True) == {1: False, 2: False}

    simulate(scenario)

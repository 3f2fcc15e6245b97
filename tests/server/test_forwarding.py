"""A cluster changes its topics and settings by whichever broker is asked."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tidelog.client.network.connection import ClientConnection
from tidelog.cluster.image import ClusterImage, Topic
from tidelog.errors import NotController, RequestTimedOut, TopicAlreadyExists
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.server.controller_link import CLIENT_ID_PREFIX
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.processes import run_simulation

BROKERS = (1, 2, 3)


def topics_of(cluster: SimulatedCluster, broker_id: int) -> dict[str, Topic]:
    return dict(cluster.broker(broker_id)._services.cluster.image.topics)


def controller_of(cluster: SimulatedCluster) -> int:
    (controller,) = {broker._services.cluster.image.controller_id for broker in cluster.running}
    return controller


def others(cluster: SimulatedCluster) -> list[int]:
    return [broker.broker_id for broker in cluster.running if broker.broker_id != controller_of(cluster)]


async def create(
    connection: ClientConnection,
    name: str,
    partitions: int = 1,
    factor: int = 3,
    timeout_ms: int = 5000,
    **configs: str,
) -> CreatableTopicResult:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
    (result,) = (await connection.ask(request, CreateTopicsResponse)).topics
    return result


async def metadata(connection: ClientConnection, name: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    (topic,) = (await connection.ask(request, MetadataResponse)).topics
    return topic.error_code


def with_cluster(scenario: Callable[[SimulatedCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = SimulatedCluster(3, auto_leader_rebalance_enable=False)
        await cluster.start_all()
        await scenario(cluster)
        await cluster.stop_all()

    run_simulation(main())


def test_every_broker_creates_topics_and_shows_them_as_soon_as_it_has_answered() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        for broker_id in BROKERS:
            name = f"by-{broker_id}"
            result = await create(await cluster.connect(broker_id), name, partitions=2, retention_ms="77")
            assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 3)
            topic = topics_of(cluster, broker_id)[name]
            assert topic.topic_id == result.topic_id
            assert all(partition.leader > 0 for partition in topic.partitions)
            assert topic.configs == {"retention.ms": "77"}
        await asyncio.sleep(1)
        assert all(set(topics_of(cluster, broker_id)) == {"by-1", "by-2", "by-3"} for broker_id in BROKERS)
        again = await create(await cluster.connect(others(cluster)[0]), "by-1")
        assert again.error_code == TopicAlreadyExists.code

    with_cluster(scenario)


def test_every_broker_deletes_topics_by_name_and_by_id() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        for broker_id in BROKERS:
            connection = await cluster.connect(broker_id)
            await create(connection, "a")
            result = await create(connection, "b")
            by_name = DeleteTopicsRequest(topic_names=["a"], timeout_ms=5000)
            by_id = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=result.topic_id)], timeout_ms=5000)
            first = await connection.ask(by_name, DeleteTopicsResponse, version=5)
            second = await connection.ask(by_id, DeleteTopicsResponse)
            codes = [each.error_code for each in (*first.responses, *second.responses)]
            assert (codes, topics_of(cluster, broker_id)) == ([0, 0], {})
            await asyncio.sleep(1)

    with_cluster(scenario)


def test_every_broker_adds_partitions() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create(await cluster.connect(1), "a")
        for broker_id in BROKERS:
            connection = await cluster.connect(broker_id)
            wanted = CreatePartitionsTopic(name="a", count=broker_id + 1, assignments=None)
            request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5000)
            (result,) = (await connection.ask(request, CreatePartitionsResponse)).results
            assert result.error_code == 0
            assert len(topics_of(cluster, broker_id)["a"].partitions) == broker_id + 1

    with_cluster(scenario)


def test_every_broker_creates_a_topic_that_somebody_asks_for() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        for broker_id in BROKERS:
            assert await metadata(await cluster.connect(broker_id), f"by-{broker_id}") == 0

    with_cluster(scenario)


def test_settings_that_one_broker_changed_hold_at_all() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create(await cluster.connect(1), "a")
        for broker_id in BROKERS:
            value = str(1000 + broker_id)
            resource = AlterConfigsResource(
                resource_type=2, resource_name="a", configs=[AlterableConfig(name="retention.ms", value=value)]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource])
            connection = await cluster.connect(broker_id)
            (result,) = (await connection.ask(request, IncrementalAlterConfigsResponse)).responses
            assert result.error_code == 0
            assert topics_of(cluster, broker_id)["a"].configs == {"retention.ms": value}
            await asyncio.sleep(1)
            assert all(topics_of(cluster, each)["a"].configs == {"retention.ms": value} for each in BROKERS)

    with_cluster(scenario)


def test_without_time_to_wait_the_answer_is_a_timeout_and_the_topic_comes() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        for broker_id in (controller_of(cluster), others(cluster)[0]):
            result = await create(await cluster.connect(broker_id), f"by-{broker_id}", timeout_ms=0)
            assert result.error_code == RequestTimedOut.code
            await asyncio.sleep(1)
            assert f"by-{broker_id}" in topics_of(cluster, broker_id)

    with_cluster(scenario)


def test_what_another_broker_passed_on_is_not_passed_on_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        connection = await cluster.connect(others(cluster)[0], f"{CLIENT_ID_PREFIX}9")
        assert (await create(connection, "a")).error_code == NotController.code

    with_cluster(scenario)


Ask = Callable[[ClientConnection], Coroutine[Any, Any, int]]


async def create_one(connection: ClientConnection) -> int:
    return (await create(connection, "new", factor=2, timeout_ms=1000)).error_code


async def delete_one(connection: ClientConnection) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="old")], timeout_ms=1000)
    return (await connection.ask(request, DeleteTopicsResponse)).responses[0].error_code


async def grow_one(connection: ClientConnection) -> int:
    wanted = CreatePartitionsTopic(name="old", count=2, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000)
    return (await connection.ask(request, CreatePartitionsResponse)).results[0].error_code


@pytest.mark.parametrize("ask", [create_one, delete_one, grow_one])
def test_a_controller_that_cannot_be_reached_is_reported_as_such_until_there_is_another(ask: Ask) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        asked = others(cluster)[0]
        connection = await cluster.connect(asked)
        await create(connection, "old", factor=2)
        cluster.kill(controller_of(cluster), noticed_after_s=20)
        assert await ask(connection) == NotController.code
        await asyncio.sleep(30)
        assert await ask(connection) == 0

    with_cluster(scenario)


def test_a_question_during_a_change_of_controllers_is_answered_by_the_next() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        connection = await cluster.connect(others(cluster)[0])
        cluster.kill(controller_of(cluster), noticed_after_s=0.5)
        assert (await create(connection, "new", factor=2)).error_code == 0

    with_cluster(scenario)


def test_a_broker_that_stops_leaves_no_partition_without_a_leader() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create(await cluster.connect(1), "a", partitions=6)
        await asyncio.sleep(5)
        for leaving in BROKERS[:2]:
            seen: list[int] = []
            watched = cluster.broker(3)._services.cluster

            def look(image: ClusterImage, seen: list[int] = seen) -> bool:
                seen.extend(partition.leader for partition in image.topics["a"].partitions)
                return False

            watching = asyncio.ensure_future(watched.wait_until(look, 3600))
            began = cluster.clock.monotonic()
            await cluster.stop(leaving)
            assert cluster.clock.monotonic() - began < 1.5
            assert leaving not in {partition.leader for partition in watched.image.topics["a"].partitions}
            watching.cancel()
            assert min(seen) > 0

    with_cluster(scenario)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_brokers_that_stop_together_do_not_wait_for_each_other(order: tuple[int, ...]) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create(await cluster.connect(1), "a", partitions=6)
        await asyncio.sleep(5)
        began = cluster.clock.monotonic()
        await asyncio.gather(*(cluster.stop(broker_id) for broker_id in order))
        assert cluster.clock.monotonic() - began < 2

    with_cluster(scenario)

"""FindCoordinator and the topics behind it."""

import asyncio

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.errors import NO_ERROR, CoordinatorNotAvailable, InvalidRequest
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.replicated.partition_keys import java_hash, partition_for
from tidelog.runtime.virtual_time import run_virtually

GROUP, TRANSACTION, SHARE = 0, 1, 2
VERSION = 6


async def find(client: Client, *keys: str, key_type: int = GROUP) -> list[Coordinator]:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    return (await client.ask(request, VERSION, FindCoordinatorResponse)).coordinators


async def topics_of(client: Client, *names: str, may_create: bool = False) -> list[MetadataResponseTopic]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names] or None, allow_auto_topic_creation=may_create
    )
    return (await client.ask(request, 9, MetadataResponse)).topics


async def configs_of(client: Client, topic: str) -> dict[str, str | None]:
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(2, topic, None)])
    response = await client.ask(request, 4, DescribeConfigsResponse)
    return {config.name: config.value for config in response.results[0].configs}


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_the_first_question_creates_the_topic_and_names_the_leader(version: int, key_type: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        request = FindCoordinatorRequest(key="one", coordinator_keys=["one", "two"])
        if version > 0:
            request.key_type = key_type
        response = await client.ask(request, version, FindCoordinatorResponse)
        if version < 4:
            found = [(response.error_code, response.node_id, response.host, response.port)]
        else:
            assert [each.key for each in response.coordinators] == ["one", "two"]
            found = [(each.error_code, each.node_id, each.host, each.port) for each in response.coordinators]
        assert set(found) == {(NO_ERROR, 0, "127.0.0.1", 9092)}

    with_broker(scenario)


def test_the_topics_have_kafkas_settings() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await find(client, "group")
        await find(client, "transaction", key_type=TRANSACTION)
        offsets, transactions = await topics_of(client, "__consumer_offsets", "__transaction_state")
        for topic in (offsets, transactions):
            assert topic.is_internal
            assert [len(partition.replica_nodes) for partition in topic.partitions] == [1] * 50
        of_offsets = await configs_of(client, "__consumer_offsets")
        assert {name: of_offsets[name] for name in ("cleanup.policy", "compression.type", "segment.bytes")} == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        of_transactions = await configs_of(client, "__transaction_state")
        expected = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }
        assert {name: of_transactions[name] for name in expected} == expected

    with_broker(scenario)


def test_settings_decide_on_the_topics() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await find(client, "group")
        (topic,) = await topics_of(client, "__consumer_offsets")
        assert len(topic.partitions) == 3

    with_broker(scenario, offsets_topic_num_partitions=3)


def test_a_share_group_has_no_coordinator() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        found = await find(client, "group:AAAAAAAAAAAAAAAAAAAAAA:0", key_type=SHARE)
        assert [(each.error_code, each.node_id, each.port) for each in found] == [(InvalidRequest.code, -1, -1)]
        assert await topics_of(client) == []

    with_broker(scenario)


def test_nothing_is_created_for_nobody() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert await find(client) == []
        assert await topics_of(client) == []

    with_broker(scenario)


def test_brokers_that_are_missing_are_not_waited_for() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        began_s = asyncio.get_running_loop().time()
        (found,) = await find(client, "group")
        assert found.error_code == CoordinatorNotAvailable.code
        assert asyncio.get_running_loop().time() == pytest.approx(began_s, abs=0.1)
        assert await topics_of(client) == []

    with_broker(scenario, offsets_topic_replication_factor=2)


def test_many_who_ask_at_once_get_one_topic() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        clients = [client, await harness.connect(), await harness.connect()]
        found = await asyncio.gather(*(find(each, "group") for each in clients))
        assert {each.error_code for (each,) in found} == {NO_ERROR}

    with_broker(scenario)


def test_asking_for_the_metadata_of_an_internal_topic_creates_it_as_coordinators_need_it() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        (topic,) = await topics_of(client, "__consumer_offsets", may_create=True)
        assert len(topic.partitions) == 50
        assert (await configs_of(client, "__consumer_offsets"))["cleanup.policy"] == "compact"

    with_broker(scenario)


def test_the_coordinator_is_the_same_after_a_restart() -> None:
    async def scenario() -> None:
        harness = Harness()
        async with harness.broker():
            await find(await harness.connect(), "group")
        async with harness.broker(offsets_topic_num_partitions=7):
            client = await harness.connect()
            (found,) = await find(client, "group")
            assert found.error_code == NO_ERROR
            (topic,) = await topics_of(client, "__consumer_offsets")
            assert len(topic.partitions) == 50

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("key", "hashed"),
    [("", 0), ("a", 97), ("group", 98629247), ("my-group", -1906497762), ("grüße", 98768023), ("\U0001f600", 1772899)],
)
def test_keys_are_hashed_as_java_does(key: str, hashed: int) -> None:
    assert java_hash(key) == hashed


def test_the_hash_without_a_positive_twin_counts_as_zero() -> None:
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0

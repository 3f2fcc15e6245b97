"""Metadata, through the wire protocol: which topics there are, who leads them, and creation on demand."""

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.errors import (
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.runtime.virtual_time import run_virtually
from tidelog.types import ZERO_UUID, Uuid

VERSIONS = range(14)
NOT_ASKED_FOR = -(2**31)


def by_name(*names: str, **options: bool) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options)


def by_id(*ids: Uuid) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids])


async def ask(client: Client, request: MetadataRequest, version: int = 13) -> MetadataResponse:
    return await client.ask(request, version, MetadataResponse)


async def topic(client: Client, request: MetadataRequest, version: int = 13) -> MetadataResponseTopic:
    (found,) = (await ask(client, request, version)).topics
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_brokers_and_partitions(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", partitions=2)
        response = await ask(client, by_name("t"), version)
        assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [(0, "127.0.0.1", 9092)]
        (found,) = response.topics
        assert (found.error_code, found.name) == (0, "t")
        assert (found.topic_id != ZERO_UUID) == (version >= 10)
        assert [
            (partition.error_code, partition.partition_index, partition.leader_id, partition.leader_epoch)
            for partition in found.partitions
        ] == [(0, index, 0, 0 if version >= 7 else -1) for index in range(2)]
        assert list(found.partitions[0].replica_nodes) == list(found.partitions[0].isr_nodes) == [0]
        assert list(found.partitions[0].offline_replicas) == []
        assert response.controller_id == (0 if version >= 1 else -1)
        assert bool(response.cluster_id) == (version >= 2)

    with_broker(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_list_asks_for_all_topics_and_an_empty_list_for_none(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("a")
        await client.create_topic("b")
        everything = MetadataRequest(topics=None if version >= 1 else [])
        assert [found.name for found in (await ask(client, everything, version)).topics] == ["a", "b"]
        if version >= 1:
            assert (await ask(client, MetadataRequest(topics=[]), version)).topics == []

    with_broker(scenario)


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_an_unknown_topic_is_created_with_the_defaults(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        found = await topic(client, by_name("new"), version)
        assert (found.error_code, len(found.partitions)) == (0, 3)
        assert (await client.produce("new", b"x", partition=2)).error_code == 0
        assert harness.disk.exists("/logs/new-2")

    with_broker(scenario, num_partitions=3)


@pytest.mark.parametrize("version", [4, 13])
def test_a_client_may_choose_not_to_create(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        found = await topic(client, by_name("new", allow_auto_topic_creation=False), version)
        assert (found.error_code, found.name, found.partitions) == (UnknownTopicOrPartition.code, "new", [])
        assert (await ask(client, MetadataRequest(topics=None))).topics == []

    with_broker(scenario)


def test_automatic_creation_can_be_switched_off() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        for version in VERSIONS:
            found = await topic(client, by_name("new"), version)
            assert found.error_code == UnknownTopicOrPartition.code
        assert not harness.disk.exists("/logs/new-0")

    with_broker(scenario, auto_create_topics_enable=False)


def test_a_topic_that_cannot_be_created_says_why() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert (await topic(client, by_name("new"))).error_code == InvalidReplicationFactor.code

    with_broker(scenario, default_replication_factor=2)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_an_invalid_name_is_refused_and_nothing_created(name: str) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        for may_create in (True, False):
            found = await topic(client, by_name(name, allow_auto_topic_creation=may_create))
            assert (found.error_code, found.name) == (InvalidTopic.code, name)
        assert (await ask(client, MetadataRequest(topics=None))).topics == []

    with_broker(scenario)


def test_good_and_bad_names_of_one_request_are_answered_in_order_and_once() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("b")
        response = await ask(client, by_name("new", "b", "a b", "b"))
        assert [(found.name, found.error_code) for found in response.topics] == [
            ("new", 0),
            ("b", 0),
            ("a b", InvalidTopic.code),
        ]

    with_broker(scenario)


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_found_by_id(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        topic_id = (await topic(client, by_name("t"))).topic_id
        response = await ask(client, by_id(topic_id, b"?" * 16, topic_id), version)
        assert [(found.name, found.topic_id, found.error_code) for found in response.topics] == [
            ("t", topic_id, 0),
            (None, b"?" * 16, UnknownTopicId.code),
        ]

    with_broker(scenario)


def test_an_id_counts_more_than_the_name_beside_it() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("a")
        await client.create_topic("b")
        topic_id = (await topic(client, by_name("a"))).topic_id
        wanted = MetadataRequestTopic(name="b", topic_id=topic_id)
        assert (await topic(client, MetadataRequest(topics=[wanted]))).name == "a"
        unknown = MetadataRequestTopic(name="b", topic_id=b"?" * 16)
        assert (await topic(client, MetadataRequest(topics=[unknown]))).name is None

    with_broker(scenario)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_in_the_versions_that_must_not_use_them(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        topic_id = (await topic(client, by_name("t"))).topic_id
        named = MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=topic_id)])
        for request in (by_id(topic_id), named, by_id(ZERO_UUID)):
            response = await ask(client, request, version)
            assert [found.error_code for found in response.topics] == [InvalidRequest.code]
            assert response.brokers == []

    with_broker(scenario)


def test_a_topic_without_name_and_id_is_refused() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        response = await ask(client, by_id(ZERO_UUID))
        assert (response.error_code, response.topics[0].error_code) == (InvalidRequest.code, InvalidRequest.code)

    with_broker(scenario)


def test_everybody_may_do_everything_and_learns_it_when_asking() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        silent = await ask(client, by_name("t"), 10)
        assert silent.cluster_authorized_operations == NOT_ASKED_FOR
        assert silent.topics[0].topic_authorized_operations == NOT_ASKED_FOR
        asked = by_name("t", include_cluster_authorized_operations=True, include_topic_authorized_operations=True)
        response = await ask(client, asked, 10)
        assert response.cluster_authorized_operations == 8096
        assert response.topics[0].topic_authorized_operations == 3576

    with_broker(scenario)


def test_clients_are_sent_to_the_advertised_address_of_their_listener() -> None:
    async def main() -> None:
        harness = Harness()
        settings = {
            "listeners": ("INSIDE://127.0.0.1:9092", "OUTSIDE://127.0.0.1:9093"),
            "advertised_listeners": ("INSIDE://127.0.0.1:9092", "OUTSIDE://outside.example:2"),
            "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        }
        async with harness.broker(**settings):
            for port, address in ((9092, ("127.0.0.1", 9092)), (9093, ("outside.example", 2))):
                response = await ask(await harness.connect(port=port), MetadataRequest(topics=[]))
                assert [(broker.host, broker.port) for broker in response.brokers] == [address]

    run_virtually(main())


def test_the_rack_is_returned() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert [broker.rack for broker in (await ask(client, by_name())).brokers] == ["east"]

    with_broker(scenario, broker_rack="east")

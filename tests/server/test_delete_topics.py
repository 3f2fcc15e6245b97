"""DeleteTopics, through the wire protocol: by name and by id, and what goes with a topic."""

import asyncio

import pytest

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_create_topics import directories, topic_names
from tidelog.errors import (
    InvalidRequest,
    InvalidTopic,
    NotLeaderOrFollower,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.types import ZERO_UUID, Uuid

VERSIONS = range(1, 7)
NAMED = 6


async def delete(client: Client, *wanted: str | Uuid, version: int = NAMED) -> list[DeletableTopicResult]:
    names = [each for each in wanted if isinstance(each, str)]
    states = [
        DeleteTopicState(name=each) if isinstance(each, str) else DeleteTopicState(name=None, topic_id=each)
        for each in wanted
    ]
    request = DeleteTopicsRequest(topics=states, topic_names=names, timeout_ms=1000)
    return (await client.ask(request, version, DeleteTopicsResponse)).responses


async def id_of(client: Client, name: str) -> Uuid:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return (await client.ask(request, 12, MetadataResponse)).topics[0].topic_id


def test_the_topics_of_coordinators_stay() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_internal_topic("__consumer_offsets")
        (result,) = await delete(client, "__consumer_offsets")
        assert result.error_code == InvalidTopic.code
        assert await topic_names(client) == ["__consumer_offsets"]

    with_broker(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_goes_with_its_logs_and_comes_back_empty(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", partitions=2)
        await client.create_topic("other")
        await client.produce("t", b"x")
        (result,) = await delete(client, "t", version=version)
        assert (result.name, result.error_code) == ("t", 0)
        assert await topic_names(client) == ["other"]
        assert (await client.produce("t", b"x")).error_code == UnknownTopicOrPartition.code
        assert {name for name in directories(harness) if not name.endswith("-delete")} == {"other-0"}
        await asyncio.sleep(120)
        assert directories(harness) == {"other-0"}
        await client.create_topic("t")
        assert await client.values("t") == []

    with_broker(scenario)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["missing", "a b", "", "__consumer_offsets"])
def test_an_unknown_name_is_an_error(version: int, name: str) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        (result,) = await delete(client, name, version=version)
        assert (result.name, result.error_code) == (name, UnknownTopicOrPartition.code)
        assert bool(result.error_message) == (version >= 5)

    with_broker(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_that_comes_twice_is_refused_and_stays(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("a")
        await client.create_topic("b")
        results = await delete(client, "a", "b", "a", version=version)
        assert {result.name: result.error_code for result in results} == {"a": InvalidRequest.code, "b": 0}
        assert await topic_names(client) == ["a"]

    with_broker(scenario)


def test_a_topic_goes_by_its_id() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        topic_id = await id_of(client, "t")
        (result,) = await delete(client, topic_id)
        assert (result.name, result.topic_id, result.error_code) == ("t", topic_id, 0)
        (again,) = await delete(client, topic_id)
        assert (again.name, again.topic_id, again.error_code) == (None, topic_id, UnknownTopicId.code)

    with_broker(scenario)


def test_a_topic_named_both_ways_is_refused_and_stays() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        topic_id = await id_of(client, "t")
        for wanted in (("t", topic_id), (topic_id, "t")):
            (result,) = await delete(client, *wanted)
            assert (result.name, result.topic_id, result.error_code) == ("t", topic_id, InvalidRequest.code)
        (twice,) = await delete(client, topic_id, topic_id)
        assert (twice.name, twice.topic_id, twice.error_code) == (None, topic_id, InvalidRequest.code)
        assert await topic_names(client) == ["t"]

    with_broker(scenario)


def test_one_entry_with_name_and_id_or_neither_is_refused() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        both = DeleteTopicState(name="t", topic_id=await id_of(client, "t"))
        neither = DeleteTopicState(name=None, topic_id=ZERO_UUID)
        response = await client.ask(DeleteTopicsRequest(topics=[both, neither]), NAMED, DeleteTopicsResponse)
        assert [(result.name, result.error_code) for result in response.responses] == [
            ("t", InvalidRequest.code),
            (None, InvalidRequest.code),
        ]
        assert await topic_names(client) == ["t"]

    with_broker(scenario)


def test_deletion_can_be_forbidden() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        (result,) = await delete(client, "t")
        assert result.error_code == TopicDeletionDisabled.code
        assert await topic_names(client) == ["t"]

    with_broker(scenario, delete_topic_enable=False)


def test_a_fetch_that_waits_learns_that_its_topic_was_deleted() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        waiting = asyncio.ensure_future((await harness.connect()).fetch("t", 0, max_wait_ms=60_000))
        await asyncio.sleep(1)
        await delete(client, "t")
        async with asyncio.timeout(1):
            data = await waiting
        assert data.error_code in (UnknownTopicOrPartition.code, NotLeaderOrFollower.code)

    with_broker(scenario)

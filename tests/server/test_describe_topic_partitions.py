"""DescribeTopicPartitions, through the wire protocol: topics page by page."""

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.errors import InvalidRequest, InvalidTopic, UnknownTopicOrPartition
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

ALL = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


async def ask(
    client: Client, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return await client.ask(request, 0, DescribeTopicPartitionsResponse)


def partitions(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, partition.partition_index) for topic in response.topics for partition in topic.partitions]


def next_place(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


async def fill(client: Client) -> None:
    for name, count in (("c", 2), ("a", 3), ("b", 1)):
        await client.create_topic(name, partitions=count)


def test_a_topic_with_all_that_is_known_of_it() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        response = await ask(client, "b")
        (topic,) = response.topics
        assert (topic.error_code, topic.name, topic.is_internal) == (0, "b", False)
        assert topic.topic_id != bytes(16)
        assert topic.topic_authorized_operations == 3576
        (partition,) = topic.partitions
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 0, 0)
        assert list(partition.replica_nodes) == list(partition.isr_nodes) == [0]
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
        assert list(partition.offline_replicas) == []

    with_broker(scenario)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 0, -1])
@pytest.mark.parametrize("names", [("c", "b", "a", "a"), ()])
def test_the_pages_together_give_everything_once_and_in_order(limit: int, names: tuple[str, ...]) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        found: list[tuple[str | None, int]] = []
        cursor: tuple[str, int] | None = None
        while True:
            response = await ask(client, *names, limit=limit, cursor=cursor)
            page = partitions(response)
            assert 0 < len(page) <= max(limit, 1)
            found += page
            cursor = next_place(response)
            if cursor is None:
                break
        assert found == ALL

    with_broker(scenario)


def test_unknown_and_invalid_names_have_their_errors_in_their_place() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        response = await ask(client, "b", "aa", "?")
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("?", InvalidTopic.code),
            ("aa", UnknownTopicOrPartition.code),
            ("b", 0),
        ]
        full = await ask(client, "a", "aa", "b", limit=3)
        assert ([topic.name for topic in full.topics], next_place(full)) == (["a"], ("aa", 0))

    with_broker(scenario)


def test_a_cursor_outside_of_the_wanted_topics_is_refused() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        for cursor in (("b", 0), ("zzz", 0), ("", 0), ("a", -1)):
            response = await ask(client, "a", "c", cursor=cursor)
            assert [(topic.name, topic.error_code) for topic in response.topics] == [
                ("a", InvalidRequest.code),
                ("c", InvalidRequest.code),
            ]

    with_broker(scenario)


def test_a_topic_that_went_between_two_pages_is_passed_over() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        assert partitions(await ask(client, cursor=("aa", 5))) == [("b", 0), ("c", 0), ("c", 1)]
        assert partitions(await ask(client, cursor=("a", 9))) == [("b", 0), ("c", 0), ("c", 1)]

    with_broker(scenario)

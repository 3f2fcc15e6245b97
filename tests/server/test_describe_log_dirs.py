"""DescribeLogDirs, through the wire protocol."""

import asyncio

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.errors import KafkaStorageError
from tidelog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tidelog.runtime.virtual_time import run_virtually


async def describe(
    client: Client, topics: dict[str, list[int]] | None, version: int = 5
) -> list[DescribeLogDirsResult]:
    wanted = None
    if topics is not None:
        wanted = [DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
    response = await client.ask(DescribeLogDirsRequest(topics=wanted), version, DescribeLogDirsResponse)
    assert response.error_code == 0
    return response.results


def sizes(result: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_each_partition_with_its_size(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", partitions=2)
        await client.produce("t", b"x" * 100)
        (result,) = await describe(client, None, version)
        assert (result.error_code, result.log_dir, result.is_cordoned) == (0, "/logs", False)
        size = harness.disk.size("/logs/t-0/00000000000000000000.log")
        assert size > 100
        assert sizes(result) == {("t", 0): size, ("t", 1): 0}
        assert [(each.offset_lag, each.is_future_key) for each in result.topics[0].partitions] == [(0, False)] * 2
        assert (result.total_bytes > result.usable_bytes > 0) == (version >= 4)

    with_broker(scenario)


def test_a_controller_learns_where_logs_end_and_in_which_directory_they_are() -> None:
    """R42, in tagged fields that others skip."""

    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("t", partitions=2)
            await client.produce("t", b"x")
            log = broker.replicas.get("t", 0).log
            log.leader_epochs.assign(7, log.log_end_offset)  # began to lead and has written nothing
            (result,) = await describe(client, None, 5)
            assert f"directory.id={result.directory_id}".encode() in harness.disk.read_file("/logs/meta.properties")
            (topic,) = result.topics
            assert topic.topic_id == log.topic_id
            assert [(each.log_end_offset, each.last_epoch) for each in topic.partitions] == [(1, 0), (0, -1)]
            log.advance_log_start_offset(1)
            (result,) = await describe(client, {"t": [0]}, 5)
            (emptied,) = result.topics[0].partitions
            assert (emptied.log_end_offset, emptied.last_epoch) == (1, 7)
            (result,) = await describe(client, None, 1)
            assert result.directory_id == ""

    run_virtually(main())


def test_only_what_was_asked_for_is_returned() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", partitions=2)
        await client.create_topic("u")
        asked: list[tuple[dict[str, list[int]], set[tuple[str, int]]]] = [
            ({"t": [1]}, {("t", 1)}),
            ({"t": [0, 0, 7], "missing": [0]}, {("t", 0)}),
            ({"t": []}, set()),
            ({}, set()),
        ]
        for wanted, expected in asked:
            (result,) = await describe(client, wanted)
            assert set(sizes(result)) == expected

    with_broker(scenario)


def test_a_directory_that_failed_says_so_and_the_other_goes_on() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", partitions=2)
        harness.disk.vanish("/b")
        for index in range(2):
            await client.produce("t", b"x", partition=index)
        await asyncio.sleep(1)
        results = {result.log_dir: result for result in await describe(client, None)}
        assert results["/b"].error_code == KafkaStorageError.code
        assert results["/b"].topics == []
        assert (results["/a"].error_code, len(sizes(results["/a"]))) == (0, 1)

    with_broker(scenario, log_dirs=("/a", "/b"))

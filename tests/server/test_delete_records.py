"""DeleteRecords, through the wire protocol."""

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.errors import OffsetOutOfRange, PolicyViolation, UnknownTopicOrPartition
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.runtime.virtual_time import run_virtually

VERSIONS = (0, 1, 2)


async def delete(
    client: Client, *wanted: tuple[int, int], topic: str = "t", version: int = 2
) -> list[tuple[int, int, int]]:
    """Partition, new start and error of each answer."""
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in wanted]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)
    response = await client.ask(request, version, DeleteRecordsResponse)
    return [(each.partition_index, each.low_watermark, each.error_code) for each in response.topics[0].partitions]


async def fill(client: Client) -> None:
    await client.create_topic("t", partitions=2)
    await client.produce("t", b"0", b"1", b"2")
    await client.produce("t", b"3", b"4")


@pytest.mark.parametrize("version", VERSIONS)
def test_records_before_the_offset_are_gone(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        assert await delete(client, (0, 2), version=version) == [(0, 2, 0)]
        assert (await client.fetch("t", 1)).error_code == OffsetOutOfRange.code
        data = await client.fetch("t", 2)
        assert (data.error_code, data.log_start_offset) == (0, 2)
        assert await client.values("t", offset=2) == [b"2", b"3", b"4"]

    with_broker(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_minus_one_deletes_everything_that_is_committed(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        assert await delete(client, (0, -1), version=version) == [(0, 5, 0)]
        assert (await client.produce("t", b"5")).base_offset == 5
        assert await client.values("t", offset=5) == [b"5"]

    with_broker(scenario)


def test_an_offset_before_the_start_changes_nothing() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        await delete(client, (0, 3))
        assert await delete(client, (0, 1)) == [(0, 3, 0)]
        assert await delete(client, (0, 0)) == [(0, 3, 0)]

    with_broker(scenario)


@pytest.mark.parametrize("offset", [6, 1000, -2, -100])
def test_an_offset_outside_is_refused(offset: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        assert await delete(client, (0, offset)) == [(0, -1, OffsetOutOfRange.code)]
        assert len(await client.values("t")) == 5

    with_broker(scenario)


def test_each_partition_has_its_own_answer_and_the_last_offset_counts() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await fill(client)
        assert await delete(client, (0, 2), (1, 0), (9, 0), (0, 3)) == [
            (0, 3, 0),
            (1, 0, 0),
            (9, -1, UnknownTopicOrPartition.code),
        ]
        for missing in ("missing", "__consumer_offsets"):
            assert await delete(client, (0, 0), topic=missing) == [(0, -1, UnknownTopicOrPartition.code)]

    with_broker(scenario)


@pytest.mark.parametrize(("policy", "error"), [("compact", PolicyViolation.code), ("compact,delete", 0), ("", 0)])
def test_only_what_retention_may_delete_can_be_deleted(policy: str, error: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", cleanup_policy=policy)
        ((_, _, code),) = await delete(client, (0, 0))
        assert code == error

    with_broker(scenario)


def test_a_restart_keeps_what_was_deleted_away() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await fill(client)
            await delete(client, (0, 2))
        async with harness.broker():
            client = await harness.connect()
            assert (await client.fetch("t", 1)).error_code == OffsetOutOfRange.code
            assert await client.values("t", offset=2) == [b"2", b"3", b"4"]

    run_virtually(main())

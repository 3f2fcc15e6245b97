"""OffsetForLeaderEpoch, through the wire protocol: where the epochs of a partition end."""

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.errors import FencedLeaderEpoch, UnknownLeaderEpoch, UnknownTopicOrPartition
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.sliced_requests import MANY

VERSIONS = (2, 3, 4)


async def end_of(
    client: Client, epoch: int, version: int = 4, *, topic: str = "t", partition: int = 0, current: int = -1
) -> tuple[int, int, int]:
    """Error, the largest epoch not above the one asked for, and its end."""
    wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    response = await client.ask(request, version, OffsetForLeaderEpochResponse)
    (answer,) = response.topics[0].partitions
    assert answer.partition == partition
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", VERSIONS)
def test_epochs_end_where_the_next_one_begins(version: int) -> None:
    async def main() -> None:
        harness = Harness()
        for count in (2, 3):
            broker = await harness.start()
            client = await harness.connect()
            if count == 2:
                await client.create_topic("t")
            await client.produce("t", *[b"x"] * count)
            await broker.stop()
            harness.disk.remove("/logs/.kafka_cleanshutdown")
        async with harness.broker():
            client = await harness.connect()
            assert await end_of(client, 0, version) == (0, 0, 2)
            assert await end_of(client, 1, version) == (0, 1, 5)
            assert await end_of(client, 2, version) == (0, 2, 5)
            assert await end_of(client, 3, version) == (0, -1, -1)
            assert await end_of(client, -1, version) == (0, -1, -1)

    run_virtually(main())


def test_an_empty_partition_ends_at_its_start() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        assert await end_of(client, 0) == (0, 0, 0)

    with_broker(scenario)


def test_errors() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        for version in VERSIONS:
            assert await end_of(client, 0, version, topic="missing") == (UnknownTopicOrPartition.code, -1, -1)
            assert await end_of(client, 0, version, partition=1) == (UnknownTopicOrPartition.code, -1, -1)
            assert await end_of(client, 0, version, current=1) == (UnknownLeaderEpoch.code, -1, -1)
            assert await end_of(client, 0, version, current=-2) == (FencedLeaderEpoch.code, -1, -1)
            assert await end_of(client, 0, version, current=0) == (0, 0, 0)

    with_broker(scenario)


def test_very_many_partitions_are_answered_in_their_order() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        topics = [
            OffsetForLeaderTopic(name, [OffsetForLeaderPartition(index, -1, 0) for index in range(count)])
            for name, count in (("t", MANY), ("none", 2), ("t", 1))
        ]
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        response = await client.ask(request, 4, OffsetForLeaderEpochResponse)
        assert [(found.topic, len(found.partitions)) for found in response.topics] == [
            ("t", MANY),
            ("none", 2),
            ("t", 1),
        ]
        assert [each.partition for each in response.topics[0].partitions] == list(range(MANY))
        codes = [each.error_code for found in response.topics for each in found.partitions]
        assert codes == [0, *[UnknownTopicOrPartition.code] * (MANY + 1), 0]

    with_broker(scenario)

"""Groups whose records are larger than the topic takes: the client gets an error, and nothing is there afterwards."""

import asyncio

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_classic_groups import joining
from tests.server.test_group_offsets import TOPIC, commit_request, prepare
from tidelog.errors import NO_ERROR, UnknownServerError
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitResponse

TOO_SMALL_BYTES = 100


async def listed(client: Client) -> list[str]:
    response = await client.ask(ListGroupsRequest(), 5, ListGroupsResponse)
    assert response.error_code == NO_ERROR
    return [group.group_id for group in response.groups]


def test_a_client_that_asks_for_too_much_gets_the_error_of_kafka() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        heartbeat = ConsumerGroupHeartbeatRequest(
            group_id="consumers",
            member_id="m1",
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        beaten = await client.ask(heartbeat, 1, ConsumerGroupHeartbeatResponse)
        assert beaten.error_code == UnknownServerError.code
        joined = await client.ask(joining(group_id="g" * 100), 9, JoinGroupResponse)
        assert joined.error_code == UnknownServerError.code
        committed = await client.ask(commit_request((0, 5)), 8, OffsetCommitResponse)
        assert committed.topics[0].partitions[0].error_code == UnknownServerError.code
        assert await listed(client) == []
        await asyncio.sleep(1_000)
        assert await listed(client) == []

    with_broker(scenario, message_max_bytes=TOO_SMALL_BYTES, connections_max_idle_ms=10_000_000)

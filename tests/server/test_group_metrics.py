"""Metrics of groups on /metrics."""

import asyncio

from tests.server.harness import Client, Harness
from tests.server.scrape import Scrape
from tests.server.test_classic_groups import joined, joining, leaving, syncing
from tests.server.test_group_offsets import GROUP, TOPIC, commit_request, prepare
from tidelog.errors import NO_ERROR
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.leave_group import LeaveGroupResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitResponse
from tidelog.protocol.messages.sync_group import SyncGroupResponse
from tidelog.runtime.virtual_time import run_virtually

COORDINATOR = "kafka_server_group_coordinator_metrics_"
MANAGER = "kafka_coordinator_group_groupmetadatamanager_"


async def commit(client: Client) -> None:
    response = await client.ask(commit_request((0, 5), (1, 6)), 8, OffsetCommitResponse)
    assert [each.error_code for each in response.topics[0].partitions] == [NO_ERROR, NO_ERROR]


async def join_consumer_group(client: Client) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id="m1",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    assert (await client.ask(request, 1, ConsumerGroupHeartbeatResponse)).error_code == NO_ERROR


def test_groups_are_counted_by_protocol_and_state() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await prepare(client)
            response = await joined(client, 9)
            found = Scrape.of(broker)
            assert found(f"{MANAGER}numgroupscompletingrebalance") == 1
            request = syncing(response.member_id, 1, response.member_id)
            await client.ask(request, 5, SyncGroupResponse)
            await join_consumer_group(client)
            await commit(client)
            found = Scrape.of(broker)
            assert found(f"{COORDINATOR}group_count", protocol="classic") == 2
            assert found(f"{COORDINATOR}group_count", protocol="consumer") == 1
            assert found(f"{COORDINATOR}consumer_group_count", state="stable") == 1
            assert found(f"{MANAGER}numgroups") == 3
            assert found(f"{MANAGER}numgroupsstable") == 1
            assert found(f"{MANAGER}numgroupsempty") == 1
            assert found(f"{MANAGER}numgroupscompletingrebalance") == 0
            await client.ask(leaving(response.member_id), 5, LeaveGroupResponse)
            assert Scrape.of(broker)(f"{MANAGER}numgroupsempty") == 2

    run_virtually(main())


def test_offsets_and_rebalances_are_counted() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await prepare(client)
            await commit(client)
            found = Scrape.of(broker)
            assert found(f"{MANAGER}numoffsets") == 2
            assert found(f"{COORDINATOR}offset_commit_total") == 2
            await client.ask(DeleteGroupsRequest([GROUP]), 2, DeleteGroupsResponse)
            await join_consumer_group(client)
            response = await joined(client, 9)
            await client.ask(syncing(response.member_id, 1, response.member_id), 5, SyncGroupResponse)
            waiting = client.start(joining(), 3)
            await asyncio.sleep(1)
            found = Scrape.of(broker)
            assert not waiting.done()
            assert found(f"{MANAGER}numgroupspreparingrebalance") == 1
            assert found(f"{MANAGER}numoffsets") == 0
            assert found(f"{COORDINATOR}offset_deletion_total") == 2
            assert found(f"{COORDINATOR}offset_expiration_total") == 0
            assert found(f"{COORDINATOR}group_completed_rebalance_total") == 1
            assert found(f"{COORDINATOR}consumer_group_rebalance_total") == 1

    run_virtually(main())


def test_loaded_partitions_have_metrics() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await prepare(client)
            await commit(client)
        async with harness.broker() as broker:
            await asyncio.sleep(5)
            found = Scrape.of(broker)
            assert found(f"{COORDINATOR}num_partitions", state="active") == 50
            assert found(f"{COORDINATOR}num_partitions", state="loading") == 0
            assert found(f"{COORDINATOR}num_partitions", state="failed") == 0
            assert found(f"{MANAGER}numoffsets") == 2
            assert found(f"{COORDINATOR}offset_commit_total") == 0

    run_virtually(main())

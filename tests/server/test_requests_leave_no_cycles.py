"""Requests to coordinators are forgotten when they are answered: cycles would make the garbage collector stop the
broker for milliseconds to find them."""

import gc

import pytest

from tests.server.harness import World
from tests.server.test_classic_groups import joined, joining, leaving, syncing
from tests.server.test_group_metrics import join_consumer_group
from tests.server.test_group_offsets import GROUP, TOPIC, commit_request, prepare
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tidelog.protocol.messages.sync_group import SyncGroupResponse
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.protocol.structs import Request
from tidelog.runtime.virtual_time import run_virtually

CLASSIC_GROUP, CONSUMER_GROUP = "classics", "consumers"
TIMES = 50


def in_a_transaction_of_nobody() -> Request:
    partitions = [TxnOffsetCommitRequestPartition(0, 5)]
    return TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=GROUP,
        producer_id=77,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(TOPIC, partitions)],
    )


def requests(member_id: str) -> dict[str, tuple[Request, int]]:
    """Good ones and bad ones."""
    consumer = ConsumerGroupHeartbeatRequest(group_id=CONSUMER_GROUP, member_id="m1", member_epoch=1)
    fenced = ConsumerGroupHeartbeatRequest(group_id=CONSUMER_GROUP, member_id="m1", member_epoch=9)
    everything = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    return {
        "a heartbeat": (HeartbeatRequest(CLASSIC_GROUP, 1, member_id), 4),
        "a heartbeat of another generation": (HeartbeatRequest(CLASSIC_GROUP, 9, member_id), 4),
        "a sync": (syncing(member_id, 1, member_id), 5),
        "a heartbeat of a consumer": (consumer, 1),
        "a heartbeat of a consumer that is fenced": (fenced, 1),
        "a commit": (commit_request((0, 5)), 8),
        "a commit of a stranger": (commit_request((0, 5), group=CLASSIC_GROUP), 8),
        "a commit in a transaction that is none": (in_a_transaction_of_nobody(), 5),
        "a fetch of offsets": (OffsetFetchRequest(groups=[everything]), 9),
        "descriptions": (DescribeGroupsRequest(groups=[CLASSIC_GROUP, "none"]), 6),
        "descriptions of consumer groups": (ConsumerGroupDescribeRequest(group_ids=[CONSUMER_GROUP, "none"]), 1),
        "a list": (ListGroupsRequest(), 5),
        "a deletion of nothing": (DeleteGroupsRequest(["none"]), 2),
        "a search": (FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 6),
        "a farewell of a stranger": (leaving("stranger", group_id=CLASSIC_GROUP), 5),
        "a stranger that joins": (joining("stranger", group_id=CLASSIC_GROUP), 9),
    }


@pytest.mark.parametrize("name", requests(""))
def test_a_request_is_forgotten_with_its_answer(name: str) -> None:
    async def main() -> None:
        world = World()
        async with world.broker():
            client = await world.connect()
            await prepare(client)
            member_id = (await joined(client, 9)).member_id
            await client.ask(syncing(member_id, 1, member_id), 5, SyncGroupResponse)
            await join_consumer_group(client)
            request, version = requests(member_id)[name]
            await client.start(request, version)
            gc.collect()
            gc.disable()
            try:
                for _ in range(TIMES):
                    await client.start(request, version)
                assert gc.collect() < TIMES
            finally:
                gc.enable()

    run_virtually(main())

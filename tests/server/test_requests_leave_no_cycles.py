"""Requests to coordinators are forgotten when they are answered: cycles would make the garbage collector stop the
broker for milliseconds to find them."""

import asyncio
import gc

import pytest

from tests.server.harness import Client, Harness, batch_of, produce_request
from tests.server.test_classic_groups import joined, joining, leaving, syncing
from tests.server.test_group_metrics import join_consumer_group
from tests.server.test_group_offsets import GROUP, TOPIC, commit_request, prepare
from tests.siege.strange_attacks import CONTROL_PLANE, filled
from tidelog.protocol.apis import API_KEYS
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tidelog.protocol.messages.sync_group import SyncGroupResponse
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.protocol.records import Record, build_batch
from tidelog.protocol.structs import Request
from tidelog.replicated.machine import Effects
from tidelog.runtime.virtual_time import EPOCH_MS, run_virtually
from tidelog.storage.record_checks import INLINE_STEPS

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
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await prepare(client)
            member_id = (await joined(client, 9)).member_id
            await client.ask(syncing(member_id, 1, member_id), 5, SyncGroupResponse)
            await join_consumer_group(client)
            request, version = requests(member_id)[name]
            await client.start(request, version)
            await assert_no_cycles(client, request, version)

    run_virtually(main())


async def assert_no_cycles(client: Client, request: Request, version: int) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            await client.start(request, version)
        assert gc.collect() < TIMES
    finally:
        gc.enable()


def long_batch() -> bytes:
    headers = (("h", b"v"),) * (INLINE_STEPS + 1)
    return bytes(build_batch([Record(0, EPOCH_MS, None, b"", headers)]))


@pytest.mark.parametrize("batch", [batch_of(b"v"), long_batch(), batch_of(b"v")[:-1], b""], ids=len)
def test_a_batch_is_forgotten_when_it_is_written_or_refused(batch: bytes) -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic(TOPIC)
            await assert_no_cycles(client, produce_request(TOPIC, batch), 9)

    run_virtually(main())


PER_API = {
    api.name: (filled(api.request, api.versions.last, 3), api.versions.last)
    for key, api in API_KEYS.items()
    if key not in CONTROL_PLANE
}


@pytest.mark.parametrize("name", PER_API)
def test_requests_about_several_things_are_forgotten(name: str) -> None:
    """Of every API, with elements in all its arrays: most of them name what does not exist."""

    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            request, version = PER_API[name]
            assert isinstance(request, Request)
            try:
                async with asyncio.timeout(60):
                    await client.start(request, version)
            except (TimeoutError, ConnectionError):
                return  # it has no answer
            await assert_no_cycles(client, request, version)

    run_virtually(main())


@pytest.mark.parametrize(
    "name", ["CreateTopics", "Metadata", "DescribeConfigs", "ListOffsets", "Fetch", "DeleteTopics"]
)
def test_requests_about_very_many_things_are_forgotten(name: str) -> None:
    """They are decoded by a worker, answered in slices and encoded by a worker."""
    api = next(api for api in API_KEYS.values() if api.name == name)
    request = filled(api.request, api.versions.last, 600)
    assert isinstance(request, Request)

    async def main() -> None:
        harness = Harness()
        async with harness.broker(auto_create_topics_enable=False):
            client = await harness.connect()
            await client.start(request, api.versions.last)
            await assert_no_cycles(client, request, api.versions.last)

    run_virtually(main())


@pytest.mark.parametrize("size_bytes", [10, 5_000])
def test_an_assignment_is_forgotten_whether_it_could_be_stored_or_not(size_bytes: int) -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(group_initial_rebalance_delay_ms=0, message_max_bytes=2_000):
            client = await harness.connect()
            await prepare(client)
            members = [
                (await client.ask(joining("", group_id=f"g{number}"), 3, JoinGroupResponse)) for number in range(20)
            ]
            gc.collect()
            gc.disable()
            try:
                for number, member in enumerate(members):
                    request = syncing(member.member_id, 1, member.member_id, group_id=f"g{number}")
                    request.assignments[0].assignment = bytes(size_bytes)
                    await client.ask(request, 3, SyncGroupResponse)
                gc.set_debug(gc.DEBUG_SAVEALL)
                gc.collect()
                assert not [found for found in gc.garbage if isinstance(found, Effects)]
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()

    run_virtually(main())

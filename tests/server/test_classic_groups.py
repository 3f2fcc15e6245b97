"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup through the wire protocol, in all their versions."""

import pytest

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_group_offsets import TOPIC, prepare, wait_for_coordinator
from tidelog.errors import NO_ERROR, InvalidGroupId, InvalidSessionTimeout, MemberIdRequired, UnknownMemberId
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.runtime.virtual_time import run_virtually

GROUP = "classics"


def joining(member_id: str = "", *, group_id: str = GROUP, session_ms: int = 30_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"wants t")],
    )


async def joined(client: Client, version: int) -> JoinGroupResponse:
    response = await client.ask(joining(), version, JoinGroupResponse)
    if response.error_code == MemberIdRequired.code:
        assert version >= 4
        response = await client.ask(joining(response.member_id), version, JoinGroupResponse)
    assert response.error_code == NO_ERROR
    return response


def syncing(member_id: str, generation: int, *member_ids: str, group_id: str = GROUP) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(each, f"for {each}".encode()) for each in member_ids],
    )


def leaving(member_id: str, *, group_id: str = GROUP) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group_id, member_id=member_id, members=[MemberIdentity(member_id=member_id)])


@pytest.mark.parametrize("version", range(10))
def test_member_joins_syncs_lives_and_leaves(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        response = await joined(client, version)
        member_id = response.member_id
        assert member_id.startswith("test-")
        assert (response.leader, response.protocol_name, response.generation_id) == (member_id, "range", 1)
        assert response.protocol_type == ("consumer" if version >= 7 else None)

        synced = await client.ask(syncing(member_id, 1, member_id), min(version, 5), SyncGroupResponse)
        assert synced.assignment == f"for {member_id}".encode()
        heartbeat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
        assert (await client.ask(heartbeat, min(version, 4), HeartbeatResponse)).error_code == NO_ERROR

        left = await client.ask(leaving(member_id), min(version, 5), LeaveGroupResponse)
        assert left.error_code == NO_ERROR
        assert [each.error_code for each in left.members] == ([NO_ERROR] if version >= 3 else [])
        gone = await client.ask(heartbeat, min(version, 4), HeartbeatResponse)
        assert gone.error_code == UnknownMemberId.code

    with_broker(scenario)


@pytest.mark.parametrize("version", range(10))
def test_rejections_have_their_error_in_every_version(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        for request, code in (
            (joining(group_id=""), InvalidGroupId.code),
            (joining("nobody"), UnknownMemberId.code),
            (joining(session_ms=1), InvalidSessionTimeout.code),
        ):
            rejected = await client.ask(request, version, JoinGroupResponse)
            assert (rejected.error_code, rejected.member_id) == (code, request.member_id)
            assert rejected.protocol_name == (None if version >= 7 else "")
        synced = await client.ask(syncing("nobody", 1), min(version, 5), SyncGroupResponse)
        assert synced.error_code == UnknownMemberId.code
        left = await client.ask(leaving("nobody"), min(version, 5), LeaveGroupResponse)
        codes = [left.error_code, *(each.error_code for each in left.members)]
        assert codes == ([NO_ERROR, UnknownMemberId.code] if version >= 3 else [UnknownMemberId.code])

    with_broker(scenario)


@pytest.mark.parametrize("version", [6, 7, 9])
def test_an_empty_name_of_a_protocol_is_returned_as_none_where_versions_can(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        request = joining()
        request.group_instance_id = "static"
        request.protocols = [JoinGroupRequestProtocol("", b"")]
        response = await client.ask(request, version, JoinGroupResponse)
        assert (response.error_code, response.protocol_name) == (NO_ERROR, None if version >= 7 else "")

    with_broker(scenario)


@pytest.mark.parametrize("version", [4, 6, 7, 9])
def test_a_consumer_group_gives_ids_as_a_classic_one_does(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        member = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="new",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        assert (await client.ask(member, 1, ConsumerGroupHeartbeatResponse)).error_code == NO_ERROR
        response = await client.ask(joining(), version, JoinGroupResponse)
        assert response.error_code == MemberIdRequired.code
        assert response.protocol_name == (None if version >= 7 else "")

    with_broker(scenario)


def test_generation_outlives_its_broker() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await prepare(client)
            member_id = (await joined(client, 9)).member_id
            await client.ask(syncing(member_id, 1, member_id), 5, SyncGroupResponse)
        async with harness.broker():
            client = await harness.connect()
            await wait_for_coordinator(client)
            synced = await client.ask(syncing(member_id, 1), 5, SyncGroupResponse)
            assert synced.assignment == f"for {member_id}".encode()

    run_virtually(main())


def test_silent_member_is_replaced_by_the_one_that_waits() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        first = await joined(client, 9)
        await client.ask(syncing(first.member_id, 1, first.member_id), 5, SyncGroupResponse)
        other = await harness.connect("other")
        second = await joined(other, 9)
        assert (second.generation_id, second.leader) == (2, second.member_id)

    with_broker(scenario)

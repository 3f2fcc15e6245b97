"""ListGroups, DescribeGroups and DeleteGroups through the wire protocol, in all their versions."""

import asyncio
from typing import Any

import pytest

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_group_offsets import GROUP, TOPIC, commit, fetch, prepare
from tidelog.errors import GroupIdNotFound, InvalidGroupId, NonEmptyGroup, NotCoordinator
from tidelog.protocol.codec import encode
from tidelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.runtime.virtual_time import VirtualTimeLoop

NO_OPERATIONS = -(2**31)
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


async def join(client: Client, group: str = GROUP) -> str:
    metadata = b"\0\0" + encode(ConsumerProtocolSubscription(topics=[TOPIC]), 0)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", metadata)],
    )
    joined = await client.ask(request, 3, JoinGroupResponse)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(joined.member_id, b"yours")],
    )
    assert (await client.ask(sync, 3, SyncGroupResponse)).assignment == b"yours"
    return joined.member_id


async def listed(client: Client, version: int = 5, **filters: Any) -> dict[str, tuple[str, str, str]]:
    response = await client.ask(ListGroupsRequest(**filters), version, ListGroupsResponse)
    assert response.error_code == 0
    return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in response.groups}


async def described(client: Client, *groups: str, version: int = 6, operations: bool = False) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(groups=groups, include_authorized_operations=operations)
    return (await client.ask(request, version, DescribeGroupsResponse)).groups


async def deleted(client: Client, *groups: str, version: int = 2) -> dict[str, int]:
    response = await client.ask(DeleteGroupsRequest(groups_names=groups), version, DeleteGroupsResponse)
    return {each.group_id: each.error_code for each in response.results}


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        await commit(client, (0, 5), group="simple")
        await join(client)
        empty = "Empty" if version >= 4 else ""
        stable = "Stable" if version >= 4 else ""
        kind = "classic" if version >= 5 else ""
        assert await listed(client, version) == {"simple": ("", empty, kind), GROUP: ("consumer", stable, kind)}

    with_broker(scenario)


def test_groups_are_filtered_by_state_and_kind() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        await commit(client, (0, 5), group="simple")
        await join(client)
        assert set(await listed(client, states_filter=["Stable"])) == {GROUP}
        assert set(await listed(client, states_filter=["stable", "empty"])) == {GROUP, "simple"}
        assert set(await listed(client, states_filter=["Lost"])) == set()
        assert set(await listed(client, types_filter=["Classic"])) == {GROUP, "simple"}
        assert set(await listed(client, types_filter=["consumer"])) == set()
        assert set(await listed(client, states_filter=["Empty"], types_filter=["classic"])) == {"simple"}

    with_broker(scenario)


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        member = await join(client)
        (found,) = await described(client, GROUP, version=version, operations=version >= 3)
        assert (found.error_code, found.group_state, found.protocol_type) == (0, "Stable", "consumer")
        assert found.protocol_data == "range"
        assert [(each.member_id, each.client_id, each.client_host) for each in found.members] == [
            (member, "test", "/client")
        ]
        assert found.members[0].member_assignment == b"yours"
        assert found.authorized_operations == (ALL_OPERATIONS if version >= 3 else NO_OPERATIONS)

    with_broker(scenario)


def test_groups_that_are_not_there_are_described_as_dead() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        await commit(client, (0, 5), group="simple")
        old = await described(client, "simple", "nobody", version=5)
        assert [(each.error_code, each.group_state) for each in old] == [(0, "Empty"), (0, "Dead")]
        new = await described(client, "nobody")
        assert [(each.error_code, each.group_state) for each in new] == [(GroupIdNotFound.code, "Dead")]
        assert set(await listed(client)) == {"simple"}

    with_broker(scenario)


def test_the_group_without_a_name_is_no_consumer_group() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        request = ConsumerGroupDescribeRequest(group_ids=["", "nobody"])
        found = (await client.ask(request, 1, ConsumerGroupDescribeResponse)).groups
        assert [each.error_code for each in found] == [InvalidGroupId.code, GroupIdNotFound.code]

    with_broker(scenario)


def test_a_broker_that_coordinates_nothing_says_so() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert [each.error_code for each in await described(client, GROUP)] == [NotCoordinator.code]
        assert await deleted(client, GROUP) == {GROUP: NotCoordinator.code}
        assert await listed(client) == {}

    with_broker(scenario)


def test_a_member_whose_session_is_over_holds_no_group_however_late_its_timer_is() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        await join(client)
        deleting = asyncio.ensure_future(deleted(client, GROUP))
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.jump(31)  # the loop had no turn for so long: request and timer are found together
        assert await deleting == {GROUP: 0}

    with_broker(scenario)


@pytest.mark.parametrize("version", range(3))
def test_groups_without_members_are_deleted(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await prepare(client)
        await commit(client, (0, 5), group="simple")
        await join(client)
        found = await deleted(client, "simple", GROUP, "nobody", "simple", version=version)
        assert found == {"simple": 0, GROUP: NonEmptyGroup.code, "nobody": GroupIdNotFound.code}
        assert await fetch(client, 0, group="simple") == (0, {0: -1})
        assert set(await listed(client)) == {GROUP}

    with_broker(scenario)

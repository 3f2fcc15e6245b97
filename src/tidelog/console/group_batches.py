"""Questions about many groups at once: one request to each coordinator, however many groups it has."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tidelog.client.admin.group_admin import CONSUMER_KIND, DEAD, GroupSummary
from tidelog.client.groups.group_offsets import LAST_WITH_TOPIC_NAMES
from tidelog.client.network.connection import ClientConnection
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import NO_ERROR, KafkaError
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tidelog.types import BrokerId, TopicPartition

T = TypeVar("T")

FIRST_WITH_MANY_GROUPS = 8
"""Of OffsetFetch (KIP-709). Older brokers are asked for one group at a time."""

Offsets = dict[TopicPartition, int]


class GroupBatches:
    """Groups that moved to another coordinator, or whose coordinator fails, are missing in an answer."""

    def __init__(self, cluster: Cluster, *, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    async def members(self, groups: Sequence[GroupSummary]) -> dict[str, list[str]]:
        """Ids of the members of each group."""
        consumer = [each for each in groups if each.kind.lower() == CONSUMER_KIND]
        classic = [each for each in groups if each.kind.lower() != CONSUMER_KIND]
        found = await asyncio.gather(
            self._ask(consumer, self._members_of_consumer_groups), self._ask(classic, self._members_of_classic_groups)
        )
        return found[0] | found[1]

    async def offsets(self, groups: Sequence[GroupSummary]) -> dict[str, Offsets]:
        """Committed offsets of each group."""
        return await self._ask(groups, self._offsets)

    async def _ask(
        self,
        groups: Sequence[GroupSummary],
        ask: Callable[[ClientConnection, list[str]], Awaitable[dict[str, T]]],
    ) -> dict[str, T]:
        by_coordinator: dict[BrokerId, list[str]] = {}
        for group in groups:
            by_coordinator.setdefault(group.coordinator, []).append(group.group_id)

        async def ask_one(coordinator: BrokerId, names: list[str]) -> dict[str, T]:
            try:
                connection = await self._cluster.connections.to(self._cluster.address_of(coordinator))
                return await ask(connection, names)
            except (KafkaError, ConnectionLost, GaveUp, TimeoutError):
                return {}

        answers = await asyncio.gather(*(ask_one(*each) for each in by_coordinator.items()))
        return {group: found for answer in answers for group, found in answer.items()}

    async def _members_of_consumer_groups(self, connection: ClientConnection, names: list[str]) -> dict[str, list[str]]:
        request = ConsumerGroupDescribeRequest(group_ids=names)
        response = await connection.ask(request, ConsumerGroupDescribeResponse, timeout_s=self._timeout_s)
        return {
            group.group_id: [member.member_id for member in group.members]
            for group in response.groups
            if group.error_code == NO_ERROR
        }

    async def _members_of_classic_groups(self, connection: ClientConnection, names: list[str]) -> dict[str, list[str]]:
        request = DescribeGroupsRequest(groups=names)
        response = await connection.ask(request, DescribeGroupsResponse, timeout_s=self._timeout_s)
        return {
            group.group_id: [member.member_id for member in group.members]
            for group in response.groups
            if group.error_code == NO_ERROR and group.group_state != DEAD
        }

    async def _offsets(self, connection: ClientConnection, names: list[str]) -> dict[str, Offsets]:
        version = min(connection.version_of(OffsetFetchRequest), LAST_WITH_TOPIC_NAMES)
        if version < FIRST_WITH_MANY_GROUPS:
            return {name: await self._offsets_of_one(connection, name, version) for name in names}
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])
        response = await connection.ask(request, OffsetFetchResponse, version=version, timeout_s=self._timeout_s)
        return {group.group_id: _committed(group) for group in response.groups if group.error_code == NO_ERROR}

    async def _offsets_of_one(self, connection: ClientConnection, name: str, version: int) -> Offsets:
        request = OffsetFetchRequest(group_id=name, topics=None)
        response = await connection.ask(request, OffsetFetchResponse, version=version, timeout_s=self._timeout_s)
        return _committed(response) if response.error_code == NO_ERROR else {}


def _committed(found: OffsetFetchResponseGroup | OffsetFetchResponse) -> Offsets:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in found.topics
        for partition in topic.partitions
        if partition.error_code == NO_ERROR and partition.committed_offset >= 0
    }

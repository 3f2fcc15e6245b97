"""Admin client for groups: list, describe, delete, committed offsets."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from tidelog.client.groups.group_offsets import Committed, GroupMember, commit_offsets, fetch_offsets
from tidelog.client.network.connection import ClientConnection
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.coordinators import Coordinators, KeyType
from tidelog.errors import NO_ERROR, GroupIdNotFound, KafkaError, UnsupportedVersion, error_of, raise_error
from tidelog.protocol.codec import decode
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.internal.consumer_protocol import ConsumerProtocolAssignment
from tidelog.protocol.internal.versioned import VERSION_BYTES, version_of
from tidelog.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.types import BrokerId, TopicPartition

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 30.0
CONSUMER_KIND = "consumer"
CLASSIC_KIND = "classic"
DEAD = "Dead"


class GroupSummary(NamedTuple):
    group_id: str
    kind: str
    """`classic` or `consumer`; empty if the broker does not report it."""
    state: str
    coordinator: BrokerId


class GroupMemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    group_id: str
    kind: str
    state: str
    assignor: str
    members: tuple[GroupMemberDescription, ...]


class GroupAdmin:
    """Retriable errors are retried until `timeout_s`; others are raised."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self._timeout_s = timeout_s

    async def list_groups(self) -> list[GroupSummary]:
        """Groups of all live brokers, sorted by id."""
        metadata = await self._cluster.refresh()
        found = await asyncio.gather(*(self._listed_by(broker_id) for broker_id in metadata.brokers))
        return sorted(summary for summaries in found for summary in summaries)

    async def _listed_by(self, broker_id: BrokerId) -> Iterable[GroupSummary]:
        attempts = self._cluster.attempts(f"listing the groups of broker {broker_id}", self._timeout_s)
        while True:
            response = await self._cluster.ask_broker(broker_id, ListGroupsRequest(), ListGroupsResponse)
            if response.error_code == NO_ERROR:
                return [
                    GroupSummary(group.group_id, group.group_type, group.group_state, broker_id)
                    for group in response.groups
                ]
            await attempts.after(error_of(response.error_code, f"listing the groups of broker {broker_id}"))

    async def describe(self, group_id: str) -> GroupDescription:
        """Raises GroupIdNotFound."""
        try:
            return await self._describe_consumer_group(group_id)
        except (GroupIdNotFound, UnsupportedVersion):
            return await self._describe_classic_group(group_id)

    async def _describe_consumer_group(self, group_id: str) -> GroupDescription:
        async def attempt(connection: ClientConnection) -> GroupDescription:
            request = ConsumerGroupDescribeRequest(group_ids=[group_id])
            response = await connection.ask(request, ConsumerGroupDescribeResponse, timeout_s=self._timeout_s)
            (group,) = response.groups
            raise_error(group.error_code, f"group {group_id}", group.error_message)
            members = tuple(
                GroupMemberDescription(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    _partitions(member.assignment),
                )
                for member in group.members
            )
            return GroupDescription(group_id, CONSUMER_KIND, group.group_state, group.assignor_name, members)

        return await self._ask(group_id, f"describing group {group_id}", attempt)

    async def _describe_classic_group(self, group_id: str) -> GroupDescription:
        async def attempt(connection: ClientConnection) -> GroupDescription:
            request = DescribeGroupsRequest(groups=[group_id])
            response = await connection.ask(request, DescribeGroupsResponse, timeout_s=self._timeout_s)
            (group,) = response.groups
            raise_error(group.error_code, f"group {group_id}", group.error_message)
            if group.group_state == DEAD:
                raise GroupIdNotFound(f"group {group_id} does not exist")
            members = tuple(
                GroupMemberDescription(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    _classic_partitions(member.member_assignment),
                )
                for member in group.members
            )
            return GroupDescription(group_id, CLASSIC_KIND, group.group_state, group.protocol_data, members)

        return await self._ask(group_id, f"describing group {group_id}", attempt)

    async def offsets(self, group_id: str, *, require_stable: bool = False) -> dict[TopicPartition, Committed]:
        """All committed offsets of the group; empty if the group does not exist.

        `require_stable` waits for pending transactional commits (KIP-447).
        """
        return await fetch_offsets(
            self._coordinators,
            GroupMember(group_id),
            None,
            require_stable=require_stable,
            timeout_s=self._timeout_s,
        )

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit without being a member. Raises UnknownMemberId while the group has members."""
        await commit_offsets(self._coordinators, GroupMember(group_id), offsets, timeout_s=self._timeout_s)

    async def delete(self, group_id: str) -> None:
        """Raises GroupIdNotFound, or NonEmptyGroup."""

        async def attempt(connection: ClientConnection) -> None:
            request = DeleteGroupsRequest(groups_names=[group_id])
            response = await connection.ask(request, DeleteGroupsResponse, timeout_s=self._timeout_s)
            for result in response.results:
                raise_error(result.error_code, f"group {group_id}")

        await self._ask(group_id, f"deleting group {group_id}", attempt)

    async def _ask(self, group_id: str, what: str, attempt: Callable[[ClientConnection], Awaitable[T]]) -> T:
        return await self._coordinators.ask(KeyType.GROUP, group_id, what, self._timeout_s, attempt)


def _partitions(assignment: Assignment | None) -> tuple[TopicPartition, ...]:
    topics = [] if assignment is None else assignment.topic_partitions
    return tuple(sorted(TopicPartition(topic.topic_name, each) for topic in topics for each in topic.partitions))


def _classic_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Partitions of a consumer's assignment; empty for other protocol types, whose format is unknown."""
    if len(assignment) < VERSION_BYTES:
        return ()
    latest = ConsumerProtocolAssignment.__versions__.last
    try:
        found = decode(ConsumerProtocolAssignment, min(version_of(assignment), latest), assignment[VERSION_BYTES:])
    except (MalformedMessage, KafkaError):
        return ()
    topics = found.assigned_partitions
    return tuple(sorted(TopicPartition(topic.topic, each) for topic in topics for each in topic.partitions))

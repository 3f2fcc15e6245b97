"""Committed offsets of a group: commit and fetch."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from tidelog.client.consumer.offsets import by_topic
from tidelog.client.network.connection import ClientConnection
from tidelog.client.routing.coordinators import Coordinators, KeyType
from tidelog.errors import raise_error
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.types import TopicPartition

T = TypeVar("T")

LAST_WITH_TOPIC_NAMES = 9
"""Last version of OffsetCommit and OffsetFetch with topic names; later versions use topic ids."""


class GroupMember(NamedTuple):
    """Identity of a member in offset commits: the coordinator refuses outdated generations (KIP-447)."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Committed(NamedTuple):
    offset: int
    """-1 if nothing is committed."""
    leader_epoch: int = -1
    metadata: str = ""


async def fetch_offsets(
    coordinators: Coordinators,
    member: GroupMember,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool,
    timeout_s: float,
) -> dict[TopicPartition, Committed]:
    """Committed offsets of these partitions, or of all if None.

    `require_stable` waits for pending transactional commits (KIP-447).
    """
    indexes = None if partitions is None else by_topic(partitions, lambda key: key.partition)
    request = OffsetFetchRequest(
        group_id=member.group_id,
        topics=_named(OffsetFetchRequestTopic, indexes),
        groups=[
            OffsetFetchRequestGroup(
                group_id=member.group_id,
                member_id=member.member_id or None,
                member_epoch=member.generation,
                topics=_named(OffsetFetchRequestTopics, indexes),
            )
        ],
        require_stable=require_stable,
    )

    async def attempt(connection: ClientConnection) -> dict[TopicPartition, Committed]:
        version = min(connection.version_of(OffsetFetchRequest), LAST_WITH_TOPIC_NAMES)
        response = await connection.ask(request, OffsetFetchResponse, version=version, timeout_s=timeout_s)
        found = response.groups[0] if response.groups else response
        raise_error(found.error_code, f"group {member.group_id}")
        offsets = {}
        for topic in found.topics:
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                raise_error(partition.error_code, f"group {member.group_id} at {key}")
                offsets[key] = Committed(
                    partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
                )
        return offsets

    what = f"fetching offsets of group {member.group_id}"
    return await coordinators.ask(KeyType.GROUP, member.group_id, what, timeout_s, attempt)


def _named(make: Callable[..., T], indexes: Mapping[str, list[int]] | None) -> list[T] | None:
    """None requests all topics."""
    if indexes is None:
        return None
    return [make(name=topic, partition_indexes=found) for topic, found in indexes.items()]


async def commit_offsets(
    coordinators: Coordinators, member: GroupMember, offsets: Mapping[TopicPartition, int], *, timeout_s: float
) -> None:
    """Commit offsets. While the group has members, only members of the current generation may commit."""
    topics = by_topic(
        offsets,
        lambda key: OffsetCommitRequestPartition(
            partition_index=key.partition, committed_offset=offsets[key], committed_metadata=""
        ),
    )
    request = OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=found) for topic, found in topics.items()],
    )

    async def attempt(connection: ClientConnection) -> None:
        version = min(connection.version_of(OffsetCommitRequest), LAST_WITH_TOPIC_NAMES)
        response = await connection.ask(request, OffsetCommitResponse, version=version, timeout_s=timeout_s)
        for topic in response.topics:
            for partition in topic.partitions:
                raise_error(partition.error_code, f"{topic.name}-{partition.partition_index}")

    what = f"committing offsets of group {member.group_id}"
    await coordinators.ask(KeyType.GROUP, member.group_id, what, timeout_s, attempt)

"""How far a group has come: asked for and noted by one of its members."""

from collections.abc import Iterable, Mapping

from tidelog.client.connection import ClientConnection
from tidelog.client.coordinators import Coordinators, KeyType
from tidelog.client.offsets import by_topic
from tidelog.client.transactional_producer import GroupMember
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

LAST_WITH_TOPIC_NAMES = 9
"""Of OffsetCommit and OffsetFetch: later versions name topics by their ids."""


async def fetch_offsets(
    coordinators: Coordinators,
    member: GroupMember,
    partitions: Iterable[TopicPartition],
    *,
    require_stable: bool,
    timeout_s: float,
) -> dict[TopicPartition, int]:
    """The next offset to read of each partition; -1 where the group has committed none.

    With `require_stable`, waits for transactions that may be about to commit later ones (KIP-447).
    """
    indexes = by_topic(partitions, lambda key: key.partition)
    request = OffsetFetchRequest(
        group_id=member.group_id,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=found) for topic, found in indexes.items()],
        groups=[
            OffsetFetchRequestGroup(
                group_id=member.group_id,
                member_id=member.member_id or None,
                member_epoch=member.generation,
                topics=[
                    OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in indexes.items()
                ],
            )
        ],
        require_stable=require_stable,
    )
    what = f"asking for the offsets of group {member.group_id}"

    async def attempt(connection: ClientConnection) -> dict[TopicPartition, int]:
        version = min(connection.version_of(OffsetFetchRequest), LAST_WITH_TOPIC_NAMES)
        response = await connection.ask(request, OffsetFetchResponse, version=version, timeout_s=timeout_s)
        found = response.groups[0] if response.groups else response
        raise_error(found.error_code, what)
        offsets = {}
        for topic in found.topics:
            for partition in topic.partitions:
                raise_error(partition.error_code, what)
                offsets[TopicPartition(topic.name, partition.partition_index)] = partition.committed_offset
        return offsets

    return await coordinators.ask(KeyType.GROUP, member.group_id, what, timeout_s, attempt)


async def commit_offsets(
    coordinators: Coordinators, member: GroupMember, offsets: Mapping[TopicPartition, int], *, timeout_s: float
) -> None:
    """Refused to whoever is not a member in this generation, while the group has members."""
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

"""Short forms of the requests that the chapters are made of."""

from collections.abc import Mapping, Sequence

from compat.answers.conversation import Conversation, wait_until
from tidelog.errors import NO_ERROR
from tidelog.protocol.codec import encode
from tidelog.protocol.internal.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.types import ZERO_UUID, Uuid

Places = Mapping[tuple[str, int], int | OffsetCommitRequestPartition]
"""Offsets by topic and partition."""


def subscription(topic: str) -> bytes:
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=[topic]), 0)


EARLIEST = -2
RANGE = (("range", subscription("t")),)


def join(
    group: str,
    member_id: str = "",
    instance_id: str | None = None,
    *,
    protocols: Sequence[tuple[str, bytes]] = RANGE,
    protocol_type: str = "consumer",
    session_timeout_ms: int = 10_000,
    rebalance_timeout_ms: int = 20_000,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols],
    )


def sync(
    group: str,
    generation: int,
    member_id: str,
    assignments: Mapping[str, bytes] | None = None,
    instance_id: str | None = None,
    *,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[SyncGroupRequestAssignment(member, value) for member, value in (assignments or {}).items()],
    )


def heartbeat(group: str, generation: int, member_id: str, instance_id: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
    )


def leave(group: str, *members: tuple[str, str | None], member_id: str = "") -> LeaveGroupRequest:
    """`members` from version 3 on, `member_id` before."""
    identities = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members]
    return LeaveGroupRequest(group_id=group, member_id=member_id, members=identities)


def offset_commit(
    group: str,
    places: Places,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    *,
    topic_ids: Mapping[str, Uuid] | None = None,
) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, partition), offset in places.items():
        topic_id = (topic_ids or {}).get(name, ZERO_UUID)
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, topic_id=topic_id))
        topic.partitions.append(
            OffsetCommitRequestPartition(partition, offset, committed_metadata="")
            if isinstance(offset, int)
            else offset
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=list(topics.values()),
    )


def create_topic(
    talk: Conversation, name: str, partitions: int = 3, configs: Mapping[str, str] | None = None
) -> tuple[str, Uuid]:
    """A new topic; answers show its id as that of `name`."""
    topic = talk.fresh(name)
    wanted = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
    )
    response = talk.ask_quietly(CreateTopicsRequest(topics=[wanted]), 7, CreateTopicsResponse)
    assert response.topics[0].error_code == 0, response
    topic_id = response.topics[0].topic_id
    talk.name(topic_id, f"id of {name}")
    wait_until(lambda: is_led(talk, topic, partitions), "the topic has leaders")
    return topic, topic_id


def is_led(talk: Conversation, topic: str, partitions: int) -> bool:
    """Whether its leaders know it: Kafka's metadata has them a moment earlier."""
    wanted = [ListOffsetsPartition(partition, timestamp=EARLIEST) for partition in range(partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
    [found] = talk.ask_quietly(request, 7, ListOffsetsResponse).topics
    return all(each.error_code == NO_ERROR for each in found.partitions)

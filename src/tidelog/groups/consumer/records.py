"""Records of consumer groups in `__consumer_offsets`, as in Kafka 4.3."""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.groups.consumer.members import Assignment, ClassicMember, Holdings, Member, MemberState
from tidelog.groups.consumer.record_keys import (
    ASSIGNMENT_EPOCH,
    CURRENT_ASSIGNMENT,
    EXPRESSION,
    GROUP,
    MEMBER,
    TARGET,
    encode_key,
)
from tidelog.protocol.internal import consumer_group_records as stored
from tidelog.protocol.internal.versioned import encode_versioned
from tidelog.protocol.structs import Message
from tidelog.replicated.machine import Effects

VALUE_VERSION = 0


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int
    """Version of the cluster's metadata in Kafka. Always 0 here."""
    timestamp_ms: int


def _write(effects: Effects, key: bytes, value: Message | None) -> None:
    effects.write(key, None if value is None else encode_versioned(value, VALUE_VERSION))


def write_member(effects: Effects, group_id: str, member: Member) -> None:
    _write(
        effects,
        encode_key(MEMBER, group_id, member.member_id),
        stored.ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topics),
            subscribed_topic_regex=member.subscribed_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=None if member.classic is None else _stored_classic(member.classic),
        ),
    )


def _stored_classic(classic: ClassicMember) -> stored.ClassicMemberMetadata:
    protocols = [stored.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols]
    return stored.ClassicMemberMetadata(session_timeout_ms=classic.session_timeout_ms, supported_protocols=protocols)


def write_group_epoch(effects: Effects, group_id: str, epoch: int, metadata_hash: int) -> None:
    key = encode_key(GROUP, group_id)
    _write(effects, key, stored.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def write_target(effects: Effects, group_id: str, member_id: str, target: Assignment) -> None:
    listed = [
        stored.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in sorted(target.items())
    ]
    key = encode_key(TARGET, group_id, member_id)
    _write(effects, key, stored.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=listed))


def write_assignment_epoch(effects: Effects, group_id: str, epoch: int) -> None:
    key = encode_key(ASSIGNMENT_EPOCH, group_id)
    value = stored.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=effects.now_ms
    )
    _write(effects, key, value)


def write_current_assignment(effects: Effects, group_id: str, member: Member) -> None:
    _write(
        effects,
        encode_key(CURRENT_ASSIGNMENT, group_id, member.member_id),
        stored.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_stored_holdings(member.assigned),
            partitions_pending_revocation=_stored_holdings(member.revoking),
        ),
    )


def _stored_holdings(holdings: Holdings) -> list[stored.TopicPartitions]:
    return [
        stored.TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[partition] for partition in sorted(partitions)],
        )
        for topic_id, partitions in sorted(holdings.items())
    ]


def write_regex(effects: Effects, group_id: str, expression: str, resolved: ResolvedRegex) -> None:
    _write(
        effects,
        encode_key(EXPRESSION, group_id, expression),
        stored.ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        ),
    )


# ---- tombstones


def erase_member(effects: Effects, group_id: str, member_id: str) -> None:
    _write(effects, encode_key(CURRENT_ASSIGNMENT, group_id, member_id), None)
    _write(effects, encode_key(TARGET, group_id, member_id), None)
    _write(effects, encode_key(MEMBER, group_id, member_id), None)


def erase_regex(effects: Effects, group_id: str, expression: str) -> None:
    key = encode_key(EXPRESSION, group_id, expression)
    _write(effects, key, None)


def erase_group(effects: Effects, group_id: str, member_ids: Iterable[str], expressions: Iterable[str]) -> None:
    """Tombstones in the order that Kafka requires: the group epoch last."""
    for member_id in member_ids:
        erase_member(effects, group_id, member_id)
    _write(effects, encode_key(ASSIGNMENT_EPOCH, group_id), None)
    for expression in expressions:
        erase_regex(effects, group_id, expression)
    _write(effects, encode_key(GROUP, group_id), None)


# ---- decoding


def holdings_of(listed: Iterable[stored.TopicPartitions], member_epoch: int) -> Holdings:
    """Records of Kafka before 4.3 have no assignment epochs: the member epoch is used, as in Kafka."""
    return {
        topic.topic_id: dict(
            zip(topic.partitions, topic.assignment_epochs or [member_epoch] * len(topic.partitions), strict=False)
        )
        for topic in listed
    }


def classic_member_of(value: stored.ConsumerGroupMemberMetadataValue) -> ClassicMember | None:
    metadata = value.classic_member_metadata
    if metadata is None:
        return None
    protocols = tuple((protocol.name, protocol.metadata) for protocol in metadata.supported_protocols)
    return ClassicMember(metadata.session_timeout_ms, protocols)


def member_state_of(state: int) -> MemberState:
    """An unknown state comes from a future version of Kafka: the member is reconciled again."""
    return MemberState(state) if state in MemberState._value2member_map_ else MemberState.UNRELEASED_PARTITIONS

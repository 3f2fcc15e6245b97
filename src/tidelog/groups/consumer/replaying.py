"""Replay of consumer group records."""

from collections.abc import Callable, MutableMapping
from typing import Any

from tidelog.groups.consumer.group import NO_ASSIGNMENT_EPOCH, ConsumerGroup
from tidelog.groups.consumer.held_bytes import bytes_of_regex
from tidelog.groups.consumer.members import LEAVE_EPOCH, Member, assignment_of
from tidelog.groups.consumer.records import ResolvedRegex, classic_member_of, holdings_of, member_state_of
from tidelog.groups.group import Group
from tidelog.groups.statistics import GroupCounts
from tidelog.protocol.internal import consumer_group_records as stored
from tidelog.protocol.internal.versioned import decode_versioned
from tidelog.protocol.structs import Message
from tidelog.replicated.machine import StateRecord

Groups = MutableMapping[str, Group]


def replay(groups: Groups, key_version: int, record: StateRecord, counts: GroupCounts) -> None:
    """Raises MalformedMessage or UnsupportedVersion. Topic metadata records of Kafka 4.0 are ignored."""
    if key_version not in REPLAYED:
        return
    key_type, value_type, apply = REPLAYED[key_version]
    key = decode_versioned(key_type, record.key)
    if record.value is None:
        group = groups.get(key.group_id)
        if isinstance(group, ConsumerGroup):
            apply(group, key, None)
            if key_version == GROUP_KEY:
                group.held_bytes.release()
                del groups[key.group_id]
        return
    value = decode_versioned(value_type, record.value)
    group = groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        group = groups[key.group_id] = ConsumerGroup(key.group_id, counts)
    apply(group, key, value)


def _replay_group(
    group: ConsumerGroup, key: stored.ConsumerGroupMetadataKey, value: stored.ConsumerGroupMetadataValue | None
) -> None:
    if value is not None:
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash


def _replay_member(
    group: ConsumerGroup,
    key: stored.ConsumerGroupMemberMetadataKey,
    value: stored.ConsumerGroupMemberMetadataValue | None,
) -> None:
    if value is None:
        group.remove_member(key.member_id)
        return
    earlier = group.members.get(key.member_id) or Member(member_id=key.member_id)
    group.put_member(
        earlier._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topics=group.shared_names(frozenset(value.subscribed_topic_names)),
            subscribed_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=classic_member_of(value),
        )
    )


def _replay_assignment_epoch(
    group: ConsumerGroup,
    key: stored.ConsumerGroupTargetAssignmentMetadataKey,
    value: stored.ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.assignment_epoch = NO_ASSIGNMENT_EPOCH if value is None else value.assignment_epoch
    group.epoch = max(group.epoch, group.assignment_epoch)  # Kafka does not write the first epoch of a group
    group.assigned_at_ms = 0 if value is None else value.assignment_timestamp


def _replay_target(
    group: ConsumerGroup,
    key: stored.ConsumerGroupTargetAssignmentMemberKey,
    value: stored.ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = assignment_of(value.topic_partitions)


def _replay_current_assignment(
    group: ConsumerGroup,
    key: stored.ConsumerGroupCurrentMemberAssignmentKey,
    value: stored.ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            group.put_member(member._replace(epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, revoking={}))
        return
    group.put_member(
        (member or Member(member_id=key.member_id))._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=member_state_of(value.state),
            assigned=holdings_of(value.assigned_partitions, value.member_epoch),
            revoking=holdings_of(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def _replay_regex(
    group: ConsumerGroup,
    key: stored.ConsumerGroupRegularExpressionKey,
    value: stored.ConsumerGroupRegularExpressionValue | None,
) -> None:
    expression = key.regular_expression
    earlier = group.regexes.pop(expression, None)
    if earlier is not None:
        group.held_bytes.add(-bytes_of_regex(expression, earlier))
    if value is not None:
        resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        group.regexes[expression] = resolved
        group.held_bytes.add(bytes_of_regex(expression, resolved))


GROUP_KEY = 3
REPLAYED: dict[int, tuple[type[Any], type[Message], Callable[[ConsumerGroup, Any, Any], None]]] = {
    GROUP_KEY: (stored.ConsumerGroupMetadataKey, stored.ConsumerGroupMetadataValue, _replay_group),
    5: (stored.ConsumerGroupMemberMetadataKey, stored.ConsumerGroupMemberMetadataValue, _replay_member),
    6: (
        stored.ConsumerGroupTargetAssignmentMetadataKey,
        stored.ConsumerGroupTargetAssignmentMetadataValue,
        _replay_assignment_epoch,
    ),
    7: (
        stored.ConsumerGroupTargetAssignmentMemberKey,
        stored.ConsumerGroupTargetAssignmentMemberValue,
        _replay_target,
    ),
    8: (
        stored.ConsumerGroupCurrentMemberAssignmentKey,
        stored.ConsumerGroupCurrentMemberAssignmentValue,
        _replay_current_assignment,
    ),
    16: (
        stored.ConsumerGroupRegularExpressionKey,
        stored.ConsumerGroupRegularExpressionValue,
        _replay_regex,
    ),
}

"""Replay of consumer group records."""

from collections.abc import Callable, MutableMapping
from typing import Any

from tidelog.groups.consumer import record_keys
from tidelog.groups.consumer.group import NO_ASSIGNMENT_EPOCH, ConsumerGroup
from tidelog.groups.consumer.held_bytes import bytes_of_regex
from tidelog.groups.consumer.members import LEAVE_EPOCH, Member, assignment_of
from tidelog.groups.consumer.record_keys import decode_key
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
    value_type, apply = REPLAYED[key_version]
    group_id, name = decode_key(key_version, record.key)
    group = groups.get(group_id)
    if record.value is None:
        if isinstance(group, ConsumerGroup):
            apply(group, name, None)
            if key_version == record_keys.GROUP:
                group.held_bytes.release()
                del groups[group_id]
        return
    value = decode_versioned(value_type, record.value)
    if not isinstance(group, ConsumerGroup):
        group = groups[group_id] = ConsumerGroup(group_id, counts)
    apply(group, name, value)


def _replay_group(group: ConsumerGroup, _: str, value: stored.ConsumerGroupMetadataValue | None) -> None:
    if value is not None:
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash


def _replay_member(
    group: ConsumerGroup,
    member_id: str,
    value: stored.ConsumerGroupMemberMetadataValue | None,
) -> None:
    if value is None:
        group.remove_member(member_id)
        return
    earlier = group.members.get(member_id) or Member(member_id=member_id)
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
    _: str,
    value: stored.ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.assignment_epoch = NO_ASSIGNMENT_EPOCH if value is None else value.assignment_epoch
    group.epoch = max(group.epoch, group.assignment_epoch)  # Kafka does not write the first epoch of a group
    group.assigned_at_ms = 0 if value is None else value.assignment_timestamp


def _replay_target(
    group: ConsumerGroup,
    member_id: str,
    value: stored.ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(member_id, None)
    else:
        group.targets[member_id] = assignment_of(value.topic_partitions)


def _replay_current_assignment(
    group: ConsumerGroup,
    member_id: str,
    value: stored.ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    member = group.members.get(member_id)
    if value is None:
        if member is not None:
            group.put_member(member._replace(epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, revoking={}))
        return
    group.put_member(
        (member or Member(member_id=member_id))._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=member_state_of(value.state),
            assigned=holdings_of(value.assigned_partitions, value.member_epoch),
            revoking=holdings_of(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def _replay_regex(
    group: ConsumerGroup,
    expression: str,
    value: stored.ConsumerGroupRegularExpressionValue | None,
) -> None:
    earlier = group.regexes.pop(expression, None)
    if earlier is not None:
        group.held_bytes.add(-bytes_of_regex(expression, earlier))
    if value is not None:
        resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        group.regexes[expression] = resolved
        group.held_bytes.add(bytes_of_regex(expression, resolved))


REPLAYED: dict[int, tuple[type[Message], Callable[[ConsumerGroup, str, Any], None]]] = {
    record_keys.GROUP: (stored.ConsumerGroupMetadataValue, _replay_group),
    record_keys.MEMBER: (stored.ConsumerGroupMemberMetadataValue, _replay_member),
    record_keys.ASSIGNMENT_EPOCH: (stored.ConsumerGroupTargetAssignmentMetadataValue, _replay_assignment_epoch),
    record_keys.TARGET: (stored.ConsumerGroupTargetAssignmentMemberValue, _replay_target),
    record_keys.CURRENT_ASSIGNMENT: (stored.ConsumerGroupCurrentMemberAssignmentValue, _replay_current_assignment),
    record_keys.EXPRESSION: (stored.ConsumerGroupRegularExpressionValue, _replay_regex),
}
"""By the version of the key: the type of the value, and what applies it."""

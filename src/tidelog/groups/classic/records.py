"""Records of classic groups in `__consumer_offsets`, in the versions of Kafka 4.3."""

from collections.abc import Mapping
from struct import Struct
from typing import Protocol

from tidelog.groups.classic.member import LENGTH_BYTES, NO_ASSIGNMENT, VALUE_VERSION, ClassicMember
from tidelog.groups.classic.members import ClassicMembers, WrittenAssignments
from tidelog.protocol.internal.offset_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from tidelog.protocol.internal.versioned import encode_versioned
from tidelog.replicated.machine import Effects

KEY_VERSION = 2
NO_TIMESTAMP = -1
_length = Struct(">i").pack


class StoredGroup(Protocol):
    """State of a classic group that is stored in its record."""

    group_id: str
    protocol_type: str
    generation: int
    protocol_name: str | None
    state_timestamp_ms: int | None
    members: ClassicMembers


def group_key(group_id: str) -> bytes:
    return encode_versioned(GroupMetadataKey(group=group_id), KEY_VERSION)


def write_group(group: StoredGroup, assignments: Mapping[str, bytes], effects: Effects) -> None:
    """Write the current generation with assignments by member id."""
    value = encoded_group(group, assignments)
    if group.members:
        group.members.written = WrittenAssignments(value, assignments)
    effects.write(group_key(group.group_id), value)


def encoded_group(group: StoredGroup, assignments: Mapping[str, bytes]) -> bytes:
    """The record's value. The fields of members that stay the same are not encoded again: a group may have thousands of
    members, and each static member that comes back stores all of them."""
    empty = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.members.leader_id,
        current_state_timestamp=_timestamp(group),
    )
    parts = [encode_versioned(empty, VALUE_VERSION)[:-LENGTH_BYTES], _length(len(group.members))]
    protocol_name = group.protocol_name
    for member in group.members.values():
        metadata = member.metadata(protocol_name)
        assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
        parts += (member.encoded_identity, _length(len(metadata)), metadata, _length(len(assignment)), assignment)
    return b"".join(parts)


def write_new_group(group: StoredGroup, effects: Effects) -> None:
    """Write a group without members."""
    value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=_timestamp(group))
    effects.write(group_key(group.group_id), encode_versioned(value, VALUE_VERSION))


def _timestamp(group: StoredGroup) -> int:
    return NO_TIMESTAMP if group.state_timestamp_ms is None else group.state_timestamp_ms


def restored_member(stored: MemberMetadata, protocol_name: str | None) -> ClassicMember:
    """Member from a record, which has only the selected protocol."""
    has_rebalance_timeout = stored.rebalance_timeout != -1
    return ClassicMember(
        stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.rebalance_timeout if has_rebalance_timeout else stored.session_timeout,
        session_timeout_ms=stored.session_timeout,
        protocols=((protocol_name or "", stored.subscription),),
        assignment=stored.assignment,
    )

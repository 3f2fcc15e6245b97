"""Records of classic groups in `__consumer_offsets`, in the versions of Kafka 4.3."""

from collections.abc import Mapping
from typing import Protocol

from tidelog.groups.classic.member import ClassicMember
from tidelog.groups.classic.members import ClassicMembers
from tidelog.protocol.internal.offset_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from tidelog.protocol.internal.versioned import encode_versioned
from tidelog.replicated.machine import Effects

KEY_VERSION = 2
VALUE_VERSION = 3
NO_TIMESTAMP = -1


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
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.members.leader_id,
        current_state_timestamp=_timestamp(group),
        members=[_stored_member(group, member, assignments) for member in group.members.values()],
    )
    effects.write(group_key(group.group_id), encode_versioned(value, VALUE_VERSION))


def write_new_group(group: StoredGroup, effects: Effects) -> None:
    """Write a group without members."""
    value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=_timestamp(group))
    effects.write(group_key(group.group_id), encode_versioned(value, VALUE_VERSION))


def _timestamp(group: StoredGroup) -> int:
    return NO_TIMESTAMP if group.state_timestamp_ms is None else group.state_timestamp_ms


def _stored_member(group: StoredGroup, member: ClassicMember, assignments: Mapping[str, bytes]) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(group.protocol_name),
        assignment=assignments.get(member.member_id, b""),
    )


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

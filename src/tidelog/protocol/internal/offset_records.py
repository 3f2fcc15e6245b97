"""Records of __consumer_offsets: committed offsets and classic groups."""

from tidelog.protocol.fields import array, binary, int32, int64, string, uuid
from tidelog.protocol.structs import Message, Struct
from tidelog.types import Uuid


class OffsetCommitKey(Message, versions="0-1"):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = int64()
    leader_epoch: int = int32(versions="3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(versions="1", default=-1)
    topic_id: Uuid = uuid(versions="4+", tag=0)


class GroupMetadataKey(Message, versions="2"):
    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", nullable="3+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(versions="1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64(versions="2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)

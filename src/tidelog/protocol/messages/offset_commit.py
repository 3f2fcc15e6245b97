"""OffsetCommit: commit offsets of a group."""

from tidelog.protocol.fields import array, int16, int32, int64, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(versions="6+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string(versions="0-9")
    topic_id: Uuid = uuid(versions="10+")
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible="8+"):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string(versions="7+", nullable="7+")
    retention_time_ms: int = int64(versions="2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    name: str = string(versions="0-9")
    topic_id: Uuid = uuid(versions="10+")
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = int32(versions="3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)

"""OffsetFetch: committed offsets of groups."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int16, int32, int64, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid


class OffsetFetchRequestTopic(Struct):
    name: str = string()
    partition_indexes: Sequence[int] = array(int32)


class OffsetFetchRequestTopics(Struct):
    name: str = string(versions="8-9")
    topic_id: Uuid = uuid(versions="10+")
    partition_indexes: Sequence[int] = array(int32)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string()
    member_id: str | None = string(versions="9+", nullable="9+")
    member_epoch: int = int32(versions="9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable="0+")


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+"):
    group_id: str = string(versions="0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, versions="0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, versions="8+")
    require_stable: bool = boolean(versions="7+")


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(versions="5-7", default=-1)
    metadata: str | None = string(nullable="0-7")
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    name: str = string(versions="8-9")
    topic_id: Uuid = uuid(versions="10+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int = int32(versions="3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, versions="0-7")
    error_code: int = int16(versions="2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, versions="8+")

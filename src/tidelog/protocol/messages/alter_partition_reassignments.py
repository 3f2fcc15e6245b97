"""AlterPartitionReassignments: start, replace or cancel reassignments of partitions (KIP-455, KIP-860)."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: Sequence[int] | None = array(int32, nullable="0+")  # null: cancel


class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean(versions="1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(versions="1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)

"""ListPartitionReassignments: partitions that are being reassigned (KIP-455)."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class ListPartitionReassignmentsTopic(Struct):
    name: str = string()
    partition_indexes: Sequence[int] = array(int32)


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible="0+"):
    timeout_ms: int = int32(default=60_000)
    # Null: all.
    topics: list[ListPartitionReassignmentsTopic] | None = array(ListPartitionReassignmentsTopic, nullable="0+")


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: Sequence[int] = array(int32)
    adding_replicas: Sequence[int] = array(int32)
    removing_replicas: Sequence[int] = array(int32)


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)

"""CreatePartitions: give topics more partitions."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class CreatePartitionsAssignment(Struct):
    broker_ids: Sequence[int] = array(int32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()  # including existing partitions
    # Replicas of the new partitions; null: the controller chooses.
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)

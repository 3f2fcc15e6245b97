"""ListOffsets: the offset for a timestamp, or the start or end of a partition."""

from tidelog.protocol.fields import array, int8, int16, int32, int64, string
from tidelog.protocol.structs import Request, Response, Struct


class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32(versions="4+", default=-1)
    timestamp: int = int64()  # -1 end, -2 start, -3 largest timestamp, -4 local start, -5 end of what is tiered


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+"):
    replica_id: int = int32()  # -1 for consumers, for which the log ends at the high watermark
    isolation_level: int = int8(versions="2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(versions="10+")


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(versions="4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = int32(versions="2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)

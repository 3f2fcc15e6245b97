"""OffsetForLeaderEpoch: end offset of a leader epoch, to truncate a log that diverged (KIP-101, KIP-320)."""

from tidelog.protocol.fields import array, int16, int32, int64, string
from tidelog.protocol.structs import Request, Response, Struct


class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)  # to fence a client with old metadata
    leader_epoch: int = int32()  # the epoch whose end offset is requested


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+"):
    replica_id: int = int32(versions="3+", default=-2)  # -1 for consumers
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)  # the largest epoch that is not above the requested one
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)

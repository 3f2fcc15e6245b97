"""ElectLeaders: elect preferred leaders, or unclean leaders for partitions without one (KIP-460)."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int8, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct

PREFERRED = 0
UNCLEAN = 1


class ElectLeadersTopic(Struct):
    topic: str = string()
    partitions: Sequence[int] = array(int32)


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    election_type: int = int8(versions="1+", default=PREFERRED)
    topic_partitions: list[ElectLeadersTopic] | None = array(ElectLeadersTopic, nullable="0+")  # null: all
    timeout_ms: int = int32(default=60_000)


class PartitionElectionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class TopicElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionElectionResult] = array(PartitionElectionResult)


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16(versions="1+")
    replica_election_results: list[TopicElectionResult] = array(TopicElectionResult)

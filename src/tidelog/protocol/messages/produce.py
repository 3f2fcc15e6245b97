"""Produce: append record batches to partitions."""

from tidelog.protocol.fields import array, int16, int32, int64, nested, record_batches, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid

TOPIC_IDS_FROM_VERSION = 13
"""Topics have ids instead of names (KIP-516)."""


class PartitionProduceData(Struct):
    index: int = int32()
    records: memoryview | None = record_batches(nullable="0+")


class TopicProduceData(Struct):
    name: str = string(versions="0-12")
    topic_id: Uuid = uuid(versions="13+")  # names a topic instead of `name` (KIP-516)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
    transactional_id: str | None = string(nullable="0+")
    acks: int = int16()  # 0: no response; 1: acknowledged by the leader; -1: by all in-sync replicas
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)  # -1 unless the topic stamps records itself
    log_start_offset: int = int64(versions="5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, versions="8+")
    error_message: str | None = string(versions="8+", nullable="8+")
    # With NOT_LEADER, saves a Metadata request (KIP-951).
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, versions="10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = string(versions="0-12")
    topic_id: Uuid = uuid(versions="13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+")


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()  # after the results here, before them in all other messages
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, versions="10+", tag=0)

"""ConsumerGroupHeartbeat: liveness, subscription and assignment of a member of a consumer group (KIP-848)."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int16, int32, nested, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: Sequence[int] = array(int32)


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: Sequence[str] | None = array(string, nullable="0+")
    subscribed_topic_regex: str | None = string(versions="1+", nullable="1+")
    server_assignor: str | None = string(nullable="0+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    member_id: str | None = string(nullable="0+")
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, nullable="0+")

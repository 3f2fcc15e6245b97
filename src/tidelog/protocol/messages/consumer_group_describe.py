"""ConsumerGroupDescribe: consumer groups with their members (KIP-848)."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int8, int16, int32, nested, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    group_ids: Sequence[str] = array(string)
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: Sequence[int] = array(int32)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    member_id: str = string()
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: Sequence[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    assignment: Assignment | None = nested(Assignment)
    target_assignment: Assignment | None = nested(Assignment)
    member_type: int = int8(versions="1+", default=-1)


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-(2**31))


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)

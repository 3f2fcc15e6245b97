"""Records of __consumer_offsets: consumer groups (KIP-848)."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, binary, int8, int32, int64, nested, string, uuid
from tidelog.protocol.structs import Message, Struct
from tidelog.types import Uuid


class ConsumerGroupMetadataKey(Message, versions="3"):
    group_id: str = string()


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Message, versions="4"):
    group_id: str = string()


class PartitionMetadata(Struct):
    partition: int = int32()
    racks: Sequence[str] = array(string)


class TopicMetadata(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Message, versions="5"):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = binary()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: Sequence[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = nested(ClassicMemberMetadata, nullable="0+", tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="6"):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="7"):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: Uuid = uuid()
    partitions: Sequence[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="8"):
    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: Sequence[int] = array(int32)
    assignment_epochs: Sequence[int] | None = array(int32, nullable="0+", default=[], tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Message, versions="16"):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: Sequence[str] = array(string)
    version: int = int64()
    timestamp: int = int64()

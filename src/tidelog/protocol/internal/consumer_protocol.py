"""Consumer protocol: subscription and assignment in the opaque bytes of the classic group protocol."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, binary, int32, string
from tidelog.protocol.structs import Message, Struct


class TopicPartition(Struct):
    topic: str = string()
    partitions: Sequence[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: Sequence[str] = array(string)
    user_data: bytes | None = binary(nullable="0+")
    owned_partitions: list[TopicPartition] = array(TopicPartition, versions="1+")
    generation_id: int = int32(versions="2+", default=-1)
    rack_id: str | None = string(versions="3+", nullable="3+")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = binary(nullable="0+")

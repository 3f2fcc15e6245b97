"""AlterPartition: the leader of a partition asks the controller for another ISR (KIP-497, KIP-903)."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int8, int16, int32, int64, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid

UNKNOWN_BROKER_EPOCH = -1


class BrokerState(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=UNKNOWN_BROKER_EPOCH)


class AlterPartitionPartition(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: Sequence[int] = array(int32, versions="2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, versions="3+")
    leader_recovery_state: int = int8()  # 1: recovering from an unclean election
    partition_epoch: int = int32()  # the version of the state in the store


class AlterPartitionTopic(Struct):
    topic_id: Uuid = uuid()
    partitions: list[AlterPartitionPartition] = array(AlterPartitionPartition)


class AlterPartitionRequest(Request, key=56, versions="2-3", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=UNKNOWN_BROKER_EPOCH)
    topics: list[AlterPartitionTopic] = array(AlterPartitionTopic)


class AlterPartitionPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: Sequence[int] = array(int32)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class AlterPartitionTopicResponse(Struct):
    topic_id: Uuid = uuid()
    partitions: list[AlterPartitionPartitionResponse] = array(AlterPartitionPartitionResponse)


class AlterPartitionResponse(Response, key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionTopicResponse] = array(AlterPartitionTopicResponse)

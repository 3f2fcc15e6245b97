"""LeaderAndIsr: sent by the controller; makes a broker leader or follower of partitions."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int8, int16, int32, int64, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid


class LeaderAndIsrPartitionState(Struct):
    partition_index: int = int32()
    controller_epoch: int = int32()  # epoch of the controller that elected this leader
    leader: int = int32()
    leader_epoch: int = int32()
    isr: Sequence[int] = array(int32)
    partition_epoch: int = int32()  # the version of the partition's state in the store
    replicas: Sequence[int] = array(int32)
    adding_replicas: Sequence[int] = array(int32)
    removing_replicas: Sequence[int] = array(int32)
    is_new: bool = boolean()
    leader_recovery_state: int = int8(versions="6+")
    # Specific to Tidelog, skipped by others: incarnations of the in-sync replicas, and the eligible ones (R41, R42).
    isr_epochs: Sequence[int] = array(int64, tag=10000)
    elr: Sequence[int] = array(int32, tag=10001)
    elr_epochs: Sequence[int] = array(int64, tag=10002)


class LeaderAndIsrTopicState(Struct):
    topic_name: str = string()
    topic_id: Uuid = uuid()
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState)


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


class LeaderAndIsrRequest(Request, key=4, versions="5-7", flexible="4+"):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean(versions="7+")
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1)  # broker epoch of the receiver (R39)
    type: int = int8()  # 0 unknown, 1 incremental, 2 all partitions of the broker
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState)
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


class LeaderAndIsrPartitionError(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class LeaderAndIsrTopicError(Struct):
    topic_id: Uuid = uuid()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError)


class LeaderAndIsrResponse(Response, key=4, versions="5-7", flexible="4+"):
    error_code: int = int16()
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError)

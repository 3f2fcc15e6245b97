"""StopReplica: sent by the controller; a broker stops hosting replicas, and deletes their logs if requested."""

from tidelog.protocol.fields import array, boolean, int16, int32, int64, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid


class StopReplicaPartitionState(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32(default=-1)  # a late request must not stop a replica that was added again (R11)
    delete_partition: bool = boolean()


class StopReplicaTopicState(Struct):
    topic_name: str = string()
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState)
    topic_id: Uuid = uuid(versions="3+", tag=10000)
    """Specific to Tidelog: only a log of this topic may be deleted (R44). Others skip it."""


class StopReplicaRequest(Request, key=5, versions="3-4", flexible="2+"):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean(versions="4+")
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1)  # broker epoch of the receiver (R39)
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState)


class StopReplicaPartitionError(Struct):
    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class StopReplicaResponse(Response, key=5, versions="3-4", flexible="2+"):
    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)

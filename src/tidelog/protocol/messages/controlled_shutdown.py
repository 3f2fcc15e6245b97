"""ControlledShutdown: a broker asks the controller to move its leaders away before it leaves."""

from tidelog.protocol.fields import array, int16, int32, int64, string
from tidelog.protocol.structs import Request, Response, Struct


class ControlledShutdownRequest(Request, key=7, versions="3", flexible="3+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class RemainingPartition(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Response, key=7, versions="3", flexible="3+"):
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)  # partitions that the broker still leads

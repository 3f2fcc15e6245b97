"""SyncGroup: the group leader sends all assignments; each member receives its own."""

from tidelog.protocol.fields import array, binary, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", nullable="3+")
    protocol_type: str | None = string(versions="5+", nullable="5+")
    protocol_name: str | None = string(versions="5+", nullable="5+")
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32(versions="1+")
    error_code: int = int16()
    protocol_type: str | None = string(versions="5+", nullable="5+")
    protocol_name: str | None = string(versions="5+", nullable="5+")
    assignment: bytes = binary()

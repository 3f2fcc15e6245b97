"""LeaveGroup: members leave a group."""

from tidelog.protocol.fields import array, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    reason: str | None = string(versions="5+", nullable="5+")


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    group_id: str = string()
    member_id: str = string(versions="0-2")
    members: list[MemberIdentity] = array(MemberIdentity, versions="3+")


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32(versions="1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, versions="3+")

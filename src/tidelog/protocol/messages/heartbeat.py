"""Heartbeat: liveness of a member of a classic group."""

from tidelog.protocol.fields import int16, int32, string
from tidelog.protocol.structs import Request, Response


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", nullable="3+")


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32(versions="1+")
    error_code: int = int16()

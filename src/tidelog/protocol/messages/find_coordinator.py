"""FindCoordinator: the coordinator of consumer groups or transactions."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int8, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    key: str = string(versions="0-3")
    key_type: int = int8(versions="1+")  # 0: group; 1: transaction; 2: share group
    coordinator_keys: Sequence[str] = array(string, versions="4+")


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32(versions="1+")
    error_code: int = int16(versions="0-3")
    error_message: str | None = string(versions="1-3", nullable="1-3")
    node_id: int = int32(versions="0-3")
    host: str = string(versions="0-3")
    port: int = int32(versions="0-3")
    coordinators: list[Coordinator] = array(Coordinator, versions="4+")

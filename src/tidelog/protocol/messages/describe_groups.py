"""DescribeGroups: classic groups with their members."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, binary, boolean, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    groups: Sequence[str] = array(string)
    include_authorized_operations: bool = boolean(versions="3+")


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(versions="4+", nullable="4+")
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(versions="6+", nullable="6+")
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(versions="3+", default=-(2**31))


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32(versions="1+")
    groups: list[DescribedGroup] = array(DescribedGroup)

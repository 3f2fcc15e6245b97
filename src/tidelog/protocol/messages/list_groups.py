"""ListGroups: the groups that a broker coordinates."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    states_filter: Sequence[str] = array(string, versions="4+")
    types_filter: Sequence[str] = array(string, versions="5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(versions="4+")
    group_type: str = string(versions="5+")


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32(versions="1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)

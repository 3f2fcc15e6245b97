"""DeleteGroups: delete groups without members."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    groups_names: Sequence[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)

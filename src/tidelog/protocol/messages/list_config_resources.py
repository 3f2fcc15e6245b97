"""ListConfigResources: resources with their own settings (KIP-1142)."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int8, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct

CLIENT_METRICS = 16


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+"):
    resource_types: Sequence[int] = array(int8, versions="1+")


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8(versions="1+", default=CLIENT_METRICS)


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)

"""AlterConfigs: replace all settings of a topic or broker."""

from tidelog.protocol.fields import array, boolean, int8, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8()  # 2 topic, 4 broker
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)  # all others return to their defaults


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

"""IncrementalAlterConfigs: set, delete, append to or subtract from single settings (KIP-339)."""

from tidelog.protocol.fields import array, boolean, int8, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()  # 0 set, 1 delete, 2 append, 3 subtract
    value: str | None = string(nullable="0+")  # null to delete


class AlterConfigsResource(Struct):
    resource_type: int = int8()  # 2 topic, 4 broker
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

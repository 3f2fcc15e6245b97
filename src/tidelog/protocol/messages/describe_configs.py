"""DescribeConfigs: the settings of topics and brokers, and where each value comes from."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int8, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class DescribeConfigsResource(Struct):
    resource_type: int = int8()  # 2 topic, 4 broker
    resource_name: str = string()
    configuration_keys: Sequence[str] | None = array(string, nullable="0+")  # null: all


class DescribeConfigsRequest(Request, key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(versions="3+")


class DescribeConfigsSynonym(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")  # null if sensitive
    read_only: bool = boolean()
    config_source: int = int8(default=-1)  # 1 topic, 2 broker, 3 all brokers, 4 file, 5 default
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(versions="3+")
    documentation: str | None = string(versions="3+", nullable="0+")


class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)

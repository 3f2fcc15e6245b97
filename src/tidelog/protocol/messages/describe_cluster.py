"""DescribeCluster: the brokers of the cluster and its controller (KIP-700)."""

from tidelog.protocol.fields import array, boolean, int8, int16, int32, string
from tidelog.protocol.structs import Request, Response, Struct


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(versions="1+", default=1)  # 1 brokers, 2 controllers (KIP-919)
    include_fenced_brokers: bool = boolean(versions="2+")


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+")
    is_fenced: bool = boolean(versions="2+")


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    endpoint_type: int = int8(versions="1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-(2**31))  # not requested

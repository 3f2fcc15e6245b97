"""Metadata: brokers, topics, partitions and their leaders."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int16, int32, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid


class MetadataRequestTopic(Struct):
    topic_id: Uuid = uuid(versions="10+")
    name: str | None = string(nullable="10+")  # null where `topic_id` is given


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    # Null: all topics; in version 0 an empty array means all.
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean(versions="4+", default=True)
    include_cluster_authorized_operations: bool = boolean(versions="8-10")
    include_topic_authorized_operations: bool = boolean(versions="8+")


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(versions="1+", nullable="1+")


class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(versions="7+", default=-1)
    replica_nodes: Sequence[int] = array(int32)
    isr_nodes: Sequence[int] = array(int32)  # the in-sync replicas
    offline_replicas: Sequence[int] = array(int32, versions="5+")


class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable="12+")  # null if the requested id is unknown
    topic_id: Uuid = uuid(versions="10+")
    is_internal: bool = boolean(versions="1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(versions="8+", default=-(2**31))  # not requested


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = int32(versions="3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(versions="2+", nullable="2+")
    controller_id: int = int32(versions="1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(versions="8-10", default=-(2**31))
    error_code: int = int16(versions="13+")

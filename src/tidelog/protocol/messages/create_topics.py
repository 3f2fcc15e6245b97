"""CreateTopics: creates topics, with a given or an automatic replica assignment."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int8, int16, int32, int64, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: Sequence[int] = array(int32)


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()  # -1: the broker's default, or given by `assignments`
    replication_factor: int = int16()  # -1: the broker's default, or given by `assignments`
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()
    # Specific to Tidelog: a broker that creates an internal topic identifies itself by its epoch, unknown to clients.
    broker_id: int = int32(versions="5+", default=-1, tag=10000)
    broker_epoch: int = int64(versions="5+", default=-1, tag=10001)


class CreatableTopicConfigs(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: Uuid = uuid(versions="7+")
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topic_config_error_code: int = int16(versions="5+", tag=0)  # error because of which `configs` is null
    num_partitions: int = int32(versions="5+", default=-1)
    replication_factor: int = int16(versions="5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, versions="5+", nullable="5+")


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)

"""UpdateMetadata: sent by the controller; cluster metadata that a broker serves to clients."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, boolean, int8, int16, int32, int64, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid


class UpdateMetadataPartitionState(Struct):
    partition_index: int = int32()
    controller_epoch: int = int32()  # epoch of the controller that elected this leader
    leader: int = int32()  # -1: none; -2: the topic is being deleted
    leader_epoch: int = int32()
    isr: Sequence[int] = array(int32)
    zk_version: int = int32()  # version of the partition's state in the store
    replicas: Sequence[int] = array(int32)
    offline_replicas: Sequence[int] = array(int32)
    # Specific to Tidelog, skipped by others: fields of DescribeTopicPartitions (KIP-966).
    elr: Sequence[int] = array(int32, tag=10000)
    last_known_elr: Sequence[int] = array(int32, tag=10001)


class UpdateMetadataTopicState(Struct):
    topic_name: str = string()
    topic_id: Uuid = uuid()
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState)


class UpdateMetadataEndpoint(Struct):
    port: int = int32()
    host: str = string()
    listener: str = string()
    security_protocol: int = int16()


class UpdateMetadataBroker(Struct):
    id: int = int32()
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint)
    rack: str | None = string(nullable="0+")
    # Specific to Tidelog, skipped by others: the broker epoch (R39), so that brokers need not read it from the store.
    epoch: int = int64(default=-1, tag=10000)


class UpdateMetadataRequest(Request, key=6, versions="7-8", flexible="6+"):
    controller_id: int = int32()
    is_kraft_controller: bool = boolean(versions="8+")
    type: int = int8(versions="8+", tag=0)  # 0 unknown, 1 incremental, 2 the whole cluster
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1)  # broker epoch of the receiver (R39)
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, may_be_shared=True)
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker, may_be_shared=True)


class UpdateMetadataResponse(Response, key=6, versions="7-8", flexible="6+"):
    error_code: int = int16()

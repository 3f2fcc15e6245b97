"""The messages between controller and brokers have the bytes that Apache Kafka 3.9's own classes write."""

from typing import Any

import pytest

from tidelog.protocol.codec import decode, encode
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from tidelog.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from tidelog.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from tidelog.protocol.structs import Message

TOPIC_ID = bytes(range(1, 17))
SENDER: dict[str, Any] = {"controller_id": 3, "controller_epoch": 7, "broker_epoch": 2**32 + 3}


def leader_and_isr(version: int) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(
        partition_index=5,
        controller_epoch=6,
        leader=2,
        leader_epoch=11,
        isr=[2, 1],
        partition_epoch=9,
        replicas=[1, 2, 3],
        adding_replicas=[3],
        removing_replicas=[1],
        is_new=True,
        leader_recovery_state=1 if version >= 6 else 0,
    )
    return LeaderAndIsrRequest(
        **SENDER,
        is_kraft_controller=version >= 7,
        type=2,
        topic_states=[LeaderAndIsrTopicState(topic_name="orders", topic_id=TOPIC_ID, partition_states=[state])],
        live_leaders=[LeaderAndIsrLiveLeader(broker_id=2, host_name="b2", port=9092)],
    )


def leader_and_isr_response() -> LeaderAndIsrResponse:
    rejected = LeaderAndIsrPartitionError(partition_index=5, error_code=56)
    return LeaderAndIsrResponse(
        error_code=11, topics=[LeaderAndIsrTopicError(topic_id=TOPIC_ID, partition_errors=[rejected])]
    )


def stop_replica(version: int) -> StopReplicaRequest:
    state = StopReplicaPartitionState(partition_index=5, leader_epoch=11, delete_partition=True)
    return StopReplicaRequest(
        **SENDER,
        is_kraft_controller=version >= 4,
        topic_states=[StopReplicaTopicState(topic_name="orders", partition_states=[state])],
    )


def stop_replica_response() -> StopReplicaResponse:
    rejected = StopReplicaPartitionError(topic_name="orders", partition_index=5, error_code=56)
    return StopReplicaResponse(error_code=11, partition_errors=[rejected])


def update_metadata(version: int) -> UpdateMetadataRequest:
    state = UpdateMetadataPartitionState(
        partition_index=5,
        controller_epoch=6,
        leader=2,
        leader_epoch=11,
        isr=[2, 1],
        zk_version=9,
        replicas=[1, 2, 3],
        offline_replicas=[3],
    )
    endpoint = UpdateMetadataEndpoint(port=9092, host="b2", listener="INTERNAL", security_protocol=1)
    return UpdateMetadataRequest(
        **SENDER,
        is_kraft_controller=version >= 8,
        type=2 if version >= 8 else 0,
        topic_states=[UpdateMetadataTopicState(topic_name="orders", topic_id=TOPIC_ID, partition_states=[state])],
        live_brokers=[UpdateMetadataBroker(id=2, endpoints=[endpoint], rack="r1")],
    )


def controlled_shutdown_response() -> ControlledShutdownResponse:
    remaining = RemainingPartition(topic_name="orders", partition_index=5)
    return ControlledShutdownResponse(error_code=41, remaining_partitions=[remaining])


AS_KAFKA_WRITES_THEM: list[tuple[Message, int, str]] = [
    (
        leader_and_isr(5),
        5,
        "000000030000000700000001000000030202076f72646572730102030405060708090a0b0c0d0e0f1002000000050000000600000002"
        "0000000b0300000002000000010000000904000000010000000200000003020000000302000000010100000200000002036232000023"
        "840000",
    ),
    (
        leader_and_isr(6),
        6,
        "000000030000000700000001000000030202076f72646572730102030405060708090a0b0c0d0e0f1002000000050000000600000002"
        "0000000b0300000002000000010000000904000000010000000200000003020000000302000000010101000002000000020362320000"
        "23840000",
    ),
    (
        leader_and_isr(7),
        7,
        "00000003010000000700000001000000030202076f72646572730102030405060708090a0b0c0d0e0f10020000000500000006000000"
        "020000000b03000000020000000100000009040000000100000002000000030200000003020000000101010000020000000203623200"
        "0023840000",
    ),
    (leader_and_isr_response(), 5, "000b020102030405060708090a0b0c0d0e0f1002000000050038000000"),
    (leader_and_isr_response(), 7, "000b020102030405060708090a0b0c0d0e0f1002000000050038000000"),
    (stop_replica(3), 3, "0000000300000007000000010000000302076f726465727302000000050000000b01000000"),
    (stop_replica(4), 4, "000000030100000007000000010000000302076f726465727302000000050000000b01000000"),
    (stop_replica_response(), 3, "000b02076f72646572730000000500380000"),
    (stop_replica_response(), 4, "000b02076f72646572730000000500380000"),
    (
        update_metadata(7),
        7,
        "0000000300000007000000010000000302076f72646572730102030405060708090a0b0c0d0e0f100200000005000000060000000200"
        "00000b0300000002000000010000000904000000010000000200000003020000000300000200000002020000238403623209494e5445"
        "524e414c0001000372310000",
    ),
    (
        update_metadata(8),
        8,
        "000000030100000007000000010000000302076f72646572730102030405060708090a0b0c0d0e0f1002000000050000000600000002"
        "0000000b0300000002000000010000000904000000010000000200000003020000000300000200000002020000238403623209494e54"
        "45524e414c0001000372310001000102",
    ),
    (UpdateMetadataResponse(error_code=11), 8, "000b00"),
    (ControlledShutdownRequest(broker_id=3, broker_epoch=2**32 + 3), 3, "00000003000000010000000300"),
    (controlled_shutdown_response(), 3, "002902076f7264657273000000050000"),
]


@pytest.mark.parametrize(("message", "version", "expected"), AS_KAFKA_WRITES_THEM, ids=lambda v: type(v).__name__)
def test_bytes_are_those_of_kafka(message: Message, version: int, expected: str) -> None:
    assert encode(message, version).hex() == expected
    assert decode(type(message), version, bytes.fromhex(expected)) == message

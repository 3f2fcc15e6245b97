"""Partitions of which this broker has no replica: clients that ask here must look for the leader again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.server.harness import batch_of, fetch_request, produce_request
from tidelog.client.network.connection import ClientConnection
from tidelog.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.produce import LeaderIdAndEpoch, PartitionProduceResponse, ProduceResponse
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.processes import run_simulation

HERE, ELSEWHERE = 1, 2

Ask = Callable[[ClientConnection, int], Awaitable[int]]


async def produced(broker: ClientConnection, partition: int) -> PartitionProduceResponse:
    response = await broker.ask(produce_request("t", batch_of(b"x"), partition), ProduceResponse, version=12)
    return response.responses[0].partition_responses[0]


async def produce(broker: ClientConnection, partition: int) -> int:
    return (await produced(broker, partition)).error_code


async def fetch(broker: ClientConnection, partition: int) -> int:
    response = await broker.ask(fetch_request("t", 0, partition=partition), FetchResponse, version=12)
    return response.responses[0].partitions[0].error_code


async def list_offsets(broker: ClientConnection, partition: int) -> int:
    topic = ListOffsetsTopic("t", [ListOffsetsPartition(partition, timestamp=-1)])
    response = await broker.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse)
    return response.topics[0].partitions[0].error_code


async def delete_records(broker: ClientConnection, partition: int) -> int:
    topic = DeleteRecordsTopic("t", [DeleteRecordsPartition(partition, offset=0)])
    response = await broker.ask(DeleteRecordsRequest([topic], timeout_ms=1000), DeleteRecordsResponse)
    return response.topics[0].partitions[0].error_code


async def end_of_epoch(broker: ClientConnection, partition: int) -> int:
    topic = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(partition, leader_epoch=0)])
    response = await broker.ask(OffsetForLeaderEpochRequest(-1, [topic]), OffsetForLeaderEpochResponse)
    return response.topics[0].partitions[0].error_code


async def describe_producers(broker: ClientConnection, partition: int) -> int:
    request = DescribeProducersRequest([TopicRequest("t", [partition])])
    response = await broker.ask(request, DescribeProducersResponse)
    return response.topics[0].partitions[0].error_code


def with_topic_elsewhere(scenario: Callable[[ClientConnection], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = SimulatedCluster(2)
        await cluster.start_all()
        broker = await cluster.connect(HERE)
        placed = [CreatableReplicaAssignment(partition_index=0, broker_ids=[ELSEWHERE])]
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=placed)
        response = await broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), CreateTopicsResponse)
        assert response.topics[0].error_code == 0
        await asyncio.sleep(1)
        await scenario(broker)
        await cluster.stop_all()

    run_simulation(main())


@pytest.mark.parametrize("ask", [produce, fetch, list_offsets, delete_records, end_of_epoch, describe_producers])
def test_a_partition_without_a_replica_here_has_its_leader_elsewhere(ask: Ask) -> None:
    async def scenario(broker: ClientConnection) -> None:
        assert await ask(broker, 0) == NotLeaderOrFollower.code
        assert await ask(broker, 1) == UnknownTopicOrPartition.code

    with_topic_elsewhere(scenario)


def test_a_producer_at_the_wrong_broker_learns_who_leads() -> None:
    async def scenario(broker: ClientConnection) -> None:
        assert (await produced(broker, 0)).current_leader == LeaderIdAndEpoch(ELSEWHERE, 0)

    with_topic_elsewhere(scenario)

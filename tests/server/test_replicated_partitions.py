"""Partitions with followers, in a cluster on virtual time: who is in sync, and what is committed."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.server.harness import batch_of, fetch_request, produce_request
from tidelog.client.network.connection import ClientConnection
from tidelog.errors import NotEnoughReplicas, RequestTimedOut
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    OutOfSyncReplica,
)
from tidelog.protocol.messages.fetch import FetchResponse, PartitionData
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.replication.partition import Partition
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.processes import run_simulation

LAG_S = 30.0
LEADER, FOLLOWERS = 1, (2, 3)


class Orders:
    """The topic of these tests: one partition on all three brokers, led by the first."""

    def __init__(self, cluster: SimulatedCluster, connection: ClientConnection) -> None:
        self.cluster = cluster
        self.connection = connection

    @classmethod
    async def create(cls, cluster: SimulatedCluster, **configs: str) -> "Orders":
        connection = await cluster.connect(LEADER)
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        placed = [CreatableReplicaAssignment(partition_index=0, broker_ids=[LEADER, *FOLLOWERS])]
        topic = CreatableTopic(
            name="orders", num_partitions=-1, replication_factor=-1, assignments=placed, configs=settings
        )
        response = await connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), CreateTopicsResponse)
        assert response.topics[0].error_code == 0
        await asyncio.sleep(1)
        return cls(cluster, connection)

    def replica(self, broker_id: int) -> Partition:
        return self.cluster.broker(broker_id)._services.replicas.get("orders", 0)

    def in_sync(self) -> set[int]:
        return set(self.replica(LEADER).require_leader().in_sync_replicas)

    async def in_sync_in_metadata(self, broker_id: int) -> set[int]:
        connection = await self.cluster.connect(broker_id)
        request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
        response = await connection.ask(request, MetadataResponse)
        return set(response.topics[0].partitions[0].isr_nodes)

    async def produce(self, value: bytes, acks: int = -1, sequence: int | None = None) -> int:
        """With a sequence: as an idempotent producer."""
        identity = {} if sequence is None else {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        request = produce_request("orders", batch_of(value, **identity), acks=acks)
        response = await self.connection.ask(request, ProduceResponse, version=9)
        return response.responses[0].partition_responses[0].error_code

    async def fetch(self, offset: int) -> PartitionData:
        response = await self.connection.ask(fetch_request("orders", offset, max_wait_ms=0), FetchResponse, version=12)
        return response.responses[0].partitions[0]

    async def delete(self, offset: int, timeout_ms: int = 10_000) -> DeleteRecordsPartitionResult:
        topic = DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
        response = await self.connection.ask(request, DeleteRecordsResponse)
        return response.topics[0].partitions[0]

    async def out_of_sync(self, broker_id: int = LEADER) -> list[OutOfSyncReplica]:
        connection = await self.cluster.connect(broker_id)
        response = await connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        return response.results[0].topics[0].partitions[0].out_of_sync


def with_orders(scenario: Callable[[Orders], Awaitable[None]], **configs: str) -> None:
    async def main() -> None:
        cluster = SimulatedCluster(3)
        await cluster.start_all()
        await scenario(await Orders.create(cluster, **configs))
        await cluster.stop_all()

    run_simulation(main())


def test_a_follower_that_is_cut_off_leaves_for_a_stated_reason_and_comes_back() -> None:
    async def scenario(orders: Orders) -> None:
        assert orders.in_sync() == {1, 2, 3}
        assert await orders.out_of_sync() == []
        orders.cluster.cut(3, [LEADER])
        await orders.produce(b"a", acks=1)
        await asyncio.sleep(1.5 * LAG_S + 6)
        assert orders.in_sync() == {1, 2}
        assert await orders.in_sync_in_metadata(2) == {1, 2}
        (reported,) = await orders.out_of_sync()
        assert (reported.replica_id, reported.behind) == (3, 1)
        assert reported.rule == "not caught up for 30000 ms (replica.lag.time.max.ms)"
        assert reported.remedy == "it must reach the high watermark"
        assert await orders.out_of_sync(2) == []
        assert await orders.produce(b"b") == 0
        orders.cluster.mend()
        await asyncio.sleep(10)
        assert orders.in_sync() == {1, 2, 3}
        assert await orders.in_sync_in_metadata(2) == {1, 2, 3}
        assert orders.replica(3).log.log_end_offset == 2

    with_orders(scenario)


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    async def scenario(orders: Orders) -> None:
        await orders.produce(b"a")
        orders.cluster.cut(LEADER, FOLLOWERS)
        await orders.produce(b"b", acks=1)
        await asyncio.sleep(1.5 * LAG_S + 6)
        assert orders.in_sync() == {1}
        assert await orders.produce(b"c") == NotEnoughReplicas.code
        assert await orders.produce(b"d", acks=1) == 0
        data = await orders.fetch(1)
        assert (data.error_code, data.high_watermark, len(data.records or b"")) == (0, 1, 0)
        orders.cluster.mend()
        await asyncio.sleep(10)
        assert orders.in_sync() == {1, 2, 3}
        assert (await orders.fetch(1)).high_watermark == 3

    with_orders(scenario, min_insync_replicas="2")


def test_batches_behind_one_that_was_refused_for_lack_of_replicas_are_refused_too() -> None:
    """If they were out of order, librdkafka would write under another epoch what is written already."""

    async def scenario(orders: Orders) -> None:
        assert await orders.produce(b"0", sequence=0) == 0
        orders.cluster.cut(LEADER, FOLLOWERS)
        await asyncio.sleep(1.5 * LAG_S + 6)
        await orders.produce(b"b", acks=1)
        await asyncio.sleep(1.5 * LAG_S + 6)
        assert await orders.produce(b"1", sequence=1) == NotEnoughReplicas.code
        orders.cluster.mend()
        await asyncio.sleep(10)
        assert orders.in_sync() == {1, 2, 3}
        assert await orders.produce(b"2", sequence=2) == NotEnoughReplicas.code
        assert [await orders.produce(b"%d" % number, sequence=number) for number in (1, 2, 3)] == [0, 0, 0]

    with_orders(scenario, min_insync_replicas="2")


def test_hours_without_a_write_drop_nobody() -> None:
    """KAFKA-7152."""

    async def scenario(orders: Orders) -> None:
        await orders.produce(b"a")
        await asyncio.sleep(600)
        assert orders.in_sync() == {1, 2, 3}
        await orders.produce(b"b", acks=1)
        await asyncio.sleep(2 * LAG_S)
        assert orders.in_sync() == {1, 2, 3}
        assert orders.replica(LEADER).log.high_watermark == 2
        assert orders.cluster.broker(LEADER)._services.replicas.alter_partition_manager.shrinks == 0

    with_orders(scenario)


def test_deleted_records_are_gone_from_all_live_replicas_before_the_answer() -> None:
    async def scenario(orders: Orders) -> None:
        for value in (b"a", b"b", b"c"):
            await orders.produce(value)
        await asyncio.sleep(2)
        result = await orders.delete(2)
        assert (result.error_code, result.low_watermark) == (0, 2)
        assert [orders.replica(broker).log.log_start_offset for broker in (1, 2, 3)] == [2, 2, 2]

    with_orders(scenario)


def test_a_deletion_that_a_follower_does_not_follow_in_time_says_so() -> None:
    async def scenario(orders: Orders) -> None:
        await orders.produce(b"a")
        await asyncio.sleep(2)
        orders.cluster.cut(3, [LEADER])
        result = await orders.delete(1, timeout_ms=3000)
        assert (result.error_code, result.low_watermark) == (RequestTimedOut.code, 0)
        orders.cluster.mend()
        result = await orders.delete(1, timeout_ms=30_000)
        assert (result.error_code, result.low_watermark) == (0, 1)

    with_orders(scenario)

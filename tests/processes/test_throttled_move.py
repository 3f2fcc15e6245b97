"""A replica moves between real processes no faster than its throttle allows, and writes beside it go on (R24)."""

import asyncio
import time

from tests.processes.cluster import Cluster as Processes
from tests.processes.replicas import committed
from tidelog.client.network.bootstrap import parse_bootstrap
from tidelog.client.network.connection import ClientConnection
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import NO_ERROR, UnknownTopicOrPartition, raise_error
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.protocol.records import Record, build_batch
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.simulation.work.requests import BROKER, TOPIC, alter_reassignments, list_reassignments
from tidelog.types import TopicPartition

MOVED = TopicPartition("moved", 0)
RATE = 10_000_000
SIZE = 40_000_000
BATCH = 50_000
FRAME_BYTES = 20_000_000
SLACK_S = 20.0
"""For a busy machine. Too fast is a mistake, however busy it is."""


def test_a_move_of_40_mb_at_10_mb_per_second_takes_four_seconds(cluster: Processes) -> None:
    took_s, slowest_s = asyncio.run(move(cluster))
    assert 0.85 * SIZE / RATE < took_s < 1.15 * SIZE / RATE + SLACK_S
    assert slowest_s < SLACK_S
    directories = [cluster.brokers[broker_id].log_dir / str(MOVED) for broker_id in (1, 3)]
    source, target = (committed(directory, SIZE // BATCH) for directory in directories)
    assert source == target
    assert len(source) > SIZE


async def move(processes: Processes) -> tuple[float, float]:
    """Seconds that the move took, and that the slowest write meanwhile took."""
    network = SocketNetwork(FRAME_BYTES)
    async with Cluster(network, parse_bootstrap(processes.bootstrap), SystemRandomness()) as client:
        await create(client)
        host, _, port = processes.address(1).partition(":")
        connection = await ClientConnection.open(network, host, int(port), "throttled-move")
        for _ in range(SIZE // BATCH):
            await write(connection, BATCH)
        for broker_id in processes.brokers:
            await throttle(network, processes, broker_id)
        await alter_topic(connection)
        started = time.monotonic()
        await alter_reassignments(client, {MOVED: (1, 3)})
        slowest_s = 0.0
        while await list_reassignments(client):
            slowest_s = max(slowest_s, await write(connection, 100))
            await asyncio.sleep(0.05)
        took_s = time.monotonic() - started
        connection.close()
        await asyncio.sleep(1)  # the last records reach the follower
        return took_s, slowest_s


async def create(client: Cluster) -> None:
    places = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])]
    topic = CreatableTopic(name=MOVED.topic, num_partitions=-1, replication_factor=-1, assignments=places)
    response = await client.ask_controller(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse)
    raise_error(response.topics[0].error_code, message=response.topics[0].error_message)


async def write(connection: ClientConnection, size: int) -> float:
    batch = memoryview(build_batch([Record(0, 0, None, bytes(size), ())]))
    topic = TopicProduceData(name=MOVED.topic, partition_data=[PartitionProduceData(0, batch)])
    started = time.monotonic()
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
    async with asyncio.timeout(30):
        while True:
            response = await connection.ask(request, ProduceResponse, timeout_s=30.0, version=12)
            error_code = response.responses[0].partition_responses[0].error_code
            if error_code != UnknownTopicOrPartition.code:  # the new leader may not know yet
                break
            await asyncio.sleep(0.05)
    assert error_code == NO_ERROR, response
    return time.monotonic() - started


async def throttle(network: SocketNetwork, processes: Processes, broker_id: int) -> None:
    """A broker takes its own settings only."""
    host, _, port = processes.address(broker_id).partition(":")
    connection = await ClientConnection.open(network, host, int(port), "throttled-move")
    rates = {f"{side}.replication.throttled.rate": str(RATE) for side in ("leader", "follower")}
    await configure(connection, BROKER, str(broker_id), rates)
    connection.close()


async def alter_topic(connection: ClientConnection) -> None:
    lists = {"leader.replication.throttled.replicas": "0:1,0:2", "follower.replication.throttled.replicas": "0:3"}
    await configure(connection, TOPIC, MOVED.topic, lists)


async def configure(connection: ClientConnection, kind: int, name: str, settings: dict[str, str]) -> None:
    configs = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in settings.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    response = await connection.ask(
        IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, timeout_s=30.0
    )
    assert response.responses[0].error_code == NO_ERROR, response
